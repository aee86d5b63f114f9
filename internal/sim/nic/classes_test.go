package nic

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// incast makes hosts 1 to n send bytes each to host 0. It returns the time of the last completion.
func incast(l *lab, u *counter, n int, bytes uint32, c QPConfig) engine.Time {
	l.t.Helper()
	c.User = u
	for h := range n {
		x, _, err := l.k.Connect(1+h, 0, c)
		if err != nil {
			l.t.Fatal(err)
		}
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: bytes})
	}
	l.eng.Drain()
	if l.check(); u.sends != n || u.failed != 0 {
		l.t.Fatalf("%d of %d done, %d failed", u.sends, n, u.failed)
	}
	return u.last
}

// TestTrimming: packets without their payload are retransmitted at once. An incast into a small buffer takes hardly
// longer than the transmission time, without a timeout, and each byte arrives.
func TestTrimming(t *testing.T) {
	slowRTO := map[string]float64{"rto_low_us": 1000, "rto_high_us": 1000} // the transmission time is 168
	for name, spec := range map[string]profile.Spec{
		"irn":     {Recovery: profile.Part{Name: "irn", Params: slowRTO}},
		"eunomia": {Recovery: profile.Part{Name: "selective"}},
	} {
		took, timeouts := [2]engine.Time{}, [2]uint64{}
		for i, trims := range []bool{false, true} {
			sc := fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 400_000}, Port: fabric.PortConfig{Strict: 1 << 7}}
			if trims {
				sc.Trim.Bytes, sc.Trim.Class = 84, 7
			}
			l := newLab(t, fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 31), sc, 1)
			u := &counter{}
			took[i] = incast(l, u, 30, 64_000, QPConfig{Profile: l.profiles(name, spec), MaxUnacked: 256, Timeout: 10})
			timeouts[i] = l.k.Counters().LocalAckTimeoutErr
			if cut := l.k.Cut(); trims != (cut > 0) {
				t.Errorf("%s, trims %v: %d packets cut", name, trims, cut)
			}
		}
		line := engine.Time(30 * 64 * 1100 * 80)
		if timeouts[0] == 0 || timeouts[1] > 0 {
			t.Errorf("%s: %d timeouts without trimming, %d with it", name, timeouts[0], timeouts[1])
		}
		if took[1] > 2*line || took[0] < 2*took[1] {
			t.Errorf("%s: takes %d us without trimming, %d with it, %d at line rate", name, took[0]/engine.Microsecond, took[1]/engine.Microsecond, line/engine.Microsecond)
		}
	}
}

// TestTraffic: a queue pair's data use its class. With strict classes a message of a higher class does not wait for
// lower ones.
func TestTraffic(t *testing.T) {
	took := [2]engine.Time{}
	for i := range took {
		sc := labSwitch
		sc.Buffer = fabric.BufferConfig{Bytes: 64 << 20}
		sc.Port.Strict = 0xff
		l := newLab(t, fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 9), sc, 1)
		high := &counter{}
		x, _, err := l.k.Connect(8, 0, QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: high, Traffic: uint8(3 * i), MaxUnacked: 1000})
		if err != nil {
			t.Fatal(err)
		}
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 100_000})
		incast(l, &counter{}, 7, 1_000_000, QPConfig{Profile: l.profiles("rc", profile.Spec{}), MaxUnacked: 1000})
		took[i] = high.last
	}
	if took[1]*4 > took[0] || took[1] > 15*engine.Microsecond {
		t.Errorf("took %v ps in the same class and in a higher one", took)
	}
}

// TestRemaining: packets have ranks by the bytes that are left from them on, also after earlier requests. Limits raise
// their classes.
func TestRemaining(t *testing.T) {
	s := sendQueue{first: bth.MakePSN(0xfffffe)}
	for _, length := range []uint32{2500, 0, 1000} {
		s.push(qp.SendWQE{Length: length})
	}
	for i, want := range []uint32{3500, 2500, 1500, 500, 0} {
		if got := s.remaining(bth.MakePSN(0xfffffe).Add(i), 1000); got != want {
			t.Errorf("packet %d: %d bytes left, want %d", i, got, want)
		}
	}
	s.retire(2, 1000)
	for psn, want := range map[uint32]uint32{1: 1000, 2: 1000, 3: 0} {
		if got := s.remaining(bth.MakePSN(psn), 1000); got != want {
			t.Errorf("after two requests, packet %d: %d bytes left, want %d", psn, got, want)
		}
	}
	c := Classes{Limits: []uint32{2000, 500}}
	for left, want := range map[uint32]uint8{2001: 0, 2000: 1, 501: 1, 500: 2, 0: 2} {
		if got := c.above(left); got != want {
			t.Errorf("%d bytes left: %d classes above, want %d", left, got, want)
		}
	}
}

// TestShortestFirst: with SRPT, flow control of long messages stops short ones, unless classes by the bytes left have flow
// control of their own.
func TestShortestFirst(t *testing.T) {
	took := map[bool]engine.Time{}
	for _, limited := range []bool{false, true} {
		sc := fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 4 << 20}, PFC: fabric.PFCConfig{Lossless: 1, Headroom: 60_000, Alpha: 1.0 / 64},
			Port: fabric.PortConfig{SRPT: true}}
		if limited {
			sc.PFC.Lossless, sc.Port.Strict = 3, 2
		}
		l := newLab(t, fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 9), sc, 1)
		if limited {
			l.k.cfg.Classes.Limits = []uint32{10_000}
		}
		long, short := &counter{}, &counter{}
		c := QPConfig{Profile: l.profiles("eunomia", profile.Spec{Reorder: profile.Part{Name: "mp-rdma", Params: map[string]float64{"bitmap_slots": 1 << 14}}}), MaxUnacked: 4000}
		for h := range 7 {
			c.User = long
			x, _, err := l.k.Connect(1+h, 0, c)
			if err != nil {
				t.Fatal(err)
			}
			x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 2_000_000})
		}
		l.eng.Run(100 * engine.Microsecond)
		c.User = short
		x, _, err := l.k.Connect(7, 0, c) // SRPT serves another host's message first
		if err != nil {
			t.Fatal(err)
		}
		began := l.eng.Now()
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 5000})
		l.eng.Drain()
		if l.check(); long.sends != 7 || short.sends != 1 {
			t.Fatalf("%d and %d done", long.sends, short.sends)
		}
		took[limited] = short.last - began
	}
	if took[true] > 10*engine.Microsecond || took[false] < 2*took[true] {
		t.Errorf("a short message takes %d ns with one class, %d with two", took[false]/engine.Nanosecond, took[true]/engine.Nanosecond)
	}
}
