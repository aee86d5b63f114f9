package qp

import (
	"math/rand/v2"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
)

// TestExtendedTimeoutWindow: a timeout narrows the window, and lost packets fill it. The oldest packet is
// retransmitted all the same.
func TestExtendedTimeoutWindow(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) {
		for _, op := range []WROpcode{WRWrite, WRRead} {
			profile := c.profile
			c.profile = func() Profile {
				p := profile()
				p.Controller = plugIn(ccalgo.New, "dctcp", nil)
				if p.ResponseControl != nil {
					p.ResponseControl = plugIn(ccalgo.New, "dctcp", nil)
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

// TestExtendedNotReady posts receives late; the sender has no timeout. The receiver drops the packets behind a
// request without a receive. The sender retransmits them together with the request.
func TestExtendedNotReady(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) {
		c.timeout = 0
		p := newPair(t, c)
		l := newWorkload(p, 0)
		rng := rand.New(rand.NewPCG(3, 3))
		for range 6 {
			l.add(WRSend, 600, 0, rng)
			l.add(WRWrite, 600, 0, rng)
			l.add(WRSend, 600, 0, rng)
		}
		h := p.ends[1].h
		recvs := h.recvs
		h.recvs = nil
		for n := 0; p.step(); n++ {
			if n%20 == 19 && len(h.recvs) < len(recvs) {
				h.recvs = recvs[:len(h.recvs)+1]
			}
		}
		l.verify(t)
		if p.ends[0].q.ctr.RcvdRNRErr == 0 {
			t.Error("the receiver was always ready")
		}
	})
}
