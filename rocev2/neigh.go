package rocev2

import (
	"errors"
	"time"

	"roced.io/roced/plugin/mono"
)

// ErrNeighbours says that the neighbour table is full of entries in use.
var ErrNeighbours = errors.New("rocev2: neighbour table is full")

// Neighbour resolution (RFC 4861 section 10; the kernel's defaults for ARP). The first
// requests for an unknown station follow each other faster: those of a NIC that has just
// come up are often lost, because a Linux bridge begins to forward only when the kernel
// has noticed the carrier, up to a second later. The intervals double from neighFirst to
// neighRetrans, after which there are as many tries as without them.
const (
	neighRetrans   = time.Second
	neighFirst     = 10 * time.Millisecond
	neighFast      = 7 // tries until the interval is neighRetrans
	neighTries     = 3
	neighReachable = 30 * time.Second
	neighHeld      = 16  // frames that wait for one neighbour, as the kernel's queue
	neighHeldAll   = 512 // frames that wait altogether
	neighLimit     = 1024
)

// neighState is a simplification of RFC 4861 7.3.2: what is confirmed by any
// solicited or upper-layer answer is reachable; when that is long ago the entry
// is probed, while it is used, with the address that is known.
type neighState uint8

const (
	neighIncomplete neighState = iota // being resolved for the first time
	neighValid
	neighProbe  // valid, and being asked again
	neighFailed // did not answer; asked again on demand, once in neighRetrans
)

// neighbour is a station to which frames are sent, on a shared interface a destination
// that the kernel finds the station for. Only stations that a path
// leads to have an entry, so that a flood of ARP or ND messages adds none.
type neighbour struct {
	station
	src        GID // own address that asks
	mac        MAC
	state      neighState
	tries      uint8
	refs       int                      // paths that lead here
	confirmed  mono.Time                // last proof that it can be reached at mac
	at         mono.Time                // next try; in neighFailed the earliest one
	unresolved qpList                   // queue pairs that wait for the first answer
	held       [][]byte                 // frames of datagrams that wait for it
	waiters    []func(mono.Time, error) // see ResolveNeighbour
	alike      uint8                    // packets with IP ID 0, as of a NIC on sockets, and others
	odd        uint8                    // since it is held to that (sockets.go)
}

// usable reports whether mac is known.
func (nb *neighbour) usable() bool { return nb.state == neighValid || nb.state == neighProbe }

// limit is how many requests without an answer end a resolution.
func (nb *neighbour) limit() uint8 {
	if nb.state == neighIncomplete {
		return neighFast + neighTries
	}
	return neighTries
}

// neighTable holds the neighbours. The map is used when paths are made and when
// ARP and ND messages arrive, not for frames; list gives a fixed order.
type neighTable struct {
	byAddr map[station]*neighbour
	list   []*neighbour
	limit  int
	next   mono.Time // no entry has a try due before
	ready  [][]byte  // held frames whose neighbour has answered, to be sent
	held   int       // frames in all held queues and in ready
	asked  queryRing // of a shared interface
}

func (t *neighTable) init() {
	t.byAddr = make(map[station]*neighbour)
	t.limit = neighLimit
	t.next = mono.Never
}

// SetNeighbourLimit sets the number of neighbours that may be known at a time.
func (n *NIC) SetNeighbourLimit(limit int) { n.net.neigh.limit = max(limit, 1) }

// resolve returns the entry of a station with one reference more and starts its
// resolution when it is unknown.
func (n *NIC) resolve(now mono.Time, hop station, src GID) (*neighbour, error) {
	t := &n.net.neigh
	nb := t.byAddr[hop]
	if nb == nil {
		if len(t.list) >= t.limit && !t.evict() {
			return nil, ErrNeighbours
		}
		nb = &neighbour{station: hop, src: src}
		t.byAddr[hop] = nb
		t.list = append(t.list, nb)
		n.probe(now, nb)
	}
	nb.refs++
	if nb.state == neighFailed {
		n.reuse(now, nb)
	}
	return nb, nil
}

// evict forgets an entry that no path leads to and reports whether there was one.
func (t *neighTable) evict() bool {
	for i, nb := range t.list {
		if nb.refs != 0 || nb.unresolved.head != nil {
			continue
		}
		t.held -= len(nb.held)
		delete(t.byAddr, nb.station)
		last := len(t.list) - 1
		t.list[i], t.list[last] = t.list[last], nil
		t.list = t.list[:last]
		return true
	}
	return false
}

// release gives back a reference. Queue pairs that wait are woken: the one whose
// path it was must not stay on the list, the others come back by themselves.
func (n *NIC) release(nb *neighbour) {
	nb.refs--
	n.wake(nb)
}

// probe asks for nb's address once more: an entry that is valid directly, another
// one by broadcast or multicast.
func (n *NIC) probe(now mono.Time, nb *neighbour) {
	wait := neighRetrans
	if nb.state == neighIncomplete && nb.tries < neighFast {
		wait = neighFirst << nb.tries
	}
	nb.tries++
	nb.at = now.Add(wait)
	n.net.neigh.next = n.net.neigh.next.Min(nb.at)
	switch {
	case n.cfg.Shared:
		n.net.neigh.asked.push(Query{Dst: nb.addr, Src: nb.src})
	case nb.addr.is4():
		n.sendARPRequest(nb)
	default:
		n.sendSolicit(nb)
	}
}

// reuse is called for an entry that frames are sent to: it starts a probe when
// the last confirmation is long ago or the neighbour has failed to answer.
func (n *NIC) reuse(now mono.Time, nb *neighbour) {
	switch {
	case nb.state == neighValid && now.Sub(nb.confirmed) > neighReachable:
		nb.state, nb.tries = neighProbe, 0
		n.probe(now, nb)
	case nb.state == neighFailed && now >= nb.at:
		n.probe(now, nb)
	}
}

// confirm records that the transport makes progress through nb, which proves that
// it gets our frames (RFC 4861 7.3.1).
func (nb *neighbour) confirm(now mono.Time) {
	nb.confirmed = now
	if nb.state == neighProbe {
		nb.state = neighValid
	}
}

// learn records that nb has answered from mac.
func (n *NIC) learn(now mono.Time, nb *neighbour, mac MAC) {
	nb.mac, nb.state, nb.tries, nb.confirmed = mac, neighValid, 0, now
	t := &n.net.neigh
	for i, f := range nb.held {
		copy(f[:6], mac[:])
		copy(f[6:12], n.cfg.MAC[:])
		t.ready = append(t.ready, f)
		nb.held[i] = nil
	}
	nb.held = nb.held[:0]
	n.wake(nb)
	nb.answerWaiters(now, nil)
}

// fail ends a resolution without an answer. Queue pairs go on: their packets are
// discarded and the transport's own retry limits report the error.
func (n *NIC) fail(now mono.Time, nb *neighbour) {
	nb.state, nb.tries, nb.at = neighFailed, 0, now.Add(neighRetrans)
	n.ctr.TxDroppedUnreachable += uint64(len(nb.held))
	n.net.neigh.held -= len(nb.held)
	clear(nb.held)
	nb.held = nb.held[:0]
	n.wake(nb)
	nb.answerWaiters(now, ErrUnreachable)
}

// wake gives the queue pairs that wait for nb their turns again.
func (n *NIC) wake(nb *neighbour) {
	for q := nb.unresolved.head; q != nil; q = nb.unresolved.head {
		nb.unresolved.remove(q)
		n.activate(q)
	}
}

// advanceNeighbours repeats the requests that are due.
func (n *NIC) advanceNeighbours(now mono.Time) {
	t := &n.net.neigh
	if now < t.next {
		return
	}
	t.next = mono.Never
	for _, nb := range t.list {
		if nb.state != neighIncomplete && nb.state != neighProbe {
			continue
		}
		switch {
		case now < nb.at:
			t.next = t.next.Min(nb.at)
		case nb.tries >= nb.limit():
			n.fail(now, nb)
		default:
			n.probe(now, nb)
		}
	}
}

// hold keeps a copy of frame for nb until it answers. The oldest of too many is
// dropped, as the kernel does.
func (n *NIC) hold(nb *neighbour, f *Frame) {
	t := &n.net.neigh
	if len(nb.held) > 0 && (len(nb.held) >= neighHeld || t.held >= neighHeldAll) {
		copy(nb.held, nb.held[1:])
		nb.held[len(nb.held)-1] = nil
		nb.held = nb.held[:len(nb.held)-1]
		t.held--
		n.ctr.TxDroppedHold++
	}
	if t.held >= neighHeldAll {
		n.ctr.TxDroppedHold++
		return
	}
	nb.held = append(nb.held, f.AppendTo(make([]byte, 0, f.Len)))
	t.held++
}

// forgetFailures makes every neighbour that did not answer be asked again at
// once, after the link has come back.
func (n *NIC) forgetFailures(now mono.Time) {
	for _, nb := range n.net.neigh.list {
		if nb.state == neighFailed {
			nb.at = now
		}
	}
}
