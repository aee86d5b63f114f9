package stack

import (
	"slices"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Neighbour resolution (RFC 4861 section 10; Linux' defaults for ARP). The first requests for an unknown station
// follow each other faster, because those of a NIC that has just come up are often lost: a Linux bridge forwards
// only when the kernel has noticed the carrier, up to a second later. The intervals double from neighFirst to
// NeighRetrans; then the regular tries follow.
const (
	NeighRetrans   = time.Second
	NeighFirst     = 10 * time.Millisecond
	NeighLimit     = 1024
	NeighHeld      = 16 // frames that wait for one neighbour, as the kernel's queue
	neighFast      = 7  // tries until the interval is NeighRetrans
	neighTries     = 3
	neighReachable = 30 * time.Second
	neighHeldAll   = 512 // frames that wait for all neighbours
)

// NeighbourState simplifies RFC 4861 7.3.2. Any solicited or upper-layer answer confirms an entry. An old entry is
// probed while it is used, with the known address.
type NeighbourState uint8

// Neighbour states.
const (
	Incomplete NeighbourState = iota // first resolution in progress
	Valid
	Probe  // valid, new confirmation requested
	Failed // no answer; requested again on use, once in NeighRetrans
)

// Neighbour is a next hop, on a shared interface a destination that the kernel resolves. Only paths create entries,
// so that a flood of ARP or ND messages adds none.
type Neighbour struct {
	Address
	MAC   inet.MAC
	State NeighbourState
	Refs  int // paths that lead here

	holders   map[Holder]int // of Refs, except those of Unlimited
	src       inet.GID       // own address that the requests come from
	tries     uint8
	confirmed mono.Time // last proof of reachability at MAC
	at        mono.Time // next try; in state Failed the earliest one
	waiting   list.List[Waiter]
	held      [][]byte                 // frames that wait for the address
	done      []func(mono.Time, error) // see ResolveNeighbour
	alike     uint8                    // consecutive packets with IP ID 0 (sockets.go)
	odd       uint8                    // packets with other IP IDs since the peer is held to that
}

// Usable reports whether MAC is known.
func (nb *Neighbour) Usable() bool { return nb.State == Valid || nb.State == Probe }

// Confirm records that the transport makes progress through nb, which proves that it receives our frames (RFC 4861
// 7.3.1).
func (nb *Neighbour) Confirm(now mono.Time) {
	nb.confirmed = now
	if nb.State == Probe {
		nb.State = Valid
	}
}

// Held returns the number of frames that wait for the address.
func (nb *Neighbour) Held() int { return len(nb.held) }

// limit returns the number of unanswered requests that end a resolution.
func (nb *Neighbour) limit() uint8 {
	if nb.State == Incomplete {
		return neighFast + neighTries
	}
	return neighTries
}

// Waiter waits for the address of a neighbour. It is an item of a list.Node. Resolved is called once, on success and on
// failure, or when a path to the neighbour is released.
type Waiter interface{ Resolved() }

// Wait queues w, which does not wait.
func (nb *Neighbour) Wait(w *list.Node[Waiter]) { nb.waiting.PushBack(w) }

// wake resumes the waiters of nb.
func (nb *Neighbour) wake() {
	for w := nb.waiting.First(); w != nil; w = nb.waiting.First() {
		w.Remove()
		w.Item.Resolved()
	}
}

// neighTable holds the neighbours. The map serves new paths, ARP and ND, not frames. list gives a fixed order.
type neighTable struct {
	byAddr  map[Address]*Neighbour
	list    []*Neighbour
	limit   int
	used    int            // entries with references
	holding map[Holder]int // how many entries each uses
	next    mono.Time      // no try is due before
	ready   [][]byte       // held frames whose neighbour has answered, to be sent
	held    int            // frames in all held queues and in ready
	queries queryRing      // of a shared interface
}

func (t *neighTable) init() {
	t.byAddr, t.holding = make(map[Address]*Neighbour), make(map[Holder]int)
	t.limit = NeighLimit
	t.next = mono.Never
}

// SetNeighbourLimit sets the maximum number of neighbours.
func (s *Stack) SetNeighbourLimit(limit int) { s.neigh.limit = max(limit, 1) }

// Neighbour returns the entry of a station, nil if there is none.
func (s *Stack) Neighbour(x Address) *Neighbour { return s.neigh.byAddr[x] }

// Neighbours returns all entries. The caller must not change the slice.
func (s *Stack) Neighbours() []*Neighbour { return s.neigh.list }

// Held returns the number of frames that wait for neighbours or, after an answer, for NextHeld.
func (s *Stack) Held() int { return s.neigh.held }

// resolve returns the entry of a station with one more reference. It starts the resolution of an unknown station.
func (s *Stack) resolve(now mono.Time, hop Address, src inet.GID, h Holder) (*Neighbour, error) {
	t := &s.neigh
	nb := t.byAddr[hop]
	if !t.mayHold(nb, h) {
		return nil, ErrNeighbours
	}
	if nb == nil {
		if len(t.list) >= t.limit && !t.evict() {
			return nil, ErrNeighbours
		}
		nb = &Neighbour{Address: hop, src: src}
		t.byAddr[hop] = nb
		t.list = append(t.list, nb)
		s.probe(now, nb)
	}
	t.hold(nb, h)
	if nb.State == Failed {
		s.Reuse(now, nb)
	}
	return nb, nil
}

// evict removes an entry without references and reports whether there was one.
func (t *neighTable) evict() bool {
	i := slices.IndexFunc(t.list, func(nb *Neighbour) bool { return nb.Refs == 0 && nb.waiting.First() == nil })
	if i < 0 {
		return false
	}
	nb, last := t.list[i], len(t.list)-1
	t.held -= len(nb.held)
	delete(t.byAddr, nb.Address)
	t.list[i], t.list[last] = t.list[last], nil
	t.list = t.list[:last]
	return true
}

// release drops a reference and resumes the waiters: the owner of the path must leave the list, the others queue
// again.
func (s *Stack) release(nb *Neighbour, h Holder) {
	s.neigh.drop(nb, h)
	nb.wake()
}

// probe requests nb's address once more: by unicast for a valid entry, else by broadcast or multicast.
func (s *Stack) probe(now mono.Time, nb *Neighbour) {
	wait := NeighRetrans
	if nb.State == Incomplete && nb.tries < neighFast {
		wait = NeighFirst << nb.tries
	}
	nb.tries++
	nb.at = now.Add(wait)
	s.neigh.next = s.neigh.next.Min(nb.at)
	switch {
	case s.cfg.Shared:
		s.neigh.queries.push(Query{Dst: nb.Addr, Src: nb.src})
	case nb.Addr.Is4():
		s.sendARPRequest(nb)
	default:
		s.sendSolicit(nb)
	}
}

// Reuse precedes each frame to nb. It starts a probe when the last confirmation is old or the neighbour has failed.
func (s *Stack) Reuse(now mono.Time, nb *Neighbour) {
	switch {
	case nb.State == Valid && now.Sub(nb.confirmed) > neighReachable:
		nb.State, nb.tries = Probe, 0
		s.probe(now, nb)
	case nb.State == Failed && now >= nb.at:
		s.probe(now, nb)
	}
}

// Learn records that nb has answered from mac.
func (s *Stack) Learn(now mono.Time, nb *Neighbour, mac inet.MAC) {
	nb.MAC, nb.State, nb.tries, nb.confirmed = mac, Valid, 0, now
	for _, f := range nb.held {
		copy(f[:6], mac[:])
		copy(f[6:12], s.cfg.MAC[:])
	}
	s.neigh.ready = append(s.neigh.ready, nb.held...)
	s.settle(now, nb, nil)
}

// fail ends a resolution without an answer. Queue pairs continue: the NIC discards their packets and the
// transport's retry limits report the error.
func (s *Stack) fail(now mono.Time, nb *Neighbour) {
	nb.State, nb.tries, nb.at = Failed, 0, now.Add(NeighRetrans)
	s.Counters.TxDroppedUnreachable += uint64(len(nb.held))
	s.neigh.held -= len(nb.held)
	s.settle(now, nb, ErrUnreachable)
}

// settle follows the end of a resolution. No frame is held any more.
func (s *Stack) settle(now mono.Time, nb *Neighbour, err error) {
	clear(nb.held)
	nb.held = nb.held[:0]
	nb.wake()
	done := nb.done
	nb.done = nil
	for _, f := range done {
		f(now, err)
	}
}

// advanceNeighbours repeats the requests that are due.
func (s *Stack) advanceNeighbours(now mono.Time) {
	t := &s.neigh
	if now < t.next {
		return
	}
	t.next = mono.Never
	for _, nb := range t.list {
		if nb.State != Incomplete && nb.State != Probe {
			continue
		}
		switch {
		case now < nb.at:
			t.next = t.next.Min(nb.at)
		case nb.tries >= nb.limit():
			s.fail(now, nb)
		default:
			s.probe(now, nb)
		}
	}
}

// Hold keeps a copy of a frame for nb until it answers. When too many wait it drops the oldest, as the kernel does.
func (s *Stack) Hold(nb *Neighbour, f *link.Frame) {
	t := &s.neigh
	if len(nb.held) > 0 && (len(nb.held) >= NeighHeld || t.held >= neighHeldAll) {
		nb.held = slices.Delete(nb.held, 0, 1)
		t.held--
		s.Counters.TxDroppedHold++
	}
	if t.held >= neighHeldAll {
		s.Counters.TxDroppedHold++
		return
	}
	nb.held = append(nb.held, f.AppendTo(make([]byte, 0, f.Len)))
	t.held++
}

// ResolveNeighbour reports to done whether the next hop to dst answers: at once, or from a later call of the stack.
// src is the index of the source in the GID table.
func (s *Stack) ResolveNeighbour(now mono.Time, dst inet.GID, src uint8, h Holder, done func(now mono.Time, err error)) error {
	p, err := s.NewPathOf(now, AddressVector{DGID: dst, SGIDIndex: src}, h)
	if err != nil {
		return err
	}
	nb := p.Next
	if nb == nil || nb.Usable() {
		s.ReleasePath(&p)
		done(now, nil)
		return nil
	}
	if nb.State == Failed { // do not wait for NeighRetrans to pass
		nb.State, nb.tries = Incomplete, 0
		s.probe(now, nb)
	}
	nb.done = append(nb.done, func(now mono.Time, err error) {
		s.ReleasePath(&p)
		done(now, err)
	})
	return nil
}
