package qp

import (
	"math/rand/v2"
	"testing"

	"roced/bth"
	"roced/ccalgo"
)

// TestExtendedTimeoutWindow: after a timeout the oldest packet is sent again although what is
// lost behind it fills the window, which the timeout has narrowed.
func TestExtendedTimeoutWindow(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) {
		for _, op := range []WROpcode{WRWrite, WRRead} {
			profile := c.profile
			c.profile = func() Profile {
				p := profile()
				p.Controller = plugIn(ccalgo.New, "dctcp", nil)
				if p.AnswerControl != nil {
					p.AnswerControl = plugIn(ccalgo.New, "dctcp", nil)
				}
				return p
			}
			p := newPair(t, c)
			n := 0
			p.faults = func(_ int, k *bth.Packet) fault {
				if len(k.Payload) == 0 || k.Ext.Flags&bth.XReTx != 0 {
					return fault{}
				}
				n++
				return fault{drop: n != 2 && n < 12}
			}
			l := newWorkload(p, 0)
			l.add(op, 20*256, 0, rand.New(rand.NewPCG(1, 1)))
			p.run(t)
			l.verify(t)
		}
	})
}
