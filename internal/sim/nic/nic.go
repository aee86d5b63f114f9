package nic

import (
	"math/bits"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
)

// NIC is the endpoint of one host. When its link is free, it polls its queue pairs in turns for a packet; it hands
// arriving packets to them.
type NIC struct {
	k     *part
	host  uint32
	link  *fabric.Link // of the first port
	ports []port       // by plane; nil: one port

	qps       []*QP // by slot number
	unused    []uint32
	turns     sched.Scheduler[*QP]
	deadlines sched.Deadlines[*QP]
	timer     engine.Timer
	left      *QP                       // its packet is leaving
	waiting   [fabric.Classes][]*QP     // by class: queue pairs that hold a packet of a paused class
	waits     uint8                     // bit mask of the classes with waiting queue pairs
	returns   ring.Ring[*fabric.Packet] // trimmed packets to send, in either direction
	cut       ring.Ring[*fabric.Packet] // trimmed packets that wait to be returned
	pullTimer engine.Timer
	nextPull  engine.Time
	meta      qp.RxMeta
	asked     *mrc.Requests // nil: none so far
	used      []engine.Time // by slot number: when the queue pair was last used; nil: not recorded
	contexts  contexts
	returned  []ccalgo.Telemetry // by slot number, as far as there is any: of the latest request, for the next acknowledgement
}

// grh precedes the payload of datagrams (IBTA annex A17).
var grh [40]byte

func (n *NIC) init(k *part, host uint32) {
	n.k, n.host = k, host
	if k.cfg.Planes > 1 {
		n.attach()
	} else {
		n.link = k.all.net.Attach(int(host), n)
	}
	n.turns.Init(k.cfg.MTU + encapsulation + linkBytes + bth.BTHLen + bth.XETHMaxLen)
	n.timer.Init(n, whatDeadline)
	n.pullTimer.Init(n, whatPull)
	n.contexts.timer.Init(n, whatFetch)
}

// Next implements fabric.Source; the link is free.
func (n *NIC) Next(now engine.Time, paused uint8) (d *fabric.Packet, more bool) {
	m := now.Mono()
	if n.left != nil {
		n.left.core.Flushed(m)
		n.wake(n.left)
		n.left = nil
	}
	if resumed := n.waits &^ paused; resumed != 0 {
		n.resume(resumed)
	}
	if n.returns.Len() > 0 {
		if d := *n.returns.Oldest(); paused>>d.Class&1 == 0 {
			n.returns.Head++
			return d, true
		}
	}
	if now < n.contexts.ready {
		return nil, false
	}
	for turn := n.turns.Next(); turn != nil; turn = n.turns.Next() {
		q := turn.Item
		if !q.holding && !n.poll(m, q) {
			n.turns.Remove(turn)
			n.rearm(now, q)
			continue
		}
		if paused>>q.class&1 != 0 {
			n.turns.Remove(turn)
			n.waiting[q.class] = append(n.waiting[q.class], q)
			n.waits |= 1 << q.class
			continue
		}
		if !n.holds(now, q) {
			return nil, false
		}
		q.holding = false
		n.note(now, q)
		d = n.describe(q, n.k.slab.at(q.held))
		turn.Charge(int(d.Bytes))
		if n.turns.Yield(turn) {
			n.rearm(now, q)
		}
		if q.typ != qp.RC {
			n.left = q
		}
		return d, true
	}
	return nil, false
}

// poll requests a packet from q, which then holds it.
func (n *NIC) poll(m mono.Time, q *QP) bool {
	t := &n.k.out
	if !q.core.PollTransmit(m, t) {
		return false
	}
	if t.Packet.Opcode == bth.OpcodeMRCEndpointRequest {
		n.numberRequest(q, &t.Packet)
	}
	ref, p := n.k.slab.take()
	n.k.slab.pack(p, t, q.memory == nil)
	p.src, p.bytes, p.class = n.host, n.k.cfg.Framing.bytes(&t.Packet), n.class(q, p)
	if n.k.slab.telemetry != nil {
		n.instrument(q, ref, p)
	}
	if p.flags&sprayed == 0 {
		p.entropy = uint32(q.port)
	}
	q.held, q.class, q.holding = ref, p.class, true
	return true
}

// class returns the traffic class of a packet of q.
func (n *NIC) class(q *QP, p *parcel) uint8 {
	switch c := &n.k.cfg.Classes; {
	case p.opcode.IsCNP():
		return c.CNP
	case !carriesData(p.opcode) && !c.AckAsData:
		return c.Ack
	case len(c.Limits) == 0:
		return q.traffic
	default:
		return q.traffic + c.above(q.rank(p))
	}
}

// rank returns the bytes that q's requests have left, from the packet p on. Packets that are no requests have none.
func (q *QP) rank(p *parcel) uint32 {
	if !p.opcode.IsRequest() {
		return 0
	}
	return q.sends.remaining(p.psn, q.mtu)
}

// carriesData reports whether packets of op are subject to congestion control.
func carriesData(op bth.Opcode) bool { return op.IsRequest() || op.IsReadResponse() || op.IsProbe() }

// describe returns the descriptor of the packet that q holds.
func (n *NIC) describe(q *QP, p *parcel) *fabric.Packet {
	d := n.k.fab.NewPacket()
	*d = fabric.Packet{Ref: q.held, Bytes: p.bytes, Src: n.host, Dst: q.peerHost, Hash: q.hash,
		QP: uint32(p.destQP), Class: p.class, Rank: q.rank(p)}
	if q.typ == qp.UD {
		d.Dst = p.ah - 1
	}
	if p.flags&sprayed != 0 || q.typ == qp.UD {
		d.Hash = n.k.hash(n.host, d.Dst, p.entropy)
	}
	if q.ecn && carriesData(p.opcode) {
		d.ECN = fabric.ECT
	}
	n.place(d, p)
	return d
}

// resume activates queue pairs that wait for classes which are no longer paused. It does not visit those of other
// classes: under overload thousands wait, and each departing acknowledgement calls Next.
func (n *NIC) resume(classes uint8) {
	n.waits &^= classes
	for ; classes != 0; classes &= classes - 1 {
		w := &n.waiting[bits.TrailingZeros8(classes)]
		for _, q := range *w {
			n.turns.Activate(&q.node)
		}
		clear(*w)
		*w = (*w)[:0]
	}
}

// waitNoMore removes q from the waiting queue pairs.
func (n *NIC) waitNoMore(q *QP) {
	if q.holding && !q.node.Active() {
		w := &n.waiting[q.class]
		*w = slices.DeleteFunc(*w, func(p *QP) bool { return p == q })
	}
}

// Arrive implements fabric.Sink.
func (n *NIC) Arrive(now engine.Time, _ int32, d *fabric.Packet) {
	p := n.k.slab.at(d.Ref)
	if d.Cut() && !p.opcode.IsMRC() {
		n.turnRound(now, d)
		return
	}
	if p.opcode.IsEndpoint() {
		n.endpoint(now, d, p)
		return
	}
	q := n.lookup(d.QP)
	if q == nil {
		n.k.stray++
		n.end(d)
		return
	}
	m := now.Mono()
	n.note(now, q)
	if p.flags&(recorded|returns) != 0 {
		n.instrumented(m, q, d.Ref, p)
	}
	if p.opcode.IsCNP() {
		q.core.OnCNP(m)
	} else {
		n.k.slab.unpack(p, &n.k.in, n.k.zero)
		n.meta.CE, n.meta.Path, n.meta.GRH = d.ECN == fabric.CE, p.entropy, nil
		if q.typ == qp.UD {
			n.meta.GRH = grh[:]
		}
		if d.Cut() {
			n.trimmed(m, q, d.LastHop())
		} else {
			q.core.Receive(m, &n.k.in, n.meta)
		}
	}
	n.end(d)
	n.settle(now, q)
}

// Soon implements fabric.Sink: it prefetches the parcel of p.
func (n *NIC) Soon(p *fabric.Packet) {
	if p.Kind == fabric.Data {
		n.k.slab.soon(p.Ref)
	}
}

// note records that q is in use.
func (n *NIC) note(now engine.Time, q *QP) {
	if n.used != nil {
		n.used[q.num&slotMask] = now
	}
}

// end frees a packet that has arrived.
func (n *NIC) end(d *fabric.Packet) {
	n.k.slab.free(d.Ref)
	n.k.fab.Free(d)
}

// lookup returns the queue pair with a number, nil if there is none.
func (n *NIC) lookup(num uint32) *QP {
	if i := num & slotMask; int(i) < len(n.qps) && n.qps[i] != nil && n.qps[i].num == bth.QPN(num) {
		return n.qps[i]
	}
	return nil
}

// settle follows an input to q.
func (n *NIC) settle(now engine.Time, q *QP) {
	n.wake(q)
	n.wakeLinks(now)
}

// wake activates q if it may have something to send. One that holds a packet waits.
func (n *NIC) wake(q *QP) {
	if !q.holding && q.core.Runnable() {
		n.turns.Activate(&q.node)
	}
}

// rearm takes over the deadline of q, which has had its turn.
func (n *NIC) rearm(now engine.Time, q *QP) {
	due := q.core.NextTimeout()
	n.deadlines.Set(&q.timer, due)
	n.arm(now, due)
}

// arm makes the timer fire no later than due. It may fire early: acknowledgements move deadlines later without
// updating the timer.
func (n *NIC) arm(now engine.Time, due mono.Time) {
	at := engine.FromMono(due)
	if at != engine.Never && (!n.timer.Pending() || at < n.timer.At()) {
		n.k.eng.Set(&n.timer, max(at, now))
	}
}

// Timers of a NIC.
const (
	whatDeadline int32 = iota
	whatPull
	whatFetch
)

// Handle implements engine.Handler.
func (n *NIC) Handle(now engine.Time, what int32) {
	switch what {
	case whatPull:
		n.pull(now)
		return
	case whatFetch:
		n.wakeLinks(now)
		return
	}
	m := now.Mono()
	for t := n.deadlines.Take(m); t != nil; t = n.deadlines.Take(m) {
		q := t.Item
		n.note(now, q)
		q.core.OnTimeout(m)
		if n.wake(q); !q.node.Active() {
			n.deadlines.Set(&q.timer, max(q.core.NextTimeout(), m+1))
		}
	}
	n.arm(now, n.deadlines.Next())
	n.wakeLinks(now)
}
