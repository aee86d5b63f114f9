package qp

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// TestPeerWindow: the window halves once for the losses of a flight behind a queue, and not for losses without a queue.
// It grows by a packet per window while it is used.
func TestPeerWindow(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	at := mono.Time(time.Second)
	for _, c := range []struct {
		name string
		do   func(p *Peer)
		want uint32
	}{
		{"a loss on an idle link", func(p *Peer) { p.onLoss(at, 300*us) }, 400},
		{"a loss behind a queue", func(p *Peer) { p.onLoss(at, 5*ms) }, 200},
		{"of the same flight", func(p *Peer) { p.onLoss(at, 5*ms); p.onLoss(at.Add(4*ms), 5*ms) }, 200},
		{"of the next flight", func(p *Peer) { p.onLoss(at, 5*ms); p.onLoss(at.Add(5*ms), 5*ms) }, 100},
		{"after a slow round trip", func(p *Peer) { p.onAck(at, 1, 5*ms); p.onLoss(at.Add(4*ms), 10*us) }, 200},
		{"long after a slow round trip", func(p *Peer) { p.onAck(at, 1, 5*ms); p.onLoss(at.Add(5*ms), 10*us) }, 400},
		{"with half outstanding", func(p *Peer) { p.update(400, 200); p.onLoss(at, 5*ms) }, 100},
		{"at the least", func(p *Peer) { p.update(400, 10); p.onLoss(at, 5*ms) }, minReducedWindow},
		{"growth", func(p *Peer) { p.onLoss(at, 5*ms); p.onAck(at, 200, 0) }, 201},
		{"growth without use", func(p *Peer) { p.onLoss(at, 5*ms); p.update(400, 99); p.onAck(at, 200, 0) }, 200},
		{"growth to the most", func(p *Peer) { p.onAck(at, 400, 0) }, 400},
	} {
		p := NewPeer(400, false, new(Contention))
		p.onAck(at.Add(-time.Second), 1, 100*us)
		p.update(0, 400)
		if c.do(p); p.window != c.want {
			t.Errorf("%s: a window of %d packets, want %d", c.name, p.window, c.want)
		}
	}
}

// TestPeerShare: queue pairs with outstanding packets share the window equally.
func TestPeerShare(t *testing.T) {
	p := NewPeer(400, false, new(Contention))
	for _, c := range []struct{ before, after, share, sum uint32 }{
		{0, 0, 400, 0}, {0, 300, 400, 300}, {0, 7, 200, 307}, {7, 8, 200, 308}, {300, 0, 400, 8}, {8, 0, 400, 0},
	} {
		if p.update(c.before, c.after); p.share() != c.share || p.sent != c.sum {
			t.Errorf("%+v: a share of %d, %d packets outstanding", c, p.share(), p.sent)
		}
	}
	if p.active = 1000; p.share() != 1 {
		t.Errorf("a share of %d for 1000 queue pairs", p.share())
	}
}
