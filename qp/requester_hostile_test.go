package qp

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// orderHost checks that each request completes once, in order.
type orderHost struct {
	*scriptHost
	t    *rapid.T
	next uint64
}

func (h *orderHost) CompleteSend(c CQE) {
	if c.WRID != h.next {
		h.t.Fatalf("completion of %d, expected %d", c.WRID, h.next)
	}
	if h.next++; h.next > uint64(h.taken) {
		h.t.Fatalf("completion of %d, which was not taken", c.WRID)
	}
}

func (h *orderHost) Notify(Event) {}

// hostile is a queue pair whose client, peer and memory behave arbitrarily.
type hostile struct {
	t   *rapid.T
	q   *QP
	h   *orderHost
	now mono.Time
	tr  Transmit
}

// TestHostileClientAndPeer drives client, peer and time at random. The queue pair must not panic or spin, and must
// complete each accepted request once.
func TestHostileClientAndPeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]Type{RC, RC, UC, UD}).Draw(t, "type")
		s := &hostile{t: t, h: &orderHost{scriptHost: newScriptHost(4096), t: t}}
		s.h.quiet = true
		limits := []uint64{ccalgo.Unlimited, 0, 1, 1000, 1_000_000_000}
		s.q = New(Config{Tuning: Software,
			Type: typ, QPN: 17, Host: s.h, SigAll: true,
			MaxSendWR: rapid.Uint32Range(0, 9).Draw(t, "wr"), MaxSendSGE: 3, MaxInline: 300,
			MaxUnacked: rapid.Uint32Range(0, 12).Draw(t, "unacked"),
			Profile: Profile{Controller: ccalgo.NewStatic(
				rapid.SampledFrom(limits).Draw(t, "window"), rapid.SampledFrom(limits).Draw(t, "rate"))},
		})
		if err := toRTS(s.q, Attr{
			PathMTU: 1, SQPSN: 0xfffff0, Timeout: 3, RetryCnt: 7, RNRRetry: rapid.SampledFrom([]uint8{2, 7}).Draw(t, "rnr"),
			MaxRdAtomic: rapid.Uint8Range(0, 3).Draw(t, "rd"),
		}); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"post": s.post, "poll": s.poll, "flushed": s.flushed, "receive": s.receive, "receive2": s.receive,
			"wait": s.wait, "modify": s.modify, "revoke": s.revoke, "": s.check,
		})
		s.q.enterError(s.now)
		for s.q.PollTransmit(s.now, &s.tr) {
			t.Fatal("sends in ERR")
		}
		for s.q.Doorbell(s.now); s.q.NextTimeout() <= s.now; {
			s.q.OnTimeout(s.now)
		}
		if int(s.h.next) != len(s.h.queue) || s.h.retired != len(s.h.queue) {
			t.Fatalf("%d completed and %d retired of %d", s.h.next, s.h.retired, len(s.h.queue))
		}
	})
}

func (s *hostile) post(t *rapid.T) {
	w := SendWQE{
		WRID:   uint64(len(s.h.queue)),
		Opcode: WROpcode(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10}).Draw(t, "op")),
		Flags:  SendFlags(rapid.SampledFrom([]int{0, 0, 2, 1, 4, 8}).Draw(t, "flags")),
		Imm:    rapid.Uint32Range(0, 5).Draw(t, "imm"),
	}
	size := rapid.SampledFrom([]uint32{0, 1, 8, 255, 256, 257, 700, 1 << 31}).Draw(t, "size")
	for range rapid.SampledFrom([]int{1, 1, 1, 0, 3, 4}).Draw(t, "sges") {
		w.SGEs = append(w.SGEs, SGE{Addr: memBase + rapid.Uint64Range(0, 4000).Draw(t, "addr"), Length: size, LKey: 1})
		w.Length += size
	}
	if w.Flags&SendInline != 0 {
		w.Inline = make([]byte, min(size, 400))
	}
	if rapid.IntRange(0, 20).Draw(t, "lie") == 0 {
		w.Length++
	}
	if w.Opcode >= WRLocalInv && w.Opcode <= WRBindMW {
		w.Bind.RKey = w.Imm
	}
	s.h.queue = append(s.h.queue, w)
	s.q.Doorbell(s.now)
}

func (s *hostile) poll(t *rapid.T) {
	for range rapid.IntRange(1, 10).Draw(t, "n") {
		if !s.q.PollTransmit(s.now, &s.tr) {
			break
		}
	}
}

func (s *hostile) flushed(*rapid.T) { s.q.Flushed(s.now) }

func (s *hostile) receive(t *rapid.T) {
	r := &s.q.req
	p := bth.Packet{
		Opcode: bth.Opcode(rapid.SampledFrom([]int{0x11, 0x11, 0x12, 0x0d, 0x0e, 0x0f, 0x10, 0x31}).Draw(t, "opcode")),
		PSN:    r.una.Add(rapid.IntRange(-2, int(r.outstanding())+1).Draw(t, "psn")),
		AETH: bth.AETH{Syndrome: bth.Syndrome(rapid.SampledFrom([]int{
			0x1f, 0x1f, 0x1f, 0x1f, 0x60, 0x60, 0x21, 0x61, 0x62, 0x63, 0x64, 0x40, 0xff,
		}).Draw(t, "syndrome"))},
		Payload: make([]byte, rapid.SampledFrom([]int{256, 256, 0, 188, 1, 8, 5000}).Draw(t, "len")),
	}
	s.q.Receive(s.now, &p, RxMeta{})
}

func (s *hostile) wait(t *rapid.T) {
	s.now = s.now.Add(time.Duration(rapid.IntRange(0, 50_000).Draw(t, "ns")))
	if s.now >= s.q.NextTimeout() {
		s.q.OnTimeout(s.now)
	}
}

func (s *hostile) modify(t *rapid.T) {
	to := rapid.SampledFrom([]State{RTS, RTS, SQD, SQD, RTR}).Draw(t, "to")
	_ = s.q.Modify(s.now, Attr{State: to, EnSQDNotify: true}, AttrState)
}

func (s *hostile) revoke(t *rapid.T) {
	s.h.revoked[1] = rapid.IntRange(0, 5).Draw(t, "gone") == 0
}

// check polls until the queue pair has nothing to send. Then the next timeout must lie in the future, or the daemon
// would spin.
func (s *hostile) check(*rapid.T) {
	for range 3 + len(s.h.queue) {
		n := 0
		for s.q.PollTransmit(s.now, &s.tr) {
			if n++; n > 10_000 {
				s.t.Fatal("never stops sending")
			}
		}
		s.q.Flushed(s.now)
		if s.now < s.q.NextTimeout() {
			return
		}
		s.q.OnTimeout(s.now)
	}
	s.t.Fatalf("spins at %d: next timeout %d, state %v, %+v", s.now, s.q.NextTimeout(), s.q.State(), s.q.req.pace)
}
