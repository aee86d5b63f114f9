package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// TestContention: clients contend for a while after their frames.
func TestContention(t *testing.T) {
	const ms = time.Millisecond
	var c Contention
	x := NewClient(NewPeer(0, false, &c))
	at := mono.Time(time.Second)
	for i, f := range []struct {
		after  time.Duration
		client uint64
		want   bool
	}{
		{0, 1, false}, {ms, 1, false}, {99 * ms, 2, true}, {50 * ms, 2, true}, {50 * ms, 2, false}, {99 * ms, 1, true},
		{100 * ms, 2, false}, {100 * ms, 1, false},
	} {
		at = at.Add(f.after)
		if c.Used(at, f.client); x.contended(at) != f.want {
			t.Errorf("frame %d: contended %v", i, !f.want)
		}
	}
}

// contended is queue pairs of two clients towards one peer.
type contended struct {
	pairs   []*pair
	clients [2]*Client
	rng     *rand.Rand
	now     mono.Time
}

func newContended(t *testing.T, seed uint64) *contended {
	c := &contended{rng: rand.New(rand.NewPCG(seed, 1))}
	peer := NewPeer(0, false, new(Contention))
	for i := range c.clients {
		c.clients[i] = NewClient(peer)
	}
	for i := range 20 {
		p := newPair(t, pairConfig{psn: c.rng.Uint32(), rd: 4, timeout: 10, retry: 3, rnrRetry: 3})
		p.ends[0].q.SetPeer(p.now, c.clients[i%2])
		loss := []int{0, 0, 50, 500}[c.rng.IntN(4)] // per mille
		p.faults = func(int, *bth.Packet) fault { return fault{drop: c.rng.IntN(1000) < loss} }
		c.pairs = append(c.pairs, p)
	}
	return c
}

// step changes a random queue pair, or posts to it, and moves it to its next event.
func (c *contended) step(t *testing.T, i int) {
	p := c.pairs[i]
	q := p.ends[0].q
	p.now, c.now = max(p.now, c.now), max(p.now, c.now)
	q.peerOf().contention.Used(c.now, uint64(i%2))
	if h := p.ends[0].h; q.sending() && len(h.queue)-h.retired < 3 {
		n := uint32(c.rng.IntN(64 << 10))
		w := SendWQE{Opcode: []WROpcode{WRWrite, WRRead}[c.rng.IntN(2)], Length: n, RemoteVA: memBase, RKey: 5, SGEs: []SGE{{memBase, n, 1}}}
		h.queue = append(h.queue, w)
		q.Doorbell(c.now)
	}
	switch c.rng.IntN(100) {
	case 0:
		q.Modify(c.now, Attr{State: Err}, AttrState)
	case 1:
		q.Modify(c.now, Attr{State: Reset}, AttrState)
		q.SetPeer(c.now, nil)
	case 2:
		q.SetPeer(c.now, nil)
		q.SetPeer(c.now, c.clients[c.rng.IntN(2)])
	}
	c.check(t)
	if q.Waits() && c.rng.IntN(2) == 0 {
		q.BeginTurn()
	}
	if p.send(); p.next() < c.now.Add(100*time.Microsecond) || c.rng.IntN(50) == 0 { // lossy queue pairs must not drive the time
		p.step()
		c.now, p.trace = p.now, nil
	}
}

// peerOf returns the peer of q, or one without contention.
func (q *QP) peerOf() *Peer {
	if q.peering == nil {
		return NewPeer(0, false, new(Contention))
	}
	return q.peering.Peer
}

// check compares the counts with the queue pairs. It returns the outstanding bytes.
func (c *contended) check(t *testing.T) (total int64) {
	var sent [2]int64
	for _, p := range c.pairs {
		q := p.ends[0].q
		f := q.peering
		if f == nil {
			continue
		}
		if f.counted != 0 && !q.sending() {
			t.Fatalf("a broken queue pair counts %d packets", f.counted)
		}
		for i, x := range c.clients {
			if f.Client == x {
				sent[i] += int64(f.counted) << f.shift
			}
		}
	}
	active := 0
	for i, x := range c.clients {
		if x.sent != sent[i] || x.expired < 0 || x.expired > x.sent {
			t.Fatalf("client %d counts %d sent, %d ignored; its queue pairs have %d", i, x.sent, x.expired, sent[i])
		}
		if x.sent > 0 {
			active++
		}
		total += sent[i]
	}
	if c.clients[0].clients != active {
		t.Fatalf("%d active clients, want %d", c.clients[0].clients, active)
	}
	return total
}

// TestClientBytes: whatever happens to queue pairs, a client counts their outstanding bytes exactly, and none in the end.
func TestClientBytes(t *testing.T) {
	waited := 0
	for seed := range uint64(4) {
		c := newContended(t, seed)
		for range 500 {
			i := c.rng.IntN(len(c.pairs))
			c.step(t, i)
			if c.pairs[i].ends[0].q.Waits() {
				waited++
			}
			c.check(t)
		}
		for i := range c.pairs {
			for n := 0; c.pairs[i].step(); n++ {
				if n > 100_000 {
					t.Fatalf("seed %d: never ends", seed)
				}
				c.check(t)
			}
		}
		if n := c.check(t); n != 0 {
			t.Fatalf("seed %d: %d bytes in the end", seed, n)
		}
	}
	if waited < 100 {
		t.Errorf("only %d waits for a turn", waited)
	}
}
