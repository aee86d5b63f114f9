package nictest

import (
	"fmt"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// backlog is a client that keeps many bytes outstanding, and another one that writes 1 KiB to the same address, one WRITE
// after another.
type backlog struct {
	from   *Node // sends the bytes
	victim *QP
	write  qp.SendWQE
	to     bth.QPN // of the victim
	behind int     // bytes of the backlog that have left since the victim posted
	most   int     // bytes of the backlog in front of a packet of the victim
	writes int
}

// hook counts the bytes in front of each packet of the victim: those that left first after its post, and those on the way.
func (b *backlog) hook(f *Flight) Fate {
	var pkt bth.Packet
	if f.From != b.from || !f.RoCE(&pkt) {
		return Fate{}
	}
	if pkt.DestQP != b.to {
		b.behind += len(f.Frame)
		return Fate{}
	}
	b.most = max(b.most, b.behind)
	return Fate{}
}

// next posts the next WRITE of the victim if the last one has completed.
func (b *backlog) next() {
	if _, ok := b.victim.SendCQ.Poll(); !ok && b.writes > 0 {
		return
	}
	b.writes++
	b.behind = 0
	for _, a := range b.from.pair.link {
		if a.f.From == b.from {
			b.behind += len(a.f.Frame)
		}
	}
	b.victim.Post(b.write)
}

// TestBacklog: one client has 32 MiB outstanding on any number of queue pairs. A packet of another client of the same user
// finds less than a client's window and its last turn in front of it, in the NIC and on the way. The link stays busy.
func TestBacklog(t *testing.T) {
	const total, message, rate = 32 << 20, 64 << 10, 20_000_000_000
	const most = 384<<10 + 128<<10
	for _, k := range []int{1, 16, 64, 256} {
		for _, op := range []qp.WROpcode{qp.WRWrite, qp.WRRead} {
			t.Run(fmt.Sprintf("%d queue pairs, opcode %d", k, op), func(t *testing.T) {
				p := New(t, Options{Seed: 1, Rate: rate, Limit: time.Minute,
					Offload: rocev2.Offload{MaxSegments: 128, MaxBytes: 1 << 16}, Config: func(c *rocev2.Config) { c.PeerWindow = 8192 }})
				client := func(id uint64) Option {
					return func(o *QPOptions) {
						o.Share, o.MTU, o.Depth, o.Timeout, o.RdAtomic = rocev2.Share{Client: id}, 5, total/message, 14, 16
					}
				}
				victim, peer := p.RC(client(1))
				src, dst := p.A.Buffer(message), p.B.Buffer(message)
				b := &backlog{from: p.A, victim: victim, to: peer.Num(), write: Write(1, dst.At(0), src.Part(0, 1024))}
				if op == qp.WRRead { // its data comes from the other side
					b = &backlog{from: p.B, victim: peer, to: victim.Num(), write: Write(1, src.At(0), dst.Part(0, 1024))}
				}
				b.victim.Post(b.write)
				b.victim.WaitSend(1)
				var all []*QP
				for range k {
					a, _ := p.RC(client(2))
					all = append(all, a)
				}
				p.SetHook(b.hook)
				began := p.Now()
				for i := range total / message {
					all[i%k].Post(remote(1, op, dst.At(0), []qp.SGE{src.SGE()}))
				}
				p.RunUntil(func() bool {
					b.next()
					n := 0
					for _, a := range all {
						n += a.SQ.Outstanding()
					}
					return n == 0
				}, 10*time.Second)
				took, best := p.Now().Sub(began), time.Duration(8*total*int64(time.Second)/rate)
				t.Logf("%v for %v of data, %d WRITEs, at most %d bytes in front", took, best, b.writes, b.most)
				if took > best*21/20 || b.most > most || b.writes < 20 {
					t.Errorf("want at most %v and %d bytes", best*21/20, most)
				}
			})
		}
	}
}

// TestSilentQueuePair: queue pairs whose peers have gone and that never time out delay another one of their client, by no
// more than the client's patience.
func TestSilentQueuePair(t *testing.T) {
	const size = 1 << 20
	p := New(t, Options{Seed: 1, Rate: 20_000_000_000, Limit: time.Minute})
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	never := func(o *QPOptions) { o.Timeout = 0 }
	for range 8 {
		a, b := p.RC(never)
		b.Modify(qp.Attr{State: qp.Err}, 0, nil)
		a.Post(Write(1, dst.At(0), src.SGE()))
	}
	a, _ := p.RC(never)
	began := p.Now()
	a.Post(Write(1, dst.At(0), src.SGE()))
	if a.WaitSend(1); p.Now().Sub(began) > 100*time.Millisecond {
		t.Errorf("a WRITE of 1 MiB takes %v", p.Now().Sub(began))
	}
}
