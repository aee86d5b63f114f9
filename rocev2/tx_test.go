package rocev2

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

func superOffload() link.Offload { return link.Offload{MaxSegments: 64, MaxBytes: 65536} }

// TestSuperFramesEqualSingleFrames: a segmented super-frame equals, byte by byte, the single frames of the same
// packets. A receiver of either gets the same packets.
func TestSuperFramesEqualSingleFrames(t *testing.T) {
	mixed := slices.Concat(write(0x22, 0xfffff0, 65536, 4096), sends(0x22, 7, 0, 1, 2, 3, 64, 64, 64, 63, 1023, 1024, 1025, 4096),
		[]bth.Packet{{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, DestQP: 0x22, AETH: bth.AETH{Syndrome: bth.SyndromeACK, MSN: 9}}},
		write(0x22, 100, 300_000, 4096), write(0x22, 300, 10_000, 1024), sends(0x22, 500, slices.Repeat([]int{64}, 300)...))
	for _, c := range []struct {
		sgid uint8
		peer string
	}{{0, "10.0.0.2"}, {1, "fd00::2"}} {
		send := func(o link.Offload) (out []wire, s *script) {
			cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
			cfg.Offload = o
			cfg.Seed[0], cfg.Seed[1] = 0xff, 0xf0 // the IP ID wraps
			n := newNIC(t, cfg)
			s = newScript(mixed...)
			q := plug(t, n, 0x11, qp.RC, s)
			connect(t, n, q, c.sgid, c.peer, &macB)
			n.net.SetQPNs(&q.path, 0x11, 0x22)
			n.sch.activate(q)
			return transmit(n, 0), s
		}
		single, _ := send(link.Offload{})
		super, s := send(superOffload())
		if len(single) != len(mixed) || len(super) > len(mixed)/8 {
			t.Errorf("%s: %d packets in %d frames, %d super-frames", c.peer, len(mixed), len(single), len(super))
		}
		if s.flushed != len(mixed) {
			t.Errorf("%s: %d packets flushed", c.peer, s.flushed)
		}
		one, cut := split(single), split(super)
		if len(one) != len(cut) {
			t.Fatalf("%s: %d frames, %d cut", c.peer, len(one), len(cut))
		}
		for i := range one {
			if !bytes.Equal(one[i], cut[i]) {
				t.Errorf("%s packet %d:\nsingle %x\ncut    %x", c.peer, i, one[i], cut[i])
			}
			if err := bth.CheckICRC(one[i][inet.EthernetLen:]); err != nil {
				t.Errorf("%s packet %d: %v", c.peer, i, err)
			}
		}
		checkReceived(t, c.sgid, c.peer, mixed, single)
		checkReceived(t, c.sgid, c.peer, mixed, super)
	}
}

// checkReceived passes frames to the peer and compares the packets of its queue pair.
func checkReceived(t *testing.T, sgid uint8, addr string, want []bth.Packet, frames []wire) {
	t.Helper()
	n := newNIC(t, testConfig(macB, "10.0.0.2/24", "fd00::2/64"))
	s := newScript()
	q := plug(t, n, 0x22, qp.RC, s)
	connect(t, n, q, sgid, map[string]string{"10.0.0.2": "10.0.0.1", "fd00::2": "fd00::1"}[addr], &macA)
	for _, w := range frames {
		n.Receive(0, w.b, w.segSize)
	}
	if len(s.got) != len(want) || n.ctr.RxDropped() != 0 {
		t.Fatalf("%s: %d of %d packets, %d dropped", addr, len(s.got), len(want), n.ctr.RxDropped())
	}
	for i, p := range s.got {
		if p.Opcode != want[i].Opcode || p.PSN != want[i].PSN || p.AckReq != want[i].AckReq || !bytes.Equal(p.Payload, want[i].Payload) {
			t.Errorf("%s packet %d: %v %v, want %v %v", addr, i, p.Opcode, p.PSN, want[i].Opcode, want[i].PSN)
		}
	}
	if got := counter(t, n, "port_rcv_packets"); got != uint64(len(want)) {
		t.Errorf("port_rcv_packets %d", got)
	}
}

func TestSuperFrameLayout(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	q := plug(t, n, 0x11, qp.RC, newScript(write(0x22, 0, 65536, 4096)...))
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.net.SetQPNs(&q.path, 0x11, 0x22)
	n.Doorbell(0, q)
	if s := q.node.replaced.(*script); s.bells != 1 {
		t.Error("no doorbell")
	}
	f := n.PollTransmit(0)
	if f.SegSize != 4096+16+16 || f.HdrLen != 42 || f.Len != 42+4096+32+4096+16 {
		t.Errorf("FIRST and one MIDDLE: %+v", f)
	}
	f = n.PollTransmit(0)
	b := f.AppendTo(nil)
	if f.SegSize != 4112 || f.Len != 42+14*4112 || len(f.Bufs) != 2*14+1 || link.Segments(b, f.SegSize) != 14 {
		t.Errorf("super-frame: segment %d, %d bytes, %d pieces", f.SegSize, f.Len, len(f.Bufs))
	}
	udp := b[34:42]
	if port := binary.BigEndian.Uint16(udp); port != 0xc000|0x11*0x22 {
		t.Errorf("source port %#x", port)
	}
	if sum := binary.BigEndian.Uint16(udp[6:8]); sum != ^inet.Checksum(inet.PseudoSum(&q.path.Src, &q.path.Dst, 17, 8+14*4112), nil) {
		t.Errorf("UDP checksum %#x is not that of the pseudo-header", sum)
	}
	if inet.Checksum(0, b[14:34]) != 0 || binary.BigEndian.Uint16(b[20:]) != ipv4DF || b[22] != 64 {
		t.Errorf("IP header %x", b[14:34])
	}
	end := n.PollTransmit(0)
	n.Advance(mono.Time(stack.NeighRetrans)) // to end the timer of the address resolution
	if end != nil || n.NextTimeout() != mono.Never {
		t.Error("not idle")
	}
}

// TestFlushedWaitsForThePendingPacket: the NIC reports to a queue pair that its packets have left only after all
// polled packets have.
func TestFlushedWaitsForThePendingPacket(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	s := newScript(sends(0x22, 0, 64, 128, 64)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	for i, want := range []struct{ sent, flushes, flushed int }{{2, 0, 0}, {3, 0, 0}} {
		if n.PollTransmit(0) == nil || s.sent != want.sent || s.flushes != want.flushes || s.flushed != want.flushed {
			t.Errorf("frame %d: %+v", i, s)
		}
	}
	if n.PollTransmit(0) != nil || s.flushed != 3 || s.flushes != 1 {
		t.Errorf("sent %d, flushed %d in %d", s.sent, s.flushed, s.flushes)
	}
}

func TestTransmitDiscards(t *testing.T) {
	n := nicA(t)
	s := newScript(sends(0x22, 0, 4200, 4300)...)
	q := plug(t, n, 0x11, qp.RC, s)
	n.sch.activate(q)
	transmit(n, 0)
	if got := counter(t, n, "tx_dropped_no_path"); got != 2 || s.flushed != 2 {
		t.Errorf("no path: %d, flushed %d", got, s.flushed)
	}
	s.sent = 0
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	if out := transmit(n, 0); len(out) != 1 || counter(t, n, "tx_dropped_mtu") != 1 {
		t.Errorf("MTU: %d frames, %d dropped", len(out), counter(t, n, "tx_dropped_mtu"))
	}
	n.SetLink(0, false, 0)
	s.sent = 0
	n.sch.activate(q)
	if out := transmit(n, 0); len(out) != 0 || counter(t, n, "port_xmit_discards") != 1 || s.flushed != 2 {
		t.Errorf("link down: %d frames, %d discarded", len(out), counter(t, n, "port_xmit_discards"))
	}
}

// TestLoopback: two queue pairs on one NIC reach each other, with and without IPv6. The steps are bounded even when
// both send endlessly.
func TestLoopback(t *testing.T) {
	for _, c := range []struct {
		sgid uint8
		addr string
	}{{0, "10.0.0.1"}, {1, "fd00::1"}, {2, "fe80::ff:fe00:a"}} {
		cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
		cfg.Offload = superOffload()
		n := newNIC(t, cfg)
		a, b := newScript(sends(0x22, 5, 10, 10, 3000)...), newScript()
		qa, qb := plug(t, n, 0x11, qp.RC, a), plug(t, n, 0x22, qp.RC, b)
		connect(t, n, qa, c.sgid, c.addr, nil)
		connect(t, n, qb, c.sgid, c.addr, nil)
		n.sch.activate(qa)
		if out := transmit(n, 0); len(out) != 0 || len(b.got) != 3 || a.flushed != 3 || n.ctr.RxDropped() != 0 {
			t.Errorf("%s: %d on the link, %d received, %d dropped", c.addr, len(out), len(b.got), n.ctr.RxDropped())
		}
		a.endless, b.keep = true, false
		n.sch.activate(qa)
		if n.PollTransmit(0) != nil || n.NextTimeout() > 0 {
			t.Errorf("endless loopback: next timeout %d", n.NextTimeout())
		}
	}
}

// TestPortWithFaults: a port with fault rules gets the frames of the NIC to itself, and shows all sent frames.
func TestPortWithFaults(t *testing.T) {
	for _, up := range []bool{true, false} {
		n := newNIC(t, testConfig(macA, "10.0.0.1/24"))
		n.SetOffload(link.Offload{Faults: true})
		obs := new(sentFrames)
		n.SetObserver(obs)
		a, b := newScript(sends(0x22, 5, 10)...), newScript()
		qa, qb := plug(t, n, 0x11, qp.RC, a), plug(t, n, 0x22, qp.RC, b)
		connect(t, n, qa, 0, "10.0.0.1", nil)
		connect(t, n, qb, 0, "10.0.0.1", nil)
		ok(t, n.SetLink(0, up, 0))
		n.sch.activate(qa)
		f := n.PollTransmit(0)
		if f == nil || !f.Unseen || len(b.got) != 0 || *obs != 0 {
			t.Fatalf("link up %v: frame %+v, %d received, %d shown", up, f, len(b.got), *obs)
		}
		n.Receive(0, f.AppendTo(nil), 0)
		n.SetOffload(link.Offload{})
		if out := transmit(n, 0); len(out) != 0 || len(b.got) != 1 || *obs != 0 {
			t.Errorf("link up %v: %d on the link, %d received, %d shown", up, len(out), len(b.got), *obs)
		}
	}
}

// sentFrames counts shown frames that the NIC has sent.
type sentFrames int

func (s *sentFrames) Frame(_ mono.Time, d link.Direction, _ []byte, _ string) {
	if d == link.Tx {
		*s++
	}
}

func TestScratchOutlivesThePendingPacket(t *testing.T) {
	n := nicA(t)
	first := n.tx.alloc(4096)
	n.tx.queue = plug(t, n, 5, qp.RC, newScript())
	n.left(0)
	second := n.tx.alloc(4096)
	if &first[0] == &second[0] {
		t.Error("the same memory twice in a row")
	}
	for range 40 {
		if s := n.tx.alloc(4096); len(s) != 4096 || cap(s) < 4096 {
			t.Error("short")
		}
	}
}

func TestDetachViews(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	s := newScript(sends(0x22, 0, 2000, 2000, 3000)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	f := n.PollTransmit(0)
	want := f.AppendTo(nil)
	n.detachViews()
	for _, p := range s.out {
		clear(p.Payload)
	}
	if !bytes.Equal(f.AppendTo(nil), want) {
		t.Error("the frame on its way has changed")
	}
	p := n.PollTransmit(0).AppendTo(nil)
	if err := bth.CheckICRC(p[inet.EthernetLen:]); err != nil || !bytes.Equal(p[54:3054], payload(3000, 2)) {
		t.Errorf("the packet that waited has changed: %v", err)
	}
}

func TestTransmitAllocatesNothing(t *testing.T) {
	for _, o := range []link.Offload{{}, superOffload()} {
		cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
		cfg.Offload = o
		n := newNIC(t, cfg)
		s := newScript(slices.Concat(write(0x22, 0, 100_000, 4096), sends(0x22, 0, 64, 64, 1, 2))...)
		q := plug(t, n, 0x11, qp.RC, s)
		connect(t, n, q, 0, "10.0.0.2", &macB)
		got := testing.AllocsPerRun(100, func() {
			s.sent = 0
			n.Doorbell(0, q)
			for n.PollTransmit(0) != nil {
			}
		})
		if got != 0 || s.sent != len(s.out) {
			t.Errorf("%+v: %v allocations for %d packets", o, got, s.sent)
		}
	}
}
