package qp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
)

// TestLinkOverhead: pacing includes the link's overhead per frame.
func TestLinkOverhead(t *testing.T) {
	for overhead, bytes := range map[int8]int{-1: 58, 0: 58 + 24, 6: 58 + 6} {
		q, h := newAt(t, RC, RTS)
		q.cfg.Tuning.LinkOverhead = overhead
		if next, want := pacedSend(t, q, h), mono.Time(bytes*8*1000); next != want {
			t.Errorf("overhead %d: next at %d, want %d", overhead, next, want)
		}
	}
}

// TestLateCall: a paced queue pair that is called late catches up as far as its credit allows.
func TestLateCall(t *testing.T) {
	for credit, want := range map[time.Duration]int{0: 1, time.Millisecond: 1 + 2, time.Second: 1 + 10} {
		q, h := newAt(t, RC, RTS)
		q.cfg.Tuning.PacerCredit = credit
		if err := q.Modify(0, Attr{RateLimit: 1000}, AttrRateLimit); err != nil { // a packet takes 464 us
			t.Fatal(err)
		}
		var tr Transmit
		poll := func(now mono.Time) (n int) {
			for q.PollTransmit(now, &tr) {
				n++
			}
			return n
		}
		for range 12 {
			h.queue = append(h.queue, SendWQE{Opcode: WRSend})
		}
		if n := poll(0); n != 1 {
			t.Fatalf("%d packets at once", n)
		}
		if n := poll(q.NextTimeout() + 10*464_000); n != want {
			t.Errorf("credit %v: %d packets, want %d", credit, n, want)
		}
	}
}

// seeded is a path selection that records its seed.
type seeded struct {
	path.Single
	seed uint64
}

func (s *seeded) Reset(start path.Start) { s.seed = start.Seed }

// TestPathSeed: the given seed determines random paths; by default QPN and PSN do. Requests and responses have
// different seeds.
func TestPathSeed(t *testing.T) {
	seeds := func(seed uint64, qpn bth.QPN, psn uint32) [2]uint64 {
		var s [2]seeded
		p := irn(nil)
		p.Paths, p.ResponsePaths = &s[0], &s[1]
		q := New(Config{Type: RC, QPN: qpn, Host: newScriptHost(64), MaxSendWR: 4, MaxSendSGE: 1, Profile: p, Tuning: Tuning{PathSeed: seed}})
		if err := toRTS(q, Attr{PathMTU: 1, DestQPN: 1, SQPSN: psn, RQPSN: psn}); err != nil {
			t.Fatal(err)
		}
		return [2]uint64{s[0].seed, s[1].seed}
	}
	given := seeds(7, 20, 100)
	if given[0] != 7 || given[1] == 7 {
		t.Errorf("seeds %x", given)
	}
	if other := seeds(7, 21, 200); other != given {
		t.Errorf("seeds %x of another queue pair, want %x", other, given)
	}
	of := seeds(0, 20, 100)
	if of != seeds(0, 20, 100) || of == seeds(0, 21, 100) || of == seeds(0, 20, 101) || of[0] == of[1] {
		t.Errorf("seeds %x are not of QPN and PSN", of)
	}
}

// TestPhantom: phantom packets leave at the same times and describe the same as real ones, but no payload is copied.
func TestPhantom(t *testing.T) {
	profiles := map[string]func() Profile{"rc": nil, "melo": extended["melo"], "eunomia": extended["eunomia over selective repeat"]}
	for name, profile := range profiles {
		t.Run(name, func(t *testing.T) {
			run := func(phantom bool) *pair {
				c := lossless
				c.timeout, c.profile, c.phantom = 9, profile, phantom
				p := newPair(t, c)
				p.faults = func(n int, _ *bth.Packet) fault { return fault{drop: n%13 == 5} }
				mixed(p, 0)
				mixed(p, 1)
				p.run(t)
				return p
			}
			real, phantom := run(false), run(true)
			if !slices.Equal(real.trace, phantom.trace) {
				t.Errorf("with content:\n%s\nwithout:\n%s", real.tail(), phantom.tail())
			}
			for i := range real.ends {
				if a, b := real.ends[i].h, phantom.ends[i].h; !slices.Equal(a.sendCQ, b.sendCQ) || !slices.Equal(a.recvCQ, b.recvCQ) {
					t.Errorf("end %d: completions %+v and %+v, want %+v and %+v", i, b.sendCQ, b.recvCQ, a.sendCQ, a.recvCQ)
				}
			}
		})
	}
	c := lossless
	c.phantom = true
	p := newPair(t, c)
	l := newWorkload(p, 0)
	l.add(WRWrite, 200, 0, rand.New(rand.NewPCG(1, 1))) // of two elements
	o := l.ops[0]
	p.faults = func(_ int, k *bth.Packet) fault {
		if k.Opcode.IsWrite() && bytes.Equal(k.Payload, o.expected) {
			t.Error("a list was gathered")
		}
		return fault{}
	}
	p.run(t)
	if data := []byte{1, 2, 3}; &p.ends[0].q.retain(data, make([]byte, 0, 8))[0] != &data[0] {
		t.Error("data that wait are copied")
	}
}

// TestZeroTuning: zero tuning behaves like hardware: each message requests an acknowledgement, which leaves at once.
// With the daemon's tuning only some messages do, and acknowledgements leave after data.
func TestZeroTuning(t *testing.T) {
	for _, c := range []struct {
		name   string
		tuning Tuning
		asks   int  // of eight messages
		first  bool // the acknowledgement leaves first
	}{{"zero", Tuning{}, 8, true}, {"daemon", Software, 4, false}} {
		t.Run(c.name, func(t *testing.T) {
			conf := lossless
			conf.timeout, conf.tuning = 9, &c.tuning
			p := newPair(t, conf)
			a := newWorkload(p, 0)
			for range 8 {
				a.add(WRWrite, 512, 0, rand.New(rand.NewPCG(1, 1)))
			}
			asks := 0
			p.faults = func(_ int, k *bth.Packet) fault {
				if k.Opcode.IsWrite() && k.Opcode.Ends() && k.AckReq {
					asks++
				}
				return fault{}
			}
			p.step()
			b := newWorkload(p, 1)
			b.add(WRWrite, 100, 0, rand.New(rand.NewPCG(1, 1)))
			p.faults = func(n int, k *bth.Packet) fault {
				if n == 16 && k.Opcode.IsAck() != c.first {
					t.Errorf("the first to leave is %v", k.Opcode)
				}
				return fault{}
			}
			p.run(t)
			a.verify(t)
			b.verify(t)
			if asks != c.asks {
				t.Errorf("%d messages ask for an acknowledgement, want %d", asks, c.asks)
			}
		})
	}
	c := lossless
	c.timeout, c.tuning = 9, &Tuning{}
	for name, profile := range extended {
		c.profile = profile
		p := newPair(t, c)
		p.faults = func(n int, _ *bth.Packet) fault {
			return fault{drop: n%17 == 3, delay: time.Duration(n%3) * time.Microsecond}
		}
		a, b := mixed(p, 0), mixed(p, 1)
		p.run(t)
		if a.verify(t); !t.Failed() {
			b.verify(t)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestRateLimitAttribute(t *testing.T) {
	q, h := newAt(t, RC, RTS)
	if next, want := pacedSend(t, q, h), mono.Time(58*8*1000); next != want {
		t.Fatalf("next at %d, want %d", next, want)
	}
}

// pacedSend makes q send the first of two SENDs at 1 Mb/s. It returns the time at which the second may leave.
func pacedSend(t *testing.T, q *QP, h *scriptHost) mono.Time {
	t.Helper()
	if err := q.Modify(0, Attr{RateLimit: 1000}, AttrRateLimit); err != nil {
		t.Fatal(err)
	}
	h.queue = append(h.queue, SendWQE{Opcode: WRSend}, SendWQE{Opcode: WRSend})
	var tr Transmit
	if !q.PollTransmit(0, &tr) || q.PollTransmit(0, &tr) {
		t.Fatal("not paced")
	}
	return q.NextTimeout()
}
