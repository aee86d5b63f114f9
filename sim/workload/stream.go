package workload

import "roced/sim/engine"

// Stream keeps messages outstanding on a connection of its own, from one instant to another one. It
// needs persistent connections.
type Stream struct {
	From, To    int
	Size        uint32
	Outstanding int         // default 2
	At, Until   engine.Time // Until zero: for ever
	Lane        int         // differs from that of other streams between these hosts

	timer engine.Timer
	r     *Runner
}

// Begin implements App.
func (s *Stream) Begin(_ engine.Time, r *Runner) {
	s.r = r
	s.timer.Init(s, 0)
	r.Engine().Set(&s.timer, s.At)
}

// Handle implements engine.Handler.
func (s *Stream) Handle(engine.Time, int32) {
	n := s.Outstanding
	if n == 0 {
		n = 2
	}
	for range n {
		s.send()
	}
}

func (s *Stream) send() {
	s.r.Send(Flow{Src: s.From, Dst: s.To, Bytes: s.Size, App: s, Lane: s.Lane})
}

// Done implements App.
func (s *Stream) Done(now engine.Time, _ *Runner, _ *Flow) {
	if s.Until == 0 || now < s.Until {
		s.send()
	}
}

// Delivered implements App.
func (s *Stream) Delivered(engine.Time, *Runner, *Flow) {}
