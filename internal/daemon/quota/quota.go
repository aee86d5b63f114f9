// Package quota limits each user's share of a NIC and of the daemon, so that no user can exhaust either. It limits
// each user, and the sum of all unprivileged users to less than the capacity.
package quota

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"time"
)

// Kind is a limited resource.
type Kind int

// Kinds. The daemon's ledger counts the kinds from Descriptors on; a NIC's ledger counts the others.
const (
	Connections Kind = iota // to verbs devices
	QPs
	CQs
	SRQs
	MRs
	MWs
	PDs
	AHs
	Channels    // event channels
	Memory      // bytes that the daemon has mapped
	Descriptors // files that the daemon has open for clients
	CMDevices   // rdma_cm connections
	CMIDs       // communication identifiers
	AdminConnections
	Maps     // mappings of clients' memory; the kernel limits them per process (vm.max_map_count)
	Groups   // multicast groups: one per group of a client's queue pairs, and one per rdma_cm membership
	CMEnding // rdma_cm connections that their owner has closed, until the end of timewait
	NetlinkSockets
	kinds
)

var names = [kinds]string{"connections", "qps", "cqs", "srqs", "mrs", "mws", "pds", "ahs", "channels", "memory",
	"descriptors", "cm_devices", "cm_ids", "admin_connections",
	"maps", "multicast_groups", "cm_ending", "netlink_sockets"}

// String returns the name of the kind in the configuration.
func (k Kind) String() string { return names[k] }

// Amounts holds an amount for each kind.
type Amounts [kinds]int64

// Map returns the amounts that are not zero, by name.
func (a *Amounts) Map() map[string]int64 {
	m := map[string]int64{}
	for k, n := range a {
		if n != 0 {
			m[names[k]] = n
		}
	}
	return m
}

// reserve divides each capacity: one eighth of it is for privileged users only.
const reserve = 8

// slots limits the concurrent system calls of one sort that a user can block. Each may hold a thread of the daemon.
const slots = 16

// Slots limits concurrent system calls. It is safe for concurrent use.
type Slots chan struct{}

// Enter takes a slot. It waits for a free one; Leave frees it. It returns false if done is closed first.
func (s Slots) Enter(done <-chan struct{}) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-done:
		return false
	}
}

// Leave frees the slot that Enter has taken.
func (s Slots) Leave() { <-s }

// Ledger counts the resources of one NIC or of the daemon.
type Ledger struct {
	each, all Amounts // zero: unlimited
	parent    *Ledger

	mu    *sync.Mutex // shared by a ledger and its parent
	used  Amounts
	users map[uint32]*user
}

// user holds one user's usage.
type user struct {
	used     Amounts
	accounts int
	accesses Slots
	closes   Slots
	repaid   time.Time // when the processor time that the daemon has spent for the user is repaid
}

// Processor time that the daemon spends for one user: workBurst at once, then workShare of a processor.
const (
	workBurst = time.Second
	workShare = 0.25
)

// Spend charges processor time that has been spent for the user.
func (a *Account) Spend(now time.Time, d time.Duration) {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	u := a.users[1]
	if u.repaid.Before(now) {
		u.repaid = now
	}
	u.repaid = u.repaid.Add(time.Duration(float64(d) / workShare))
}

// Debt returns how long the user's next work has to wait.
func (a *Account) Debt(now time.Time) time.Duration {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	repaid := a.users[1].repaid.Add(-time.Duration(float64(workBurst) / workShare))
	return max(0, repaid.Sub(now))
}

// New makes a ledger: each limits one user, all is the capacity. Zero means unlimited. If parent is not nil, it
// counts the daemon's kinds.
func New(each, all Amounts, parent *Ledger) *Ledger {
	l := &Ledger{each: each, all: all, parent: parent, mu: &sync.Mutex{}, users: map[uint32]*user{}}
	if parent != nil {
		l.mu = parent.mu
	}
	return l
}

// SetEach changes the limits of each user. Users may hold more than a new limit until they release it.
func (l *Ledger) SetEach(each Amounts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each = each
}

// Privileged reports whether uid is root or the daemon's own user. These users could stop the daemon anyway, so only
// the capacity limits them.
func Privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// Account holds the usage of one client. Its methods are safe for concurrent use.
type Account struct {
	uid   uint32
	of    [2]*Ledger // NIC, daemon
	users [2]*user
	held  Amounts
	ended bool
}

// Open opens an account for a client of user uid. Close releases it.
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
			u = &user{accesses: make(Slots, slots), closes: make(Slots, slots)}
			l.users[uid] = u
		}
		u.accounts++
		a.users[i] = u
	}
	return a
}

// at returns the ledger and the user that count kind k.
func (a *Account) at(k Kind) (*Ledger, *user) {
	i := 0
	if k >= Descriptors {
		i = 1
	}
	return a.of[i], a.users[i]
}

// Take charges n to the client. It returns false and charges nothing if that exceeds a limit or the account is
// closed.
func (a *Account) Take(k Kind, n int64) bool {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if a.ended || !a.may(k, n) {
		return false
	}
	a.add(k, n)
	return true
}

// may reports whether n more stay within the limits.
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

// Full reports whether the user may take no more.
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

// Add charges n, which may be negative, without checking limits.
func (a *Account) Add(k Kind, n int64) {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if !a.ended {
		a.add(k, n)
	}
}

// Charge is Add for a positive n. It reports whether n stay within the limits.
func (a *Account) Charge(k Kind, n int64) bool {
	a.of[0].mu.Lock()
	defer a.of[0].mu.Unlock()
	if a.ended {
		return false
	}
	ok := a.may(k, n)
	a.add(k, n)
	return ok
}

// Accesses returns the user's slots for accesses to memory.
func (a *Account) Accesses() Slots { return a.users[1].accesses }

// Closes returns the user's slots for closes of descriptors that the user has sent.
func (a *Account) Closes() Slots { return a.users[1].closes }

// Close refunds everything that the client holds and closes the account.
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

// Usage holds a user's usage and limits.
type Usage struct {
	UID       uint32
	Used, May Amounts // May: zero for unlimited
}

// Usage returns the usage of all users, sorted by UID.
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
