package nictest

import (
	"fmt"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

const (
	backlogRate    = 20_000_000_000 // bit/s
	backlogMessage = 64 << 10
	backlogTotal   = 32 << 20
)

// backlog is a client that keeps messages outstanding.
type backlog struct {
	qps   []*QP
	posts [][]qp.SendWQE // messages left, by queue pair
	open  []int          // messages outstanding, by queue pair
	ended bool           // one queue pair is done
	left  int            // the most messages of a queue pair then
}

// newBacklog makes a client with total bytes to move on k queue pairs.
func newBacklog(p *Pair, k int, op qp.WROpcode, total int) *backlog {
	b := &backlog{posts: make([][]qp.SendWQE, k), open: make([]int, k)}
	src, dst := p.A.Buffer(backlogMessage), p.B.Buffer(backlogMessage)
	for range k {
		a, _ := p.RC(ofClient(2))
		b.qps = append(b.qps, a)
	}
	for i := range total / backlogMessage {
		b.posts[i%k] = append(b.posts[i%k], remote(1, op, dst.At(0), []qp.SGE{src.SGE()}))
	}
	return b
}

func ofClient(id uint64) Option {
	return func(o *QPOptions) {
		o.Share, o.MTU, o.Depth, o.Timeout, o.RdAtomic = rocev2.Share{Client: id}, 5, backlogTotal/backlogMessage, 14, 16
	}
}

// step keeps depth messages outstanding on each queue pair and reports whether all are done.
func (b *backlog) step(depth int) (done bool) {
	most := 0
	done = true
	for i, q := range b.qps {
		for b.open[i] > 0 {
			if _, ok := q.SendCQ.Poll(); !ok {
				break
			}
			b.open[i]--
		}
		for b.open[i] < depth && len(b.posts[i]) > 0 {
			q.Post(b.posts[i][0])
			b.posts[i] = b.posts[i][1:]
			b.open[i]++
		}
		done = done && b.open[i] == 0
		b.ended = b.ended || b.open[i] == 0
		if n := b.open[i] + len(b.posts[i]); !b.ended {
			most = max(most, n)
		}
	}
	if !b.ended {
		b.left = most
	}
	return done
}

func backlogPair(t *testing.T) *Pair {
	return New(t, Options{Seed: 1, Rate: backlogRate, Limit: time.Minute,
		Offload: link.Offload{MaxSegments: 128, MaxBytes: 1 << 16}, Config: func(c *rocev2.Config) { c.PeerWindow = 8192 }})
}

// beside returns the longest time of a WRITE of 1 KiB of one client, one after another, beside another client with k queue
// pairs and depth messages outstanding on each, and the time that the other client takes.
func beside(t *testing.T, k, depth int, op qp.WROpcode) (longest, took time.Duration) {
	p := backlogPair(t)
	victim, _ := p.RC(ofClient(1))
	src, dst := p.A.Buffer(1024), p.B.Buffer(1024)
	write := Write(1, dst.At(0), src.SGE())
	victim.Post(write)
	victim.WaitSend(1)
	b := newBacklog(p, k, op, backlogTotal)
	for _, q := range b.qps { // a turn that began does not last
		q.Post(Write(1, dst.At(0), src.Part(0, 1)))
		q.WaitSend(1)
	}
	began, posted := p.Now(), mono.Time(0)
	p.RunUntil(func() bool {
		if _, ok := victim.SendCQ.Poll(); ok || posted == 0 {
			if posted != 0 {
				longest = max(longest, p.Now().Sub(posted))
			}
			posted = p.Now()
			victim.Post(write)
		}
		return b.step(depth)
	}, 10*time.Second)
	if each := backlogTotal / backlogMessage / k; b.left > each/2+1 {
		t.Errorf("a queue pair has %d of its %d messages left when the first one is done", b.left, each)
	}
	return longest, p.Now().Sub(began)
}

// TestBacklog: beside a client with 32 MiB outstanding on any number of queue pairs, a WRITE of another client takes at most
// three times as long as beside a queue pair that just saturates the link. The link stays busy.
func TestBacklog(t *testing.T) {
	const best = 8 * backlogTotal * time.Second / backlogRate
	for _, op := range []qp.WROpcode{qp.WRWrite, qp.WRRead} {
		limit, took := beside(t, 1, 2, op)
		limit *= 3
		t.Logf("opcode %d: three times %v; the saturating client takes %v", op, limit/3, took)
		for _, k := range []int{1, 16, 64, 256} {
			t.Run(fmt.Sprintf("%d queue pairs, opcode %d", k, op), func(t *testing.T) {
				longest, took := beside(t, k, backlogTotal/backlogMessage/k, op)
				t.Logf("%v; the client takes %v", longest, took)
				if longest > limit || took > best*21/20 {
					t.Errorf("want at most %v and %v", limit, best*21/20)
				}
			})
		}
	}
}

// TestAloneUnbounded: a client is not bounded while no other client uses the NIC.
func TestAloneUnbounded(t *testing.T) {
	p := backlogPair(t)
	b := newBacklog(p, 16, qp.WRWrite, backlogTotal)
	most := 0
	p.RunUntil(func() bool {
		n := 0
		for _, a := range p.link {
			if a.f.From == p.A {
				n += len(a.f.Frame)
			}
		}
		most = max(most, n)
		return b.step(backlogTotal)
	}, 10*time.Second)
	if most < 4<<20 {
		t.Errorf("%d bytes on the way", most)
	}
}

// silentPair returns a NIC that two clients use, with queue pairs of one of them whose peers have gone and that never time
// out, and another queue pair of it whose WRITE of 1 MiB waits behind theirs.
func silentPair(t *testing.T) (p *Pair, silent []*QP, alive *QP) {
	const size = 1 << 20
	p = New(t, Options{Seed: 1, Rate: backlogRate, Limit: time.Minute})
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	of := func(client uint64) Option {
		return func(o *QPOptions) { o.Timeout, o.Share = 0, rocev2.Share{Client: client} }
	}
	other, _ := p.RC(of(1))
	other.Post(Write(1, dst.At(0), src.Part(0, 1)))
	other.WaitSend(1)
	for range 8 {
		a, b := p.RC(of(2))
		b.Modify(qp.Attr{State: qp.Err}, 0, nil)
		a.Post(Write(1, dst.At(0), src.SGE()))
		silent = append(silent, a)
	}
	alive, _ = p.RC(of(2))
	alive.Post(Write(1, dst.At(0), src.SGE()))
	return p, silent, alive
}

// TestSilentQueuePair: queue pairs without answers delay another one of their client, by little more than its timeout.
func TestSilentQueuePair(t *testing.T) {
	p, _, alive := silentPair(t)
	began := p.Now()
	if alive.WaitSend(1); p.Now().Sub(began) > 50*time.Millisecond {
		t.Errorf("a WRITE of 1 MiB takes %v", p.Now().Sub(began))
	}
}

// TestDestroyedQueuePair: the bytes of destroyed queue pairs no longer count.
func TestDestroyedQueuePair(t *testing.T) {
	p, silent, alive := silentPair(t)
	began := p.Now()
	p.Run(time.Millisecond)
	for _, q := range silent {
		q.Destroy()
	}
	if alive.WaitSend(1); p.Now().Sub(began) > 3*time.Millisecond {
		t.Errorf("a WRITE of 1 MiB takes %v", p.Now().Sub(began))
	}
}

// TestOverdue: a queue pair whose peer is silent, and that never times out, sends again when a client of its own number or
// no other client uses the NIC.
func TestOverdue(t *testing.T) {
	for name, c := range map[string]struct {
		other uint64
		want  time.Duration // of the third message
	}{"alone": {2, time.Millisecond}, "after another client": {1, 150 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			p := New(t, Options{Seed: 1, Rate: backlogRate, Limit: time.Minute})
			src, dst := p.A.Buffer(64), p.B.Buffer(64)
			of := func(client uint64) Option {
				return func(o *QPOptions) { o.Timeout, o.Share = 0, rocev2.Share{Client: client} }
			}
			earlier, _ := p.RC(of(c.other))
			earlier.Post(Write(1, dst.At(0), src.SGE()))
			earlier.WaitSend(1)
			earlier.Destroy()
			a, b := p.RC(of(2))
			b.Destroy()
			sent := func() uint64 { return p.A.Counter("sent_pkts") }
			for i := range 3 {
				a.Post(Write(uint64(i), dst.At(0), src.SGE()))
				p.Run(20 * time.Millisecond)
			}
			before := p.Now()
			p.RunUntil(func() bool { return sent() == 4 }, time.Second)
			if d := p.Now().Sub(before); sent() != 4 || d > c.want {
				t.Errorf("%d packets, the last after %v", sent(), d)
			}
		})
	}
}
