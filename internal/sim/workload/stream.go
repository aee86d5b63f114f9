package workload

import (
	"math/rand/v2"

	"roced.io/roced/internal/sim/engine"
)

// Stream keeps messages outstanding on a connection of its own during an interval. It needs persistent connections.
type Stream struct {
	From, To    int
	Size        uint32
	Outstanding int         // default 2
	At, Until   engine.Time // Until zero: no end
	Lane        int         // distinguishes streams between the same hosts
	// Fence is the part of the messages, selected at random, that are synchronise operations. StopWait instead
	// posts these when all earlier messages have completed.
	Fence    float64
	StopWait bool
	Seed     uint64
	// Class, Transport and Via as in Flow.
	Class     uint8
	Transport int
	Via       string

	timer engine.Timer
	r     *Runner
	rng   *rand.Rand
	under int
	next  bool // the next message is a synchronise operation
}

// Begin implements App.
func (s *Stream) Begin(_ engine.Time, r *Runner) {
	s.r, s.rng = r, rand.New(rand.NewPCG(s.Seed, uint64(s.Lane)))
	if s.Outstanding == 0 {
		s.Outstanding = 2
	}
	s.draw()
	s.timer.Init(s, 0)
	r.Engine().Set(&s.timer, s.At)
}

// Handle implements engine.Handler.
func (s *Stream) Handle(engine.Time, int32) { s.fill() }

func (s *Stream) draw() { s.next = s.rng.Float64() < s.Fence }

// fill posts messages up to the limit.
func (s *Stream) fill() {
	for s.under < s.Outstanding && !(s.StopWait && s.next && s.under > 0) {
		f := Flow{Src: s.From, Dst: s.To, Bytes: s.Size, App: s, Lane: s.Lane, Fence: s.next && !s.StopWait, Transport: s.Transport, Via: s.Via, Class: s.Class}
		s.under++
		s.draw()
		s.r.Send(f)
	}
}

// Done implements App.
func (s *Stream) Done(now engine.Time, _ *Runner, _ *Flow) {
	if s.under--; s.Until == 0 || now < s.Until {
		s.fill()
	}
}

// Delivered implements App.
func (s *Stream) Delivered(engine.Time, *Runner, *Flow) {}
