package cm_test

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// flood is an agent whose peers send REQs from any address and never answer.
type flood struct {
	agent  *cm.Agent
	events map[cm.EventKind]int
	conns  []*cm.Conn
	accept bool
	next   uint32
	sent   int
}

func (f *flood) SendMAD(mono.Time, rocev2.MADRoute, []byte) error { f.sent++; return nil }
func (f *flood) PortAttr() rocev2.PortAttr                        { return rocev2.PortAttr{ActiveMTU: 5} }

func (f *flood) CMEvent(now mono.Time, c *cm.Conn, _ *cm.SIDR, e *cm.Event) {
	f.events[e.Kind]++
	if e.Kind != cm.ConnectRequest {
		return
	}
	f.conns = append(f.conns, c)
	if f.accept {
		if err := c.Accept(now, &cm.AcceptParam{QPN: bth.QPN(100)}); err != nil {
			panic(err)
		}
	}
}

func newFlood(t *testing.T, backlog int) *flood {
	t.Helper()
	f := &flood{events: map[cm.EventKind]int{}}
	f.agent = cm.New(cm.Config{Port: f, Seed: [32]byte{1}})
	if _, err := f.agent.Listen(cm.ListenParam{ServiceID: service, Backlog: backlog}, f); err != nil {
		t.Fatal(err)
	}
	return f
}

var floodLocal = inet.GID{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 2}

// message sends a datagram from a forged address.
func (f *flood) message(now mono.Time, attr mad.Attr, peer byte, put func(b []byte)) {
	var m [mad.Len]byte
	h := mad.CMHeader(attr, uint64(f.next))
	h.Put(m[:])
	put(m[:])
	f.agent.ReceiveMAD(now, rocev2.MADRoute{SGID: floodLocal, DGID: inet.GID{10: 0xff, 11: 0xff, 12: 198, 13: 19, 15: peer}}, m[:])
}

func (f *flood) request(now mono.Time, peer byte) {
	f.next++
	r := mad.REQ{LocalCommID: f.next, ServiceID: service, LocalQPN: 2 + f.next%1000, Type: mad.RC, PathMTU: 3, PKey: bth.DefaultPKey,
		LocalCMTimeout: 31, MaxCMRetries: 15, RetryCount: 7, // the longest that a REQ can request
		Primary: mad.Path{LocalGID: inet.GID{10: 0xff, 11: 0xff, 12: 198, 13: 19, 15: peer}, RemoteGID: floodLocal, HopLimit: 1, LocalAckTimeout: 31}}
	f.message(now, mad.AttrREQ, peer, func(b []byte) { r.Put(b) })
}

// TestRequestsTakenBack sends REQs and cancels each by REJ. A cancelled REQ occupies its place in the backlog until
// the owner closes it, because the owner may have it in a queue.
func TestRequestsTakenBack(t *testing.T) {
	const backlog = 16
	f := newFlood(t, backlog)
	pairs := func(n int) {
		for range n {
			f.request(1, 1)
			rej := mad.REJ{LocalCommID: f.next, Reason: mad.ReasonTimeout}
			f.message(1, mad.AttrREJ, 1, func(b []byte) { rej.Put(b) })
		}
	}
	pairs(10_000)
	if n := f.events[cm.ConnectRequest]; n != backlog || f.events[cm.Rejected] != backlog || f.agent.Len() != 0 {
		t.Fatalf("%d requests and %d refusals reported, %d connections", n, f.events[cm.Rejected], f.agent.Len())
	}
	for _, c := range f.conns {
		c.Close(1)
		c.Close(1)
	}
	pairs(10_000)
	if n := f.events[cm.ConnectRequest]; n != 2*backlog {
		t.Errorf("%d requests reported", n)
	}
}

// TestForgedRequests floods a listener, whose owner accepts every request, with REQs from silent addresses. The
// backlog keeps the newest ones. A peer that answers is connected. No connection waits as long as its REQ requests.
func TestForgedRequests(t *testing.T) {
	f := newFlood(t, 64)
	f.accept = true
	now := mono.Time(1)
	for i := range 2000 {
		now = now.Add(2500 * time.Microsecond) // 400 a second
		f.request(now, byte(i%250))
	}
	if n := f.agent.Len(); n != 256 || f.events[cm.Unreachable] != 2000-256 || f.agent.Counters().BacklogFull != 0 {
		t.Errorf("%d wait, %v, %+v", n, f.events, f.agent.Counters())
	}
	// The honest peer gets its REP in the middle of the flood, and answers after 0.1 s.
	f.request(now, 251)
	honest := f.conns[len(f.conns)-1]
	for i := range 40 {
		now = now.Add(2500 * time.Microsecond)
		f.request(now, byte(i))
	}
	if honest.State() != cm.StateREPSent {
		t.Fatalf("the honest one is %v", honest.State())
	}
	if err := honest.CommEstablished(now); err != nil {
		t.Error(err)
	}
	last := now
	for f.agent.NextTimeout() != mono.Never && f.agent.Len() > 1 {
		now = f.agent.NextTimeout()
		f.agent.Advance(now)
	}
	if d := now.Sub(last); d > 90*time.Second {
		t.Errorf("the last one is given up after %v", d)
	}
	if honest.State() != cm.StateEstablished {
		t.Errorf("the honest one is %v", honest.State())
	}
}

// TestEnumeratedQueuePairs sends REQs in the name of a peer for every possible queue pair of that peer. By the
// specification they would end its connection (IBTA vol.1 12.9.8.3.1). Only the peer itself may do that.
func TestEnumeratedQueuePairs(t *testing.T) {
	f := newFlood(t, 64)
	f.accept = true
	now := mono.Time(1)
	f.request(now, 251)
	honest := f.conns[0]
	if err := honest.CommEstablished(now); err != nil {
		t.Fatal(err)
	}
	for range 3000 { // each queue pair three times
		now = now.Add(time.Millisecond)
		f.request(now, 251)
	}
	if honest.State() != cm.StateEstablished || f.events[cm.Disconnected] != 0 {
		t.Errorf("the connection is %v; events %v", honest.State(), f.events)
	}
}
