package ucma

import (
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/cm"
)

// event is an event that waits for GET_EVENT.
type event struct {
	counted *id         // DESTROY_ID of this identifier counts the event; for CONNECT_REQUEST it is the listener
	request *id         // CONNECT_REQUEST: the new identifier
	member  *membership // multicast events: LEAVE_MCAST of this membership counts the event
	resp    rdmacm.EventResp
	agreed  *cm.QPAttr // set for CONNECT_REQUEST and CONNECT_RESPONSE of a connection
}

// connection returns the identifier to which agreed belongs.
func (e *event) connection() *id {
	if e.request != nil {
		return e.request
	}
	return e.counted
}

// put sets the event's parameter to v, a ConnParam or a UDParam.
func (e *event) put(v any) { copy(e.resp.Param[:], uverbs.Append(nil, v)) }

// emit queues an event of i. status is 0, -errno or a rejection reason.
func (i *id) emit(kind uint32, status int32) *event {
	e := &event{counted: i, resp: rdmacm.EventResp{UID: i.uid, ID: i.num, Event: kind, Status: uint32(status)}}
	i.ctx.queue(e)
	return e
}

// queue appends an event and rings. The server sends it only after its lock is released, so the caller may still fill
// it in.
func (c *device) queue(e *event) {
	c.events = append(c.events, e)
	c.ring()
}

// ring sends a bell through the event socket if events wait and no bell is pending. At most one bell is pending, so
// the socket never fills up. Clients with pushes get whole events instead, after the server's lock is released.
func (c *device) ring() {
	if c.rung || len(c.events) == 0 {
		return
	}
	if c.pushes {
		c.srv.ringing = append(c.srv.ringing, c)
		return
	}
	// An error means that the client has closed its end; it then closes the connection too.
	c.rung = unix.Sendto(c.bell, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
}

// getEvent answers with the oldest event. The client has read the bell before.
func (c *device) getEvent(q *request) error {
	c.rung = false
	if len(c.events) == 0 {
		return unix.EAGAIN
	}
	q.resp = c.take().resp
	c.ring()
	return nil
}

// take removes the oldest event and counts it as reported.
func (c *device) take() *event {
	e := c.events[0]
	c.events = slices.Delete(c.events, 0, 1)
	if e.member != nil {
		e.member.reported++
	} else {
		e.counted.reported++
	}
	if e.request != nil {
		e.request.read()
	}
	return e
}

// push sends waiting events while the socket has places for them.
func (c *device) push() {
	for len(c.events) > 0 && c.away < rdmacm.EventPlaces && c.bell >= 0 {
		c.away++
		e := c.take()
		b := uverbs.Append(nil, e.resp)
		if e.agreed != nil {
			b = uverbs.Append(b, e.connection().attrs(e.agreed))
		}
		// An error means that the client has closed its end; it then closes the connection too.
		_ = unix.Sendto(c.bell, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

// bellBack handles EXT_BELL. A client returns a bell whose events were dropped, or reports how many pushed events it took.
func (c *device) bellBack(q *request) error {
	if c.pushes {
		var r rdmacm.Bell
		if err := q.decode(&r); err != nil {
			return err
		}
		c.away -= min(int(r.Taken), c.away)
	}
	c.rung = false
	c.ring()
	return nil
}

// dropEvents drops the events that count for i, and destroys the requests in them.
func (i *id) dropEvents() {
	var requests []*id
	i.ctx.events = slices.DeleteFunc(i.ctx.events, func(e *event) bool {
		if e.counted == i && e.request != nil {
			requests = append(requests, e.request)
		}
		return e.counted == i || e.request == i
	})
	for _, r := range requests {
		r.destroy()
	}
}

// migrateID moves an identifier and its waiting events from another context. The client proves its access with a
// descriptor of that context.
func (c *device) migrateID(q *request, r *rdmacm.MigrateID) error {
	if len(q.fds) != 1 {
		return unix.EBADF
	}
	from := c.srv.cookies[cookieOf(q.fds[0])]
	if from == nil {
		return unix.EINVAL
	}
	i, err := from.find(r.ID)
	if err != nil {
		return err
	}
	if from != c {
		if err := from.migrate(i, c); err != nil {
			return err
		}
	}
	q.resp = rdmacm.DestroyIDResp{EventsReported: i.reported}
	return nil
}

// migrate moves an identifier, its waiting events and the requests in them to another context.
func (c *device) migrate(i *id, to *device) error {
	ids := []*id{i}
	var moved []*event
	for _, e := range c.events {
		if e.counted != i {
			continue
		}
		moved = append(moved, e)
		if e.request != nil {
			ids = append(ids, e.request)
		}
	}
	if err := to.move(ids); err != nil {
		return err
	}
	c.events = slices.DeleteFunc(c.events, func(e *event) bool { return e.counted == i })
	for _, e := range moved {
		to.queue(e)
	}
	return nil
}
