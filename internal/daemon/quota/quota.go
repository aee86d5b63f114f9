// Package quota accounts for what users have of a NIC and of the daemon, so that no user can
// take all of it: each may have so much, all but the privileged together so much less than
// there is.
package quota

import (
	"cmp"
	"os"
	"slices"
	"sync"
)

// Kind is something that there is only so much of.
type Kind int

// Kinds. Those from Descriptors on are the daemon's, the others a NIC's.
const (
	Connections Kind = iota // to verbs devices
	QPs
	CQs
	SRQs
	MRs
	MWs
	PDs
	AHs
	Channels    // of events
	Memory      // bytes that the daemon has mapped
	Descriptors // files that the daemon has open for clients
	CMDevices   // connections to rdma_cm
	CMIDs       // communication identifiers
	AdminConnections
	Maps   // mappings of clients' memory, which the kernel limits for a process (vm.max_map_count)
	Groups // multicast groups: one for each group of a client's queue pairs, and for each membership by rdma_cm
	kinds
)

var names = [kinds]string{"connections", "qps", "cqs", "srqs", "mrs", "mws", "pds", "ahs", "channels", "memory",
	"descriptors", "cm_devices", "cm_ids", "admin_connections",
	"maps", "multicast_groups"}

// String is the name of the kind in the configuration.
func (k Kind) String() string { return names[k] }

// Amounts are an amount of each kind.
type Amounts [kinds]int64

// Map names the amounts that are not zero.
func (a *Amounts) Map() map[string]int64 {
	m := map[string]int64{}
	for k, n := range a {
		if n != 0 {
			m[names[k]] = n
		}
	}
	return m
}

// reserve is the part of everything that only privileged users can have: an eighth.
const reserve = 8

// slots is how many accesses to memory that may block are under way for one user: each may
// hold a thread of the daemon.
const slots = 16

// Ledger accounts for one NIC, or for the daemon.
type Ledger struct {
	each, all Amounts // zero: no bound
	parent    *Ledger

	mu    *sync.Mutex // of a ledger and its parent
	used  Amounts
	users map[uint32]*user
}

// user is what a user has.
type user struct {
	used     Amounts
	accounts int
	slots    chan struct{}
}

// New makes a ledger: each is what one user may have, all is what there is. A zero means that
// there is no bound. Kinds of the daemon are accounted for by parent, if it is not nil.
func New(each, all Amounts, parent *Ledger) *Ledger {
	l := &Ledger{each: each, all: all, parent: parent, mu: &sync.Mutex{}, users: map[uint32]*user{}}
	if parent != nil {
		l.mu = parent.mu
	}
	return l
}

// Privileged reports whether a user is root or the daemon's own: nobody need be protected from
// them, who could end the daemon. They are bounded by what there is only.
func Privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// Account is what one client has. Its methods may be called by any goroutine.
type Account struct {
	uid   uint32
	of    [2]*Ledger // of the NIC, of the daemon
	users [2]*user
	held  Amounts
	ended bool
}

// Open opens an account for a client of a user.
func (l *Ledger) Open(uid uint32) *Account {
	a := &Account{uid: uid, of: [2]*Ledger{l, l}}
	if l.parent != nil {
		a.of[1] = l.parent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, l := range a.of {
		u := l.users[uid]
		if u == nil {
			u = &user{slots: make(chan struct{}, slots)}
			l.users[uid] = u
		}
		u.accounts++
		a.users[i] = u
	}
	return a
}

// at says where a kind is accounted for.
func (a *Account) at(k Kind) (*Ledger, *user) {
	i := 0
	if k >= Descriptors {
		i = 1
	}
	return a.of[i], a.users[i]
}

// Take adds n to what the client has, unless its user may not have that much more.
func (a *Account) Take(k Kind, n int64) bool {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if a.ended || !a.may(k, n) {
		return false
	}
	a.add(k, n)
	return true
}

// may reports whether the user may have n more.
func (a *Account) may(k Kind, n int64) bool {
	l, u := a.at(k)
	each, all := l.each[k], l.all[k]
	if !Privileged(a.uid) {
		if each > 0 && u.used[k]+n > each {
			return false
		}
		all -= all / reserve
	}
	return all <= 0 || l.used[k]+n <= all
}

// Full reports whether the user may have no more.
func (a *Account) Full(k Kind) bool {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	return a.ended || !a.may(k, 1)
}

func (a *Account) add(k Kind, n int64) {
	l, u := a.at(k)
	l.used[k] += n
	u.used[k] += n
	a.held[k] += n
}

// Add adds n, which may be negative, to what the client has, whether its user may or not.
func (a *Account) Add(k Kind, n int64) {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if !a.ended {
		a.add(k, n)
	}
}

// Enter waits until the user has less than slots accesses under way that may block, and
// begins one; Leave ends it. It reports whether it could before done.
func (a *Account) Enter(done <-chan struct{}) bool {
	select {
	case a.users[1].slots <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

// Leave ends what Enter has begun.
func (a *Account) Leave() { <-a.users[1].slots }

// Close ends the account: the client has nothing any more.
func (a *Account) Close() {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if a.ended {
		return
	}
	for k, n := range a.held {
		a.add(Kind(k), -n)
	}
	a.ended = true
	for i, u := range a.users {
		if u.accounts--; u.accounts == 0 {
			delete(a.of[i].users, a.uid)
		}
	}
}

// Usage is what a user has, and may have.
type Usage struct {
	UID       uint32
	Used, May Amounts // May: zero for no bound
}

// Usage tells who has what, by user.
func (l *Ledger) Usage() []Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Usage
	for uid, u := range l.users {
		x := Usage{UID: uid, Used: u.used}
		if !Privileged(uid) {
			x.May = l.each
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Usage) int { return cmp.Compare(a.UID, b.UID) })
	return out
}
