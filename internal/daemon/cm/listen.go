package cm

import (
	"slices"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/list"

	"roced.io/roced/plugin/mono"
)

// Listener accepts requests for a service.
type Listener struct {
	Ctx any // for the owner

	agent   *Agent // nil when closed
	param   ListenParam
	handler Handler
	pending int // reported requests that the owner has not read

	unanswered list.List[*Conn] // connections with an unanswered REP, oldest first
	waiting    int              // their number
}

// service is the key of a listener without mask.
type service struct {
	id       uint64
	local    inet.GID
	family   Family
	datagram bool
}

func (p *ListenParam) service() service { return service{p.ServiceID, p.Local, p.Family, p.Datagram} }

// Listen reports requests for a service to h. It returns ErrInUse if there is such a listener.
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

// Close ends listening. It does not affect reported requests.
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

// find returns the listener for a request to the address local.
func (a *Agent) find(id uint64, local inet.GID, datagram bool) *Listener {
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

func familyOf(g inet.GID) Family {
	if g.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// counted is the kind under which a listener counts a connection.
type counted uint8

const (
	nothing    counted = iota
	unread             // reported, until the owner reads, accepts, rejects or closes it, even if the peer has given up
	decided            // read: the owner's own limits apply
	unanswered         // accepted, until the peer answers
)

// minUnanswered is the minimum for the bound of a listener's unanswered connections, which is otherwise the backlog.
const minUnanswered = 256

// count makes the listener count c as v.
func (c *Conn) count(v counted) {
	l := c.listener
	if l == nil {
		return
	}
	switch c.counted {
	case unread:
		l.pending--
	case unanswered:
		c.node.Remove()
		l.waiting--
	}
	switch c.counted = v; v {
	case unread:
		l.pending++
	case unanswered:
		l.unanswered.PushBack(&c.node)
		l.waiting++
	case nothing:
		c.listener = nil
	}
}

// Read reports that the program has read the request. It no longer counts against the backlog of the listener, as with
// ucma_get_event() of Linux.
func (c *Conn) Read() {
	if c.counted == unread {
		c.count(decided)
	}
}

// limitUnanswered gives up the oldest unanswered connection if there are too many. An honest peer answers at once; one with
// a forged address never does.
func (l *Listener) limitUnanswered(now mono.Time) {
	if l.waiting > max(l.param.Backlog, minUnanswered) {
		c := l.unanswered.First().Item
		c.agent.ctr.Unanswered++
		c.giveUp(now)
	}
}

// full reports whether the backlog is full.
func (l *Listener) full() bool { return l.pending >= l.param.Backlog }
