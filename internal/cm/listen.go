package cm

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Listener takes the requests for a service.
type Listener struct {
	Ctx any // the owner's

	agent   *Agent // nil when closed
	param   ListenParam
	handler Handler
	pending int // requests reported and not decided

	// Connections whose REP has not been answered: how many, and the first and the last.
	unanswered     int
	oldest, newest *Conn
}

// service is what a listener without mask is found by.
type service struct {
	id       uint64
	local    rocev2.GID
	family   Family
	datagram bool
}

func (p *ListenParam) service() service { return service{p.ServiceID, p.Local, p.Family, p.Datagram} }

// Listen makes requests for a service be reported to h. ErrInUse says that there is
// such a listener already.
func (a *Agent) Listen(p ListenParam, h Handler) (*Listener, error) {
	if p.Mask == 0 {
		p.Mask = ^uint64(0)
	}
	if p.Backlog < 1 || h == nil || p.ServiceID&^p.Mask != 0 {
		return nil, ErrInvalid
	}
	l := &Listener{agent: a, param: p, handler: h}
	if p.Mask != ^uint64(0) {
		if slices.ContainsFunc(a.masked, func(o *Listener) bool {
			return o.param.service() == p.service() && o.param.Mask == p.Mask
		}) {
			return nil, ErrInUse
		}
		a.masked = append(a.masked, l)
		return l, nil
	}
	if a.listeners[p.service()] != nil {
		return nil, ErrInUse
	}
	a.listeners[p.service()] = l
	return l, nil
}

// Close ends listening. Requests that have been reported are not affected.
func (l *Listener) Close(mono.Time) {
	a := l.agent
	if a == nil {
		return
	}
	l.agent = nil
	if l.param.Mask == ^uint64(0) {
		delete(a.listeners, l.param.service())
		return
	}
	a.masked = slices.DeleteFunc(a.masked, func(o *Listener) bool { return o == l })
}

// find returns the listener for a request that has come to the address local.
func (a *Agent) find(id uint64, local rocev2.GID, datagram bool) *Listener {
	for _, s := range [...]service{{local: local}, {family: familyOf(local)}, {}} {
		s.id, s.datagram = id, datagram
		if l := a.listeners[s]; l != nil {
			return l
		}
		for _, l := range a.masked {
			if s.id = id & l.param.Mask; l.param.service() == s {
				return l
			}
		}
	}
	return nil
}

func familyOf(g rocev2.GID) Family {
	if g.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// counted says what a connection counts as at its listener.
type counted uint8

const (
	nothing    counted = iota
	undecided          // reported: until the owner accepts, rejects or closes, even if the peer has given up
	unanswered         // accepted: until the peer answers
)

// minUnanswered is how many connections of a listener may wait for their peer's answer at
// least; otherwise it is the backlog.
const minUnanswered = 256

// count makes c count as v at its listener.
func (c *Conn) count(v counted) {
	l := c.listener
	if l == nil {
		return
	}
	switch c.counted {
	case undecided:
		l.pending--
	case unanswered:
		l.dequeue(c)
	}
	switch c.counted = v; v {
	case undecided:
		l.pending++
	case unanswered:
		l.enqueue(c)
	case nothing:
		c.listener = nil
	}
}

// enqueue appends c to those that have not answered.
func (l *Listener) enqueue(c *Conn) {
	l.unanswered++
	if c.older = l.newest; c.older != nil {
		c.older.newer = c
	} else {
		l.oldest = c
	}
	l.newest = c
}

// dequeue takes c out of them.
func (l *Listener) dequeue(c *Conn) {
	l.unanswered--
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		l.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		l.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// prefer gives up the connection that has waited longest for its peer if too many wait: whoever
// answers does so at once, and who has forged his address never.
func (l *Listener) prefer(now mono.Time) {
	if l.unanswered > max(l.param.Backlog, minUnanswered) {
		l.oldest.agent.ctr.Unanswered++
		l.oldest.giveUp(now)
	}
}

// full reports whether l may not have one more request.
func (l *Listener) full() bool { return l.pending >= l.param.Backlog }
