package server

import (
	"sync"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Events passes the asynchronous events of a NIC to the clients. It is the NIC's EventSink. Observe, if set, sees
// each event first.
type Events struct {
	Observe func(what string, number uint32, o *Owner, e qp.Event)
	mu      sync.Mutex
	servers []*Server
}

// Attach adds a server whose clients receive port events. It may be called while the NIC runs.
func (v *Events) Attach(s *Server) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.servers = append(v.servers, s)
}

func (v *Events) observe(what string, number uint32, ctx any, e qp.Event) {
	if v.Observe == nil {
		return
	}
	v.Observe(what, number, OwnerOf(ctx), e)
}

// OwnerOf returns the owner of an object with this context, nil if it has none.
func OwnerOf(ctx any) *Owner {
	if o, ok := ctx.(Owned); ok {
		return o.Own()
	}
	return nil
}

// QPEvent implements rocev2.EventSink.
func (v *Events) QPEvent(q *rocev2.QueuePair, e qp.Event) {
	v.observe("qp", uint32(q.Num()), q.Ctx, e)
	if o, ok := q.Ctx.(*queuePair); ok {
		o.client.asyncEvent(o.user, e, &o.events)
	}
}

// CQEvent implements rocev2.EventSink.
func (v *Events) CQEvent(c *rocev2.CQ, e qp.Event) {
	v.observe("cq", c.ID(), c.Ctx, e)
	if o, ok := c.Ctx.(*completionQueue); ok {
		o.client.asyncEvent(o.user, e, &o.asyncEvents)
	}
}

// SRQEvent implements rocev2.EventSink.
func (v *Events) SRQEvent(s *rocev2.SRQ, e qp.Event) {
	v.observe("srq", s.ID(), s.Ctx, e)
	if o, ok := s.Ctx.(*sharedQueue); ok {
		o.client.asyncEvent(o.user, e, &o.events)
	}
}

// PortEvent implements rocev2.EventSink.
func (v *Events) PortEvent(e qp.Event) {
	v.observe("port", 1, nil, e)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.servers {
		s.portEvent(e)
	}
}

// portEvent sends an event of port 1 to all clients.
func (s *Server) portEvent(e qp.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.asyncEvent(1, e, nil)
	}
}
