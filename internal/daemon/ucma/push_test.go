package ucma

import (
	"testing"

	"golang.org/x/sys/unix"

	"roced/internal/abi/rdmacm"
	"roced/internal/abi/uverbs"
)

// pushed takes an event from the event socket of a client that has asked for the events themselves.
func (c *client) pushed(flags int) (e rdmacm.EventResp, ok bool) {
	c.t.Helper()
	b := make([]byte, 2*uverbs.Size[rdmacm.EventResp]())
	n, _, err := unix.Recvfrom(c.bell, b, flags)
	if err == unix.EAGAIN {
		return e, false
	}
	must(c.t, err)
	if n != uverbs.Size[rdmacm.EventResp]() {
		c.t.Fatalf("an event of %d bytes", n)
	}
	e, err = uverbs.Decode[rdmacm.EventResp](b[:n])
	must(c.t, err)
	return e, true
}

// TestPushedEvents: who asks for the events themselves finds them in the event socket, in order and as
// many as have places there; the others wait until he gives places back. All count as reported.
func TestPushedEvents(t *testing.T) {
	c := openWith(t, newHost(t, t.TempDir(), 0).cfg.Path, rdmacm.HelloEvents)
	var ids []uint32
	const programs = 12
	for i := range programs {
		ids = append(ids, c.create(uint64(i), rdmacm.PSTCP))
	}
	s, n := storage("198.18.0.1:7471")
	sent := 0
	resolve := func(id uint32) {
		c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 15000, DstSize: n, DstAddr: s})
		sent++
	}
	for i, id := range ids { // the NIC's own address is found at once
		resolve(id)
		if e, _ := c.pushed(0); e.Event != rdmacm.EventAddrResolved || e.UID != uint64(i) || e.ID != id || e.Status != 0 {
			t.Fatalf("event %+v", e)
		}
	}
	for sent < rdmacm.EventPlaces+programs {
		i := sent % programs
		c.destroy(ids[i])
		ids[i] = c.create(uint64(i), rdmacm.PSTCP)
		resolve(ids[i])
	}
	for k := programs; k < rdmacm.EventPlaces; k++ {
		if e, _ := c.pushed(0); e.UID != uint64(k%programs) {
			t.Fatalf("event %d is %+v", k, e)
		}
	}
	if e, ok := c.pushed(unix.MSG_DONTWAIT); ok {
		t.Fatalf("an event without a place: %+v", e)
	}
	for i, id := range ids {
		if n := c.destroy(id); i == 0 && n != 0 { // its event waits in the daemon
			t.Errorf("%d events are reported that are not there", n)
		}
	}
	id := c.create(99, rdmacm.PSTCP)
	resolve(id)
	c.do(rdmacm.ExtBell, rdmacm.Bell{Taken: 1 << 31})
	if e, _ := c.pushed(0); e.UID != 99 {
		t.Errorf("event %+v", e)
	}
	if n := c.destroy(id); n != 1 {
		t.Errorf("%d events are reported", n)
	}
	c.refuse(unix.EINVAL, rdmacm.ExtBell, 0, uint32(0))
}

// TestHelloFlags: flags that nobody knows are refused.
func TestHelloFlags(t *testing.T) {
	conn, err := uverbs.Dial(newHost(t, t.TempDir(), 0).cfg.Path)
	must(t, err)
	c := &client{t: t, conn: conn, bell: -1}
	defer c.close()
	c.refuse(unix.EINVAL, rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), rdmacm.Hello{Version: rdmacm.ExtVersion, Flags: 2})
}
