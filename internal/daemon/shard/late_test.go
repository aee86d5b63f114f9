package shard

import (
	"net/netip"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

const ownAddr, otherAddr = "10.0.0.1", "10.0.0.2"

// connected returns a NIC with pairs of RC queue pairs, whose send queues never run out of WRITEs of size bytes. The queue pairs
// of a pair are connected to each other, or to a peer elsewhere. The ACK timeout is 4 ms.
func connected(t *testing.T, pairs, size int, addr string) *rocev2.NIC {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	net := netip.MustParsePrefix(ownAddr + "/24")
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 4300, Offload: link.Offload{MaxSegments: 128, MaxBytes: 1 << 16},
		Addrs: []netip.Prefix{net}, Routes: []netip.Prefix{net}, Shared: true})
	check(err)
	pd, err := nic.AllocPD(nil)
	check(err)
	cq, err := nic.CreateCQ(rocev2.CQAttr{Entries: 64, Ring: sinkRing{}, Notify: func() {}})
	check(err)
	const access = qp.AccessLocalWrite | qp.AccessRemoteWrite
	mr, err := nic.RegMR(pd, rocev2.MRAttr{Length: uint64(size), Access: access, Mem: rocev2.NewBytes(make([]byte, size))})
	check(err)
	peer := inet.GIDOf(netip.MustParseAddr(addr))
	var list []*rocev2.QueuePair
	for range 2 * pairs {
		q, err := nic.CreateQP(rocev2.QPAttr{Type: qp.RC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: rdmaWrites{writes{mr, size}, mr.RKey}, RQ: noRecvs{},
			Caps: rocev2.QPCaps{MaxSendWR: 16, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		check(err)
		list = append(list, q)
	}
	for i, q := range list {
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.Init, Port: 1, AccessFlags: access}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccessFlags, nil))
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.RTR, PathMTU: 5, DestQPN: uint32(list[i^1].Num())},
			qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, &rocev2.AddressVector{DGID: peer}))
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.RTS, Timeout: 10, RetryCnt: 3},
			qp.AttrState|qp.AttrSQPSN|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrMaxRdAtomic, nil))
	}
	nic.Resolved(1, peer, inet.MAC{2, 0, 0, 0, 0, 2})
	for _, q := range list {
		nic.Doorbell(1, q)
	}
	return nic
}

// rdmaWrites is writes with a remote key.
type rdmaWrites struct {
	writes
	rkey uint32
}

func (w rdmaWrites) Next(e *qp.SendWQE) bool {
	w.writes.Next(e)
	e.RKey = w.rkey
	return true
}

// counter returns a counter of a NIC.
func counter(t *testing.T, n *rocev2.NIC, name string) uint64 {
	t.Helper()
	for _, c := range n.CounterSnapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// TestOwnPeerIsNotLate connects queue pairs of one NIC, where nothing is lost, and lets the loop be away for several ACK
// timeouts after each turn. No timer fires, and no packet leaves again.
func TestOwnPeerIsNotLate(t *testing.T) {
	nic := connected(t, 16, 1<<16, ownAddr)
	now := mono.Time(time.Second)
	for range 300 {
		nic.PollTransmit(now)
		now = now.Add(50 * time.Millisecond)
		nic.Received(now)
		nic.Advance(now)
	}
	for _, name := range []string{"local_ack_timeout_err", "retransmitted_packets", "duplicate_request"} {
		if n := counter(t, nic, name); n != 0 {
			t.Errorf("%s is %d", name, n)
		}
	}
	if counter(t, nic, "rx_write_requests") == 0 {
		t.Error("no data move")
	}
}

// TestTimersWaitForInput: a timer of a loss waits until the received frames have been handled, and as long as the loop was away
// while it sent. It fires when the loop does not catch up.
func TestTimersWaitForInput(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		input func(n *rocev2.NIC, begin mono.Time)
		after time.Duration
		want  bool
	}{
		{"all is received", func(n *rocev2.NIC, begin mono.Time) { n.Received(begin.Add(40 * ms)) }, 40 * ms, true},
		{"frames wait", func(n *rocev2.NIC, begin mono.Time) { n.Received(begin.Add(ms)) }, 40 * ms, false},
		{"frames wait for ever", func(n *rocev2.NIC, begin mono.Time) { n.Received(begin.Add(ms)) }, 300 * ms, true},
		{"away", func(n *rocev2.NIC, begin mono.Time) {
			n.Received(begin.Add(40 * ms))
			n.Delayed(begin.Add(30*ms), 30*ms)
		}, 40 * ms, false},
		{"away before", func(n *rocev2.NIC, begin mono.Time) {
			n.Received(begin.Add(70 * ms))
			n.Delayed(begin.Add(30*ms), 30*ms)
		}, 70 * ms, true},
	} {
		nic := connected(t, 1, 4096, otherAddr)
		begin := mono.Time(time.Second)
		for nic.PollTransmit(begin) != nil {
		}
		c.input(nic, begin)
		nic.Advance(begin.Add(c.after))
		if fired := counter(t, nic, "local_ack_timeout_err") > 0; fired != c.want {
			t.Errorf("%s: timer fired: %v", c.name, fired)
		}
	}
}

// TestLoopTellsWhatItHears: a turn that leaves frames in the port does not say that all have been received.
func TestLoopTellsWhatItHears(t *testing.T) {
	nic := connected(t, 1, 4096, otherAddr)
	p := &wholesale{}
	s := alone(&NIC{nic: nic, port: p, up: true})
	nic.Received(1)
	begin := Now().Add(-10 * time.Millisecond) // the ACK timeout has passed
	for nic.PollTransmit(begin) != nil {
	}
	s.receive()
	nic.Advance(begin.Add(50 * time.Millisecond))
	if n := counter(t, nic, "local_ack_timeout_err"); n != 0 {
		t.Errorf("%d timers fire while frames wait", n)
	}
}
