package ccalgo

import (
	"errors"
	"maps"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// Flow is the destination of a queue pair's packets: an address and, where it matters, the UDP source port. The other parts
// of the five-tuple are the same for all packets of a NIC.
type Flow struct {
	Dst  [16]byte
	Port uint16
}

// Sharing selects the queue pairs of a NIC that share one congestion control.
type Sharing uint8

// Kinds of sharing.
const (
	PerQueuePair   Sharing = iota // each queue pair has its own
	PerFiveTuple                  // queue pairs with the same address and UDP source port share one
	PerDestination                // queue pairs with the same address share one
)

// SplitSharing separates the parameters about sharing, per_five_tuple and per_destination, from the parameters of an
// algorithm. At most one of them may be 1. p is not changed.
func SplitSharing(p Params) (own Params, s Sharing, err error) {
	given := Params{}
	own = maps.Clone(p)
	for _, name := range []string{"per_five_tuple", "per_destination"} {
		if v, ok := own[name]; ok {
			given[name] = v
			delete(own, name)
		}
	}
	r := param.NewReader("ccalgo", given)
	tuple, destination := r.Bool("per_five_tuple", false), r.Bool("per_destination", false)
	switch {
	case r.Err() != nil:
		return own, 0, r.Err()
	case tuple && destination:
		return own, 0, errors.New("ccalgo: per_five_tuple and per_destination exclude each other")
	case tuple:
		return own, PerFiveTuple, nil
	case destination:
		return own, PerDestination, nil
	}
	return own, PerQueuePair, nil
}

// Bound is a Controller that depends on the destination of packets.
type Bound interface {
	// Bind sets the destination. It precedes the first OnSent and is repeated when the destination changes.
	Bind(f Flow)
	// Unbind means that the queue pair sends no more packets.
	Unbind()
}

// Shares makes the congestion controls that queue pairs of one NIC share. A shared control receives the events of all its
// queue pairs. Its limits are divided by the number of queue pairs that are sending. NICs share nothing.
type Shares struct {
	algorithm string
	params    Params
	by        Sharing
	groups    map[Flow]*share
}

// NewShares returns Shares for an algorithm and its own parameters; by is not PerQueuePair.
func NewShares(algorithm string, p Params, by Sharing) *Shares {
	return &Shares{algorithm: algorithm, by: by, params: p, groups: map[Flow]*share{}}
}

// share is one control and the state of its members.
type share struct {
	Controller
	members  int
	inflight uint64 // bytes of all members
	received uint32 // sum of the members' counts of received bytes, see Receiver.Received

	// A member counts as sending if it sent in the present interval or in the one before.
	since         mono.Time // start of the interval
	interval      uint64    // number of the interval
	sending, sent int       // members that sent in this interval and in the one before
}

// sendingFor is the length of an interval.
const sendingFor = time.Millisecond

// New returns a controller for one queue pair. The queue pair has a control of its own until Bind.
func (s *Shares) New() (Controller, error) {
	c, err := New(s.algorithm, s.params)
	if err != nil {
		return nil, err
	}
	return &member{shares: s, share: &share{Controller: c, members: 1}}, nil
}

// member is a queue pair's controller.
type member struct {
	*share
	shares   *Shares
	flow     Flow
	bound    bool
	mtu      int
	inflight uint32
	received uint32
	interval uint64 // of the share, in which the queue pair sent last
}

// Bind implements Bound.
func (m *member) Bind(f Flow) {
	if m.shares.by == PerDestination {
		f.Port = 0
	}
	if m.bound && f == m.flow {
		return
	}
	m.Unbind()
	g := m.shares.groups[f]
	if g == nil {
		g = m.share // the group keeps the share of its first member
		m.shares.groups[f] = g
	} else {
		g.members++
	}
	m.share, m.flow, m.bound, m.interval = g, f, true, 0
}

// Unbind implements Bound. The remaining members keep the control.
func (m *member) Unbind() {
	if !m.bound {
		return
	}
	m.setInflight(0)
	m.bound = false
	if m.share.members--; m.share.members == 0 {
		delete(m.shares.groups, m.flow)
		m.share.members = 1
		return
	}
	c, err := New(m.shares.algorithm, m.shares.params)
	if err != nil {
		panic("ccalgo: parameters that New accepted: " + err.Error())
	}
	m.share = &share{Controller: c, members: 1}
	m.share.Controller.Reset(max(m.mtu, 1))
}

// setInflight updates the bytes that m has in flight.
func (m *member) setInflight(inflight uint32) {
	m.share.inflight += uint64(inflight) - uint64(m.inflight)
	m.inflight = inflight
}

// totalInflight returns the bytes in flight of all members.
func (g *share) totalInflight() uint32 { return uint32(min(g.inflight, 1<<32-1)) }

// Reset implements Controller. It does not reset a control with other members.
func (m *member) Reset(mtu int) {
	m.mtu, m.received = mtu, 0
	m.setInflight(0)
	if m.members == 1 {
		m.share.received = 0
		m.share.Controller.Reset(mtu)
	}
}

// OnSent implements Controller.
func (m *member) OnSent(now mono.Time, bytes, inflight uint32) {
	m.setInflight(inflight)
	g := m.share
	if d := now.Sub(g.since); d >= sendingFor || g.interval == 0 {
		g.sent, g.sending = g.sending, 0
		if d >= 2*sendingFor {
			g.sent = 0
		}
		g.since = now
		g.interval++
	}
	if m.interval != g.interval {
		m.interval = g.interval
		g.sending++
	}
	g.Controller.OnSent(now, bytes, g.totalInflight())
}

// OnAck implements Controller.
func (m *member) OnAck(now mono.Time, s Sample) {
	m.setInflight(s.InFlight)
	s.InFlight = m.totalInflight()
	if r := &s.Receiver; r.Reported {
		m.count(r)
	}
	m.share.Controller.OnAck(now, s)
}

// count replaces the received bytes of one queue pair by the sum over all members.
func (m *member) count(r *Receiver) {
	if units, ok := newlyReceived(r.Received, m.received); ok {
		m.received = r.Received
		m.share.received = (m.share.received + units) & receivedMask
	}
	r.Received = m.share.received
}

// Limits implements Controller.
func (m *member) Limits() (windowBytes, rateBps uint64) {
	window, rate := m.share.Controller.Limits()
	n := uint64(max(m.sending, m.sent, 1))
	return divide(window, n), divide(rate, n)
}

// divide returns an n-th of a limit.
func divide(limit, n uint64) uint64 {
	if limit == Unlimited {
		return limit
	}
	return max(limit/n, 1)
}
