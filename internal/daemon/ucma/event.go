package ucma

import (
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/cm"
)

// event waits to be taken by GET_EVENT.
type event struct {
	counted *id         // whose DESTROY_ID counts it: for CONNECT_REQUEST the listener
	request *id         // CONNECT_REQUEST: the new identifier
	member  *membership // of an event of multicast, whose LEAVE_MCAST counts it
	resp    rdmacm.EventResp
	agreed  *cm.QPAttr // of CONNECT_REQUEST and CONNECT_RESPONSE of a connection
}

// connection is the identifier of which agreed is.
func (e *event) connection() *id {
	if e.request != nil {
		return e.request
	}
	return e.counted
}

// put makes v, a ConnParam or a UDParam, the event's parameter.
func (e *event) put(v any) { copy(e.resp.Param[:], uverbs.Append(nil, v)) }

// emit queues an event of i; status is 0, -errno or a reason of rejection.
func (i *id) emit(kind uint32, status int32) *event {
	e := &event{counted: i, resp: rdmacm.EventResp{UID: i.uid, ID: i.num, Event: kind, Status: uint32(status)}}
	i.ctx.queue(e)
	return e
}

// queue appends an event and rings. The client gets the event when the server's lock is free, so
// that it may still be filled in.
func (c *device) queue(e *event) {
	c.events = append(c.events, e)
	c.ring()
}

// ring puts a bell into the event socket when events wait and no bell is under way.
// There is never more than one, so that the socket has room. Clients that want the events
// themselves get them when the server's lock is free.
func (c *device) ring() {
	if c.rung || len(c.events) == 0 {
		return
	}
	if c.pushes {
		c.srv.ringing = append(c.srv.ringing, c)
		return
	}
	// The client may have closed its end; it will close the connection too.
	c.rung = unix.Sendto(c.bell, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
}

// getEvent answers with the oldest event. The client has taken the bell for that.
func (c *device) getEvent(q *request) error {
	c.rung = false
	if len(c.events) == 0 {
		return unix.EAGAIN
	}
	q.resp = c.take().resp
	c.ring()
	return nil
}

// take takes the oldest event, which is reported to the client.
func (c *device) take() *event {
	e := c.events[0]
	c.events = slices.Delete(c.events, 0, 1)
	if e.member != nil {
		e.member.reported++
	} else {
		e.counted.reported++
	}
	return e
}

// push sends the events that wait, as far as they have places in the socket.
func (c *device) push() {
	for len(c.events) > 0 && c.away < rdmacm.EventPlaces && c.bell >= 0 {
		c.away++
		e := c.take()
		b := uverbs.Append(nil, e.resp)
		if e.agreed != nil {
			b = uverbs.Append(b, e.connection().attrs(e.agreed))
		}
		// The client may have closed its end; it will close the connection too.
		_ = unix.Sendto(c.bell, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

// bellBack takes a bell back that the client has found for events that are gone, or places of events.
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

// dropEvents forgets the events that i is counted for, and the requests in them.
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

// migrateID moves an identifier, with the events that wait, from another context of
// which the client has a descriptor.
func (c *device) migrateID(q *request) error {
	var r rdmacm.MigrateID
	if err := q.decode(&r); err != nil {
		return err
	}
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
		var moved []*event
		from.events = slices.DeleteFunc(from.events, func(e *event) bool {
			if e.counted == i {
				moved = append(moved, e)
			}
			return e.counted == i
		})
		i.move(c)
		for _, e := range moved {
			if e.request != nil {
				e.request.move(c)
			}
			c.queue(e)
		}
	}
	q.resp = rdmacm.DestroyIDResp{EventsReported: i.reported}
	return nil
}
