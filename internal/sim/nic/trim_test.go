package nic

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// observer calls functions for the events of a queue pair and the packets of a link.
type observer struct {
	event func(qp.TraceEvent)
	sent  func(*fabric.Packet)
}

func (o observer) Trace(_ mono.Time, e qp.TraceEvent)                   { o.event(e) }
func (o observer) Closed()                                              {}
func (o observer) Sent(_ engine.Time, _ *fabric.Link, p *fabric.Packet) { o.sent(p) }

// TestTrimmedReachesQueuePair: trimmed packets of MRC reach their queue pair, with the headers that trimming leaves and the place
// of trimming. Those for queue pairs that do not exist are stray. Trimmed packets of other transports return to their sender.
func TestTrimmedReachesQueuePair(t *testing.T) {
	const count, mtu, strays = 200, 1000, 20
	for _, c := range []struct {
		name    string
		g       *fabric.Graph
		reason  bth.MRCReason
		profile string
		op      bth.Opcode
	}{
		{"last hop", fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 3), bth.MRCTrimmedLastHop, "mrc",
			bth.TransportMRC | bth.OpWriteMiddle},
		{"earlier", fabric.Dumbbell(fabric.Wires{HostRate: 100 * gig, CoreRate: 10 * gig, Delay: engine.Microsecond}, 2, 1), bth.MRCTrimmed, "mrc",
			bth.TransportMRC | bth.OpWriteMiddle},
		{"other transport", fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 3), 0, "rc", bth.OpWriteLastImm},
	} {
		l := newLab(t, c.g, fabric.SwitchConfig{}, 1)
		sc := fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 20_000}, Port: fabric.PortConfig{Strict: 1 << 7}}
		sc.Trim.Bytes, sc.Trim.Class = 90, 7
		var err error
		var x, y *QP
		l.k, err = NewCluster(&l.eng, Config{MTU: mtu, Network: func(o fabric.Owner) (*fabric.Network, error) {
			return fabric.New(&l.eng, fabric.Config{Graph: c.g, Owner: o, Switch: func(int, int) fabric.SwitchConfig { return sc }})
		}})
		if err != nil {
			t.Fatal(err)
		}
		if x, y, err = l.k.Connect(0, 2, QPConfig{Profile: l.profiles(c.profile, profile.Spec{}), User: new(job)}); err != nil {
			t.Fatal(err)
		}
		trimmed, nacks := uint64(0), 0
		o := observer{func(e qp.TraceEvent) {
			if e.Kind == qp.TraceReceived && !c.op.IsMRC() && len(e.Packet.Payload) == 0 {
				t.Fatalf("%s: the queue pair has received %+v", c.name, e.Packet)
			}
			if e.Kind != qp.TraceReceived || e.Drop != qp.DropLength {
				return
			}
			trimmed++
			if p := e.Packet; p.Opcode != c.op || len(p.Payload) != 0 || p.RETH != (bth.RETH{}) || p.Imm != 0 {
				t.Fatalf("%s: %+v", c.name, p)
			}
		}, func(d *fabric.Packet) {
			if p, _, _ := l.k.Packet(d); p.Opcode.IsNACK() {
				nacks++
				if h := p.NETH; h.Entropy != 77 || h.Reason != c.reason {
					t.Fatalf("%s: %+v", c.name, h)
				}
			}
		}}
		y.Trace(o)
		y.nic.link.Tap = o
		for i := range 2 * count {
			ref, p := l.k.slab.take()
			l.k.slab.pack(p, &qp.Transmit{Path: 77, Packet: bth.Packet{Opcode: c.op, DestQP: x.Peer(), PSN: bth.MakePSN(uint32(i)), Imm: 9,
				RETH: bth.RETH{VA: 5, Length: 10 * mtu}, Payload: make([]byte, mtu)}}, true)
			p.bytes = 1100
			d := l.k.fab.NewPacket()
			*d = fabric.Packet{Ref: ref, Bytes: p.bytes, Src: uint32(i % 2), Dst: 2, QP: uint32(p.destQP)}
			if i >= 2*count-strays {
				d.QP++
			}
			l.k.nics[i%2].giveBack(l.eng.Now(), d)
		}
		l.eng.Run(engine.Second)
		mrc := c.op.IsMRC()
		if (nacks > 0) != mrc || l.k.Cut() == 0 || l.k.Stray() == 0 || mrc && l.k.Cut() != trimmed {
			t.Errorf("%s: %d trimmed packets delivered, %d NACKs, %d cut, %d stray", c.name, trimmed, nacks, l.k.Cut(), l.k.Stray())
		}
		l.check()
	}
}
