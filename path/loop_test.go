package path_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// link is one physical path.
type link struct {
	delay   time.Duration // one way
	perByte float64       // ns; packets queue behind each other
	loss    float64       // share of packets
	dup     float64
	jitter  time.Duration // reorders within the path
	markAt  time.Duration // queue length from which packets are marked with CE; 0: never
	busy    mono.Time
	taken   int // packets carried
}

// pass returns the time at which a packet that arrives at now leaves k. It marks the packet if the queue is long.
func (k *link) pass(now mono.Time, bytes uint32, ce *bool) mono.Time {
	begins := max(k.busy, now)
	*ce = *ce || k.markAt > 0 && begins.Sub(now) > k.markAt
	k.busy = begins.Add(time.Duration(float64(bytes) * k.perByte))
	return k.busy
}

// datagram is a data packet or an acknowledgement in transit.
type datagram struct {
	ack    bool
	psn    bth.PSN
	rtx    bool
	vp     uint32
	sentAt mono.Time
	ce     bool
	f      reorder.Feedback
}

type event struct {
	at  mono.Time
	seq int
	d   datagram
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// loop connects a sender and a receiver, used as the package comment says, by a network of several paths on a virtual
// clock.
type loop struct {
	rng   rand.PCG
	now   mono.Time
	queue events
	seq   int
	links []link
	nic   link // the sender's own link, which all packets pass
	paced bool // no queue at the NIC: the sender builds the next packet when the NIC is free
	mtu   uint32

	rec retrans.Recovery
	sel path.Selector
	ctl ccalgo.Controller

	first   bth.PSN
	total   uint32 // packets to send
	batch   uint32 // packets that the application posts at once, when all are acknowledged
	offered uint32 // packets posted
	sent    uint32
	message uint32 // packets of a message
	syncs   uint32 // each n-th message is a synchronise operation, 0: none
	waiting mono.Time
	early   int // early synchronise packets

	trk      reorder.Tracker
	accepted []bool // by the receiver
	twice    int    // packets accepted more than once: a defect
	ood      []int  // out-of-order degree of arriving packets
	refused  int
	rtx      int
	timeouts int
	steps    int
	check    func() // after every step
}

// mostInNetwork is the number of packets for which the network has room. An unbounded window otherwise fills the memory.
const mostInNetwork = 1 << 16

// newLoop returns a loop that sends total packets, starting with first.
func newLoop(seed uint64, first bth.PSN, total uint32, links []link) *loop {
	l := &loop{first: first, total: total, batch: total, message: total, links: links, mtu: 1024, accepted: make([]bool, total)}
	l.rng.Seed(seed, 1)
	l.check = func() {}
	l.waiting = mono.Never
	return l
}

// plug attaches the four parts and begins the connection.
func (l *loop) plug(trk reorder.Tracker, rec retrans.Recovery, sel path.Selector, ctl ccalgo.Controller, seed uint64) {
	l.trk, l.rec, l.sel, l.ctl = trk, rec, sel, ctl
	l.ctl.Reset(int(l.mtu))
	l.trk.Reset(l.first)
	l.rec.SetTimeout(50 * time.Millisecond) // longer than the maximum queueing delay, or timeouts would trigger timeouts
	l.rec.Reset(l.first)
	l.sel.Reset(path.Start{PSN: l.first, Seed: seed})
}

func (l *loop) chance(p float64) bool { return float64(l.rng.Uint64()>>11)/(1<<53) < p }

// window returns the window of the controller and the recovery, in packets.
func (l *loop) window() path.Window {
	bytes, _ := l.ctl.Limits()
	return path.Window{Packets: uint32(min(bytes/uint64(l.mtu), 1<<20)), InFlight: l.rec.InFlight()}
}

// pump sends packets until the sender blocks.
func (l *loop) pump() {
	for {
		l.waiting = mono.Never
		if l.paced && l.nic.busy > l.now {
			l.waiting = l.nic.busy
			return
		}
		w := l.window()
		if w.Room() == 0 && w.InFlight > 0 {
			return
		}
		vp, ok := l.sel.Next(l.now, w)
		if !ok {
			return
		}
		psn, rtx, ok := l.pick()
		if !ok && l.sent < l.offered {
			return // the sender waits, but not for the application
		}
		if !ok {
			l.shrink(l.sel.Unused())
			return
		}
		l.rec.OnSent(l.now, psn, 1, rtx)
		l.ctl.OnSent(l.now, l.mtu, l.rec.InFlight()*l.mtu)
		l.sel.OnSent(l.now, w)
		l.transmit(datagram{psn: psn, rtx: rtx, vp: vp, sentAt: l.now})
	}
}

// pick returns the next packet to send: a lost, a new or an early one.
func (l *loop) pick() (psn bth.PSN, rtx, ok bool) {
	if psn, rtx = l.rec.NextRetransmit(); rtx {
		l.rtx++
		return psn, true, true
	}
	capped, ok := l.rec.(retrans.Capped)
	if l.sent < l.offered && (!ok || l.outstanding() < capped.Cap()) {
		if at := l.syncAt(); at > l.now {
			l.waiting = at
			return psn, false, false
		}
		l.sent++
		return l.first.Add(int(l.sent) - 1), false, true
	}
	if e, early := l.rec.(retrans.Early); early {
		if psn, ok = e.NextEarly(); ok {
			l.rtx++
			return psn, true, true
		}
	}
	return psn, false, false
}

// outstanding returns the number of sent packets that are not acknowledged in order.
func (l *loop) outstanding() uint32 {
	return (l.first.Uint32() + l.sent - l.rec.Una().Uint32()) & (1<<24 - 1)
}

// syncAt returns the earliest time for the next new packet: the first packet of a synchronise operation waits.
func (l *loop) syncAt() mono.Time {
	y, ok := l.sel.(path.Syncer)
	if !ok || l.syncs == 0 || l.sent%(l.syncs*l.message) != 0 {
		return l.now
	}
	return y.SyncAt(l.window())
}

func (l *loop) shrink(n int) {
	if s, ok := l.ctl.(ccalgo.Shrinker); ok && n > 0 {
		s.Shrink(n)
	}
}

// transmit puts a datagram onto the path of its port. Ports are spread evenly over the paths.
func (l *loop) transmit(d datagram) {
	k := &l.links[int(d.vp)%len(l.links)]
	arrives := l.now
	if !d.ack { // acknowledgements are too small to queue
		k.taken++
		at := l.nic.pass(l.now, l.mtu, &d.ce)
		arrives = k.pass(at, l.mtu, &d.ce)
	}
	if l.chance(k.loss) || len(l.queue) >= mostInNetwork {
		return
	}
	copies := 1
	if l.chance(k.dup) {
		copies = 2
	}
	for range copies {
		at := arrives.Add(k.delay)
		if k.jitter > 0 {
			at = at.Add(time.Duration(l.rng.Uint64() % uint64(k.jitter)))
		}
		l.seq++
		heap.Push(&l.queue, event{at, l.seq, d})
	}
}

// receive implements the responder.
func (l *loop) receive(d datagram) {
	i := uint32(d.psn.Uint32()-l.first.Uint32()) & (1<<24 - 1)
	if a, ok := l.trk.(reorder.Agent); ok {
		a.Announce(l.first, i == l.total-1)
	}
	if !d.rtx {
		l.ood = append(l.ood, max(d.psn.Diff(l.trk.Expected()), 0))
	}
	switch l.accept(d, i) {
	case reorder.InOrder, reorder.Held:
		if l.accepted[i] {
			l.twice++
		}
		l.accepted[i] = true
	case reorder.Beyond, reorder.Refused:
		l.refused++
	}
	var f reorder.Feedback
	l.trk.Feedback(&f)
	f.ECE, f.ReTx, f.VP = d.ce, d.rtx, d.vp
	l.transmit(datagram{ack: true, vp: d.vp, sentAt: d.sentAt, f: f})
}

// accept passes packet i to the tracker, unless the packet belongs to an early synchronise operation.
func (l *loop) accept(d datagram, i uint32) reorder.Verdict {
	v := l.trk.Classify(d.psn)
	if m, ok := l.trk.(*reorder.MPRDMA); ok && l.syncs > 0 && i/l.message%l.syncs == 0 {
		if begin := i - i%l.message; v == reorder.Held && m.Early(l.first.Add(int(begin))) {
			if !d.rtx && i == begin {
				l.early++
			}
			v = reorder.Refused
		}
	}
	l.trk.Commit(d.psn, v)
	return v
}

// acknowledge implements the requester.
func (l *loop) acknowledge(d datagram) {
	l.rec.OnFeedback(l.now, &d.f)
	rtt := l.now.Sub(d.sentAt)
	if d.f.ReTx {
		rtt = 0
	}
	s := ccalgo.Sample{Bytes: l.mtu, InFlight: l.rec.InFlight() * l.mtu, RTT: rtt, ECN: d.f.ECE}
	if d.f.Refused {
		s.Bytes = 0
	}
	l.ctl.OnAck(l.now, s)
	l.shrink(l.sel.OnAck(l.now, &d.f, rtt, l.window()))
}

// step runs the next event; it returns false if there is none.
func (l *loop) step() bool {
	l.steps++
	if l.rec.Una() == l.first.Add(int(l.offered)) {
		l.offered = min(l.offered+l.batch, l.total)
	}
	l.pump()
	due := l.rec.Deadline().Min(l.sel.Deadline()).Min(l.waiting)
	if len(l.queue) > 0 && l.queue[0].at <= due {
		e := heap.Pop(&l.queue).(event)
		l.now = e.at
		if e.d.ack {
			l.acknowledge(e.d)
		} else {
			l.receive(e.d)
		}
		l.check()
		return true
	}
	if due == mono.Never {
		return false
	}
	l.now = max(l.now, due)
	if l.now >= l.rec.Deadline() {
		l.timeouts++
		l.rec.OnTimeout(l.now)
		l.ctl.OnLoss(l.now, 1, true)
		l.sel.Restart()
	}
	if l.now >= l.sel.Deadline() {
		l.sel.OnTimeout(l.now, l.window())
	}
	l.check()
	return true
}

// done reports whether all packets are acknowledged.
func (l *loop) done() bool { return l.rec.Una() == l.first.Add(int(l.total)) }

// run steps until all packets are acknowledged; it returns false after maxSteps.
func (l *loop) run(maxSteps int) bool {
	for !l.done() {
		if l.steps > maxSteps || !l.step() {
			return false
		}
	}
	return true
}

// percentile returns a percentile of the out-of-order degree of the arrived packets.
func (l *loop) percentile(p float64) int {
	if len(l.ood) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.ood))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
