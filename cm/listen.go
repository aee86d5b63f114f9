package cm

import (
	"slices"

	"roced/mono"
	"roced/rocev2"
)

// Listener takes the requests for a service.
type Listener struct {
	Ctx any // the owner's

	agent   *Agent // nil when closed
	param   ListenParam
	handler Handler
	pending int // requests reported and not decided
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

// full reports whether l may not have one more request.
func (l *Listener) full() bool { return l.pending >= l.param.Backlog }
