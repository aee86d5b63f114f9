package rocev2

import (
	"bytes"
	"math"
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

func TestSegmentEdges(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	q := plug(t, n, 0x11, qp.RC, newScript(sends(0x22, 0, 16, 16, 16, 4)...))
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	w := transmit(n, 0)[0]
	if w.segSize != 32 || link.Segments(w.b, 32) != 4 || link.Segments(w.b, 0) != 1 || link.Segments(w.b, 4096) != 1 {
		t.Errorf("segment size %d, %d segments", w.segSize, link.Segments(w.b, w.segSize))
	}
	if got := link.Segment([]byte("x"), w.b, 32, 3); len(got) != 1+42+20 || got[0] != 'x' {
		t.Errorf("last segment %x", got)
	}
	for _, i := range []int{-1, 4, math.MaxInt} {
		if got := link.Segment(nil, w.b, 32, i); got != nil {
			t.Errorf("segment %d: %x", i, got)
		}
	}
	if got := link.Segment(nil, w.b, 0, 0); !bytes.Equal(got, w.b) || link.Segment(nil, w.b, 0, 1) != nil {
		t.Error("a single frame is not itself")
	}
	for i := range w.b {
		link.Segments(w.b[:i], 32)
		link.Segment(nil, w.b[:i], 32, 0)
	}
}

// whole checks that an observer sees single frames.
type whole struct{ rx, tx int }

func (o *whole) Frame(_ mono.Time, d link.Direction, f []byte, _ string) {
	if d == link.Rx {
		o.rx++
	} else {
		o.tx++
	}
	link.Segment(nil, f, 32, 0)
}

// FuzzReceive: no frame makes the NIC panic, answer with an invalid frame, or exceed its limits.
func FuzzReceive(f *testing.F) {
	eachCaptured(f, func(_ string, frame []byte) {
		if len(frame) < 200 {
			f.Add(frame, 0)
		}
	})
	f.Add(echo(false, 20), 0)
	f.Add(echo(true, 20), 16)
	f.Add(arp(arpRequest, macB, "10.0.0.2", "10.0.0.1"), 0)
	f.Fuzz(func(t *testing.T, frame []byte, segSize int) {
		n := nicA(t)
		obs := &whole{}
		n.SetObserver(obs)
		s := newScript()
		connect(t, n, plug(t, n, 0x11, qp.RC, s), 0, "10.0.0.2", nil)
		plug(t, n, 0x12, qp.UD, newScript())
		if len(frame) > 12 {
			copy(frame, macA[:]) // passes the first check
		}
		n.Receive(0, frame, segSize)
		n.Advance(1)
		for f := n.PollTransmit(1); f != nil; f = n.PollTransmit(1) {
			if f.Len < inet.EthernetLen || f.Len > n.net.MTU()+inet.EthernetLen {
				t.Fatalf("frame of %d bytes", f.Len)
			}
		}
		if len(n.net.Neighbours()) != 1 || obs.rx < 1 {
			t.Fatalf("%d neighbours, %d frames seen", len(n.net.Neighbours()), obs.rx)
		}
	})
}
