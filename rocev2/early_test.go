package rocev2_test

import (
	"testing"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestPostedTooEarly: send requests posted before RTS are rejected (IBTA vol.1 10.3.1). They do not run later, with
// or without a doorbell, and occupy no places.
func TestPostedTooEarly(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		for _, bell := range []bool{true, false} {
			p := nictest.New(t, nictest.Options{Seed: 1})
			a, b := p.A.QP(nictest.Type(typ)), p.B.QP(nictest.Type(typ))
			src, dst := p.A.Buffer(64), p.B.Buffer(64)
			post := func(id uint64) {
				w := nictest.Write(id, dst.At(0), src.SGE())
				if bell || a.State() == qp.RTS {
					a.Post(w)
				} else if err := a.SQ.Post(w); err != nil {
					t.Fatal(err)
				}
				p.Run(time.Millisecond)
			}
			steps := []func(){func() {}, a.Init, func() { b.Init(); b.RTR(a); b.RTS(); a.RTR(b) }}
			for i, step := range steps {
				step()
				post(uint64(i))
			}
			a.RTS()
			post(9)
			a.WaitSend(9)
			if a.SendCQ.Len() != 0 || a.SQ.Outstanding() != 0 || p.B.Counter("rx_write_requests") != 1 {
				t.Errorf("%v, bell %v: %d completions more, %d places taken, %d WRITEs", typ, bell, a.SendCQ.Len(),
					a.SQ.Outstanding(), p.B.Counter("rx_write_requests"))
			}
		}
	}
}
