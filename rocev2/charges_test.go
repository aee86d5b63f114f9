package rocev2

import (
	"encoding/binary"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

// TestBadSuperFrames: a super-frame whose first eight packets are bad is dropped. One with a good packet among them is examined,
// until its source has sent too many bad ones. All packets are counted.
func TestBadSuperFrames(t *testing.T) {
	const packets, size = 40, 36
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	a := newNIC(t, cfg)
	list := make([]int, packets)
	for i := range list {
		list[i] = size - bth.BTHLen - bth.ICRCLen
	}
	qa := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 1, list...)...))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	out := transmit(a, 0)
	if len(out) != 1 || link.Segments(out[0].b, size) != packets {
		t.Fatalf("%d frames of %d packets", len(out), link.Segments(out[0].b, size))
	}
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	s := newScript()
	connect(t, n, plug(t, n, 0x22, qp.RC, s), 0, "10.0.0.1", &macA)
	discardAll(n)
	now := mono.Time(time.Second)
	// send sends the super-frame with bad packets from one number to another.
	send := func(port uint16, from, to int) (examined, good, bad int) {
		b := append([]byte(nil), out[0].b...)
		binary.BigEndian.PutUint16(b[34:], port)
		for i := range packets {
			body := b[42+i*size:][:size]
			seg := link.Segment(nil, b, size, i)
			_ = bth.SealICRC(seg[14:])
			copy(body, seg[42:])
			if i >= from && i < to {
				body[size-1]++
			}
		}
		before, dropped := len(s.got), n.ctr.drops[rxICRC]
		examined = n.Receive(now, b, size)
		return examined, len(s.got) - before, int(n.ctr.drops[rxICRC] - dropped)
	}
	check := func(what string, port uint16, from, to, examined, good, bad int) {
		t.Helper()
		if e, g, x := send(port, from, to); e != examined || g != good || x != bad {
			t.Errorf("%s: %d examined, %d good, %d bad; want %d, %d, %d", what, e, g, x, examined, good, bad)
		}
	}
	check("all bad", 49152, 0, packets, badFirst, 0, packets)
	check("the first eight bad", 49152, 0, badFirst, badFirst, 0, packets)
	check("seven bad", 49152, 0, badFirst-1, packets, packets-badFirst+1, badFirst-1)
	check("the first good", 49152, 1, packets, packets, 1, packets-1)
	for range 2 * maxBad / packets {
		send(49152, 1, packets)
	}
	check("after too many bad ones", 49152, 1, 2, 2, 1, packets-1)
	check("all good", 49152, 0, 0, packets, packets, 0)
	check("another source", 50001, 1, packets, packets, 1, packets-1)
	now += mono.Time(chargedFor) + 1
	check("later", 49152, 1, packets, packets, 1, packets-1)
}

// TestDestinationBeforeICRC: a packet to no queue pair is dropped without a look at its ICRC.
func TestDestinationBeforeICRC(t *testing.T) {
	a := newNIC(t, testConfig(macA, "10.0.0.1/24"))
	qa := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 1, 21)...))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	frame := transmit(a, 0)[0].b
	frame[len(frame)-1]++
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	n.Receive(0, frame, 0)
	connect(t, n, plug(t, n, 0x22, qp.RC, newScript()), 0, "10.0.0.9", &macA)
	n.Receive(0, frame, 0)
	if n.ctr.drops[rxQPN] != 1 || n.ctr.drops[rxPeer] != 1 || n.ctr.RcvdPkts != 0 {
		t.Errorf("drops %v", n.ctr.drops)
	}
}

// TestUnsealedMarkEnds: a frame without a right ICRC is taken if its mark says that it has none. The next frame needs one.
func TestUnsealedMarkEnds(t *testing.T) {
	a := newNIC(t, testConfig(macA, "10.0.0.1/24"))
	qa := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 1, 8)...))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	out := transmit(a, 0)
	if len(out) != 1 {
		t.Fatalf("%d frames", len(out))
	}
	b := out[0].b
	b[len(b)-1]++
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	s := newScript()
	connect(t, n, plug(t, n, 0x22, qp.RC, s), 0, "10.0.0.1", &macA)
	discardAll(n)
	n.ReceiveUnsealed(0, append([]byte(nil), b...), 0)
	n.Receive(0, append([]byte(nil), b...), 0)
	if len(s.got) != 1 || n.ctr.drops[rxICRC] != 1 {
		t.Errorf("%d packets taken, %d with a wrong ICRC; want 1 and 1", len(s.got), n.ctr.drops[rxICRC])
	}
}
