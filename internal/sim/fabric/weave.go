package fabric

import "roced.io/roced/internal/sim/engine"

// weave is ConWeave (Song et al., "Network Load Balancing with In-network Reordering Support for RDMA", SIGCOMM 2023)
// in a switch with hosts. As the first switch of a flow it regularly requests a reply from the last one. If a reply is
// late, it moves the flow to another path. It moves the flow again only after all packets on the old path are known to
// have arrived (3.2). As the last switch of a flow it holds packets of the new path until the TAIL of the old path has
// arrived (3.3).
//
// Flows are identified by their destination. Switches exchange separate packets.
type weave struct {
	sw    *Switch
	cfg   BalanceConfig
	first map[uint64]*sending
	last  map[uint64]*receiving
	busy  map[uint64]engine.Time // by destination switch and path: not selected until this time
	held  []*receiving           // flows with held packets
	bytes int64                  // held
	class uint8
	sweep int // number of flows above which idle ones are removed
}

// sending is the state of a flow at its first switch.
type sending struct {
	path     uint8
	epoch    flags // in the bits of epochs
	asked    bool  // a reply is outstanding
	moved    bool  // rerouted, CLEAR is outstanding
	deadline engine.Time
	last     engine.Time
	tail     engine.Time // time at which the TAIL left
}

// receiving is the state of a flow at its last switch.
type receiving struct {
	out      *port
	epoch    flags
	tail     bool        // the TAIL has arrived
	delay    engine.Time // delay of the old path
	kept     queue
	left     engine.Time // time at which the TAIL before the held packets left
	resume   engine.Time // time at which the held packets are released without the TAIL
	last     engine.Time
	notified engine.Time
	src, dst uint32
	qp       uint32
}

const (
	epochs       = 3 * epoch
	controlBytes = 84
	forgetAfter  = 2 * engine.Millisecond
)

func newWeave(s *Switch, c BalanceConfig) *weave {
	otherwise := func(t *engine.Time, us engine.Time) {
		if *t == 0 {
			*t = us * engine.Microsecond
		}
	}
	otherwise(&c.Reply, 12)
	otherwise(&c.Busy, 16)
	otherwise(&c.Extra, 16)
	otherwise(&c.Wait, 200)
	otherwise(&c.Inactive, 300)
	return &weave{sw: s, cfg: c, first: map[uint64]*sending{}, last: map[uint64]*receiving{}, busy: map[uint64]engine.Time{}, class: Classes - 1, sweep: 1024}
}

func (w *weave) reset() {}

// flow is the key of a flow: its destination.
func flow(dst, qp uint32) uint64 { return uint64(dst)<<32 | uint64(qp) }

// lane is the key of a path to a host's switch.
func (w *weave) lane(dst uint32, path uint8) uint64 {
	return uint64(w.sw.net.homes[dst])<<8 | uint64(path)
}

// choose implements balancer.
func (w *weave) choose(now engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	ports := s.groups[group]
	if s.ports[p.in].toHost && p.Kind == Data && p.Class != w.class {
		w.send(now, p, w.cfg.paths(len(ports)))
		return ports[int(p.path)%len(ports)]
	}
	h := mix(p.Hash ^ uint32(p.path)*0x9e3779b9 ^ mix(uint32(s.id)))
	return ports[uint64(h)*uint64(len(ports))>>32]
}

// send selects one of n paths for p and sets its ConWeave header.
func (w *weave) send(now engine.Time, p *Packet, n int) {
	key := flow(p.Dst, p.QP)
	f := w.first[key]
	switch {
	case f == nil:
		w.forget(now)
		f = &sending{path: uint8(uint64(mix(p.Hash)) * uint64(n) >> 32)}
		w.first[key] = f
	case now-f.last > w.cfg.Inactive || f.moved && now-f.tail > w.cfg.Inactive:
		w.renew(f) // packets of the old epoch have arrived or are lost (3.2.3)
	}
	f.last = now
	p.sent = uint32(now / engine.Nanosecond)
	p.flags = p.flags&^(epochs|request|tail|rerouted) | f.epoch
	p.path = f.path
	switch {
	case f.moved:
		p.flags |= rerouted
		p.sent = uint32(f.tail / engine.Nanosecond)
	case !f.asked:
		p.flags |= request
		f.asked, f.deadline = true, now+w.cfg.Reply
	case now > f.deadline:
		if path, ok := w.other(now, p.Dst, f.path, n); ok {
			p.flags |= tail
			f.path, f.moved, f.tail = path, true, now
		}
	}
}

func (w *weave) renew(f *sending) {
	f.epoch = (f.epoch + epoch) & epochs
	f.asked, f.moved = false, false
}

// other returns a random path without recent congestion; it tries two (3.2.2).
func (w *weave) other(now engine.Time, dst uint32, not uint8, n int) (uint8, bool) {
	for range 2 {
		path := uint8(w.sw.rng.Uint64() >> 32 * uint64(n) >> 32)
		if path != not && w.busy[w.lane(dst, path)] <= now {
			return path, true
		}
	}
	return 0, false
}

// told processes a message of a last switch about the flow to host Rank.
func (w *weave) told(now engine.Time, p *Packet) {
	if p.flags.has(rerouted) { // NOTIFY
		w.busy[w.lane(p.Rank, p.path)] = now + w.cfg.Busy
		return
	}
	f := w.first[flow(p.Rank, p.QP)]
	if f == nil || f.epoch != p.flags&epochs {
		return
	}
	if p.flags.has(tail) && f.moved { // CLEAR
		w.renew(f)
	} else if p.flags.has(request) && !f.moved { // RTT_REPLY
		f.asked = false
	}
}

// tell sends a message to the first switch of a flow.
func (w *weave) tell(now engine.Time, f *receiving, what flags, path uint8) {
	p := w.sw.part.NewPacket()
	*p = Packet{Kind: Weave, Bytes: controlBytes, Class: w.class, Dst: f.src, Src: f.dst, Rank: f.dst, QP: f.qp, Hash: mix(f.qp ^ f.src),
		path: path, flags: what | f.epoch}
	w.sw.Arrive(now, f.out.number, p)
}

// keeps processes p at its last switch, after admission for egress port o. It reports whether p is held or already
// queued.
func (w *weave) keeps(now engine.Time, o *port, p *Packet) bool {
	if p.Kind != Data || p.Class == w.class || w.sw.ports[p.in].toHost {
		return false
	}
	f := w.receiving(now, o, p)
	switch (p.flags - f.epoch) & epochs {
	case 0:
	case 3 * epoch: // a packet of the previous epoch, on the old path
		return false
	default:
		w.release(now, f)
		f.epoch, f.tail, f.delay = p.flags&epochs, false, 0
	}
	if p.flags.has(request) {
		w.tell(now, f, request, p.path)
	}
	if p.ECN == CE && now-f.notified > w.cfg.Busy/2 {
		f.notified = now
		w.tell(now, f, rerouted, p.path)
	}
	sent := now - engine.Time(uint32(now/engine.Nanosecond)-p.sent)*engine.Nanosecond
	switch {
	case p.flags.has(rerouted) && !f.tail:
		w.keep(now, f, p, sent)
		return true
	case p.flags.has(tail):
		w.sw.enqueue(now, o, p)
		w.release(now, f)
		f.tail = true
		w.tell(now, f, tail, p.path)
		return true
	case !p.flags.has(rerouted):
		f.delay = now - sent
		w.await(now, f)
	}
	return false
}

// receiving returns the flow of p.
func (w *weave) receiving(now engine.Time, o *port, p *Packet) *receiving {
	key := flow(p.Dst, p.QP)
	f := w.last[key]
	if f == nil {
		w.forget(now)
		f = &receiving{out: o, epoch: p.flags & epochs, src: p.Src, dst: p.Dst, qp: p.QP, notified: -engine.Second}
		w.last[key] = f
	}
	f.last = now
	return f
}

// keep holds p until the TAIL, which left at left, is overdue (3.3.2).
func (w *weave) keep(now engine.Time, f *receiving, p *Packet, left engine.Time) {
	first := f.kept.head == nil
	f.kept.push(p)
	w.bytes += int64(p.Bytes)
	if first {
		f.left, f.resume = left, now+w.cfg.Wait
		w.held = append(w.held, f)
		w.await(now, f)
	}
}

// await updates the time that f waits for the TAIL. Each packet of the old path updates it, because the queue there may
// have grown.
func (w *weave) await(now engine.Time, f *receiving) {
	if f.kept.head == nil {
		return
	}
	if f.delay > 0 {
		f.resume = max(f.left+f.delay+w.cfg.Extra, now)
	}
	w.arm()
}

// release queues the held packets of f.
func (w *weave) release(now engine.Time, f *receiving) {
	if f.kept.head == nil {
		return
	}
	for f.kept.head != nil {
		p := f.kept.pop()
		w.bytes -= int64(p.Bytes)
		w.sw.enqueue(now, f.out, p)
	}
	for i := range w.held {
		if w.held[i] == f {
			w.held = append(w.held[:i], w.held[i+1:]...)
			break
		}
	}
	w.arm()
}

// expire releases packets whose TAIL is overdue; the TAIL counts as lost.
func (w *weave) expire(now engine.Time) {
	for i := 0; i < len(w.held); {
		if f := w.held[i]; f.resume <= now {
			w.release(now, f)
			f.tail = true
			w.tell(now, f, tail, 0)
		} else {
			i++
		}
	}
	w.arm()
}

// arm schedules expire.
func (w *weave) arm() {
	at := engine.Never
	for _, f := range w.held {
		at = min(at, f.resume)
	}
	w.sw.agenda.set(int32(len(w.sw.ports))*things, at)
}

// forget removes idle flows when there are many flows.
func (w *weave) forget(now engine.Time) {
	if len(w.first)+len(w.last)+len(w.busy) < w.sweep {
		return
	}
	for key, f := range w.first {
		if now-f.last > forgetAfter {
			delete(w.first, key)
		}
	}
	for key, f := range w.last {
		if now-f.last > forgetAfter && f.kept.head == nil {
			delete(w.last, key)
		}
	}
	for key, until := range w.busy {
		if until <= now {
			delete(w.busy, key)
		}
	}
	w.sweep = max(1024, 2*(len(w.first)+len(w.last)+len(w.busy)))
}
