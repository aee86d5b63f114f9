package ccalgo

import (
	"errors"
	"maps"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// Flow is where the packets of a queue pair go: an address, and if it matters the UDP source port. It is
// all of a five-tuple that can differ, since packets of one NIC have one source, protocol and destination port.
type Flow struct {
	Dst  [16]byte
	Port uint16
}

// Sharing says which queue pairs of a NIC have one congestion control together.
type Sharing uint8

// Kinds of sharing.
const (
	PerQueuePair   Sharing = iota // each has its own
	PerFiveTuple                  // those with one address and one UDP source port
	PerDestination                // those with one address
)

// SplitSharing takes the parameters that say who shares out of those of an algorithm: per_five_tuple and
// per_destination, of which one may be 1.
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

// Bound is a Controller that wants to know where packets go.
type Bound interface {
	// Bind tells it, before anything is sent, and again when it has changed.
	Bind(f Flow)
	// Unbind tells that the queue pair sends no more.
	Unbind()
}

// Shares are the congestion controls of one NIC that queue pairs share: each is told of what all of them
// send, and what it allows is divided by as many as send. Nothing is shared between NICs.
type Shares struct {
	factory Factory
	params  Params
	by      Sharing
	groups  map[Flow]*share
}

// NewShares makes controls of that algorithm.
func NewShares(algorithm string, p Params, by Sharing) *Shares {
	return &Shares{by: by, params: p, groups: map[Flow]*share{},
		factory: func(p Params) (Controller, error) { return New(algorithm, p) }}
}

// share is one control and those who share it.
type share struct {
	Controller
	members  int
	inflight uint64 // bytes of all members

	// Who sends: those who did in this stretch of time or in the one before it.
	stretch       mono.Time // when it began
	turn          uint64    // its number
	sending, sent int
}

// sendingFor is how long somebody counts as sending, once or twice.
const sendingFor = time.Millisecond

// New returns a controller for one queue pair, which has one of its own until it is bound.
func (s *Shares) New() (Controller, error) {
	c, err := s.factory(s.params)
	if err != nil {
		return nil, err
	}
	return &member{shares: s, share: &share{Controller: c, members: 1}}, nil
}

// member is a queue pair's part of a share.
type member struct {
	*share
	shares   *Shares
	flow     Flow
	bound    bool
	mtu      int
	inflight uint32
	turn     uint64 // of the share, when it sent last
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
		g = m.share // it is the first one's
		m.shares.groups[f] = g
	} else {
		g.members++
	}
	m.share, m.flow, m.bound, m.turn = g, f, true, 0
}

// Unbind implements Bound. Whoever goes leaves the control to those who stay.
func (m *member) Unbind() {
	if !m.bound {
		return
	}
	m.note(0)
	m.bound = false
	if m.share.members--; m.share.members == 0 {
		delete(m.shares.groups, m.flow)
		m.share.members = 1
		return
	}
	c, err := m.shares.factory(m.shares.params)
	if err != nil {
		panic("ccalgo: parameters that were good: " + err.Error())
	}
	m.share = &share{Controller: c, members: 1}
	m.share.Controller.Reset(max(m.mtu, 1))
}

// note takes over what is in flight of m.
func (m *member) note(inflight uint32) {
	m.share.inflight += uint64(inflight) - uint64(m.inflight)
	m.inflight = inflight
}

// all is what is in flight of all members.
func (g *share) all() uint32 { return uint32(min(g.inflight, 1<<32-1)) }

// Reset implements Controller. Who comes later takes the control as it is.
func (m *member) Reset(mtu int) {
	m.mtu = mtu
	m.note(0)
	if m.members == 1 {
		m.share.Controller.Reset(mtu)
	}
}

// OnSent implements Controller.
func (m *member) OnSent(now mono.Time, bytes, inflight uint32) {
	m.note(inflight)
	g := m.share
	if d := now.Sub(g.stretch); d >= sendingFor || g.turn == 0 {
		g.sent, g.sending = g.sending, 0
		if d >= 2*sendingFor {
			g.sent = 0
		}
		g.stretch = now
		g.turn++
	}
	if m.turn != g.turn {
		m.turn = g.turn
		g.sending++
	}
	g.Controller.OnSent(now, bytes, g.all())
}

// OnAck implements Controller.
func (m *member) OnAck(now mono.Time, s Sample) {
	m.note(s.InFlight)
	s.InFlight = m.all()
	m.share.Controller.OnAck(now, s)
}

// Limits implements Controller.
func (m *member) Limits() (windowBytes, rateBps uint64) {
	window, rate := m.share.Controller.Limits()
	n := uint64(max(m.sending, m.sent, 1))
	return part(window, n), part(rate, n)
}

// part is an n-th of a limit.
func part(limit, n uint64) uint64 {
	if limit == Unlimited {
		return limit
	}
	return max(limit/n, 1)
}
