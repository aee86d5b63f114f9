package soak

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// world is one run of a trial.
type world struct {
	s      trial
	p      *nictest.Pair
	rng    *rand.Rand
	wire   wire
	ends   [2][]*end
	flows  []*flow
	recvs  []*recvs
	cqs    []*polledCQ
	count  counts
	ending bool
	begun  mono.Time
	wake   mono.Time // when work has something to do
	acts   int       // number of client actions
	digest uint64    // of the completions

	shared     [2]*nictest.Buffer // with a word to which all add
	sharedWord [2]int
	found      [2]map[uint64]bool // values found there
}

// polledCQ is a completion queue and its check times.
type polledCQ struct {
	*nictest.CQ
	seen   int // notifications
	nextAt mono.Time
}

// limit is the virtual time after which a run counts as hung.
const limit = 10 * time.Minute

func newWorld(t testing.TB, s trial) *world {
	w := &world{s: s, rng: rand.New(rand.NewPCG(s.seed, 0x776f726b))}
	for i := range w.found {
		w.found[i] = make(map[uint64]bool)
		w.sharedWord[i] = 24
	}
	var sw *rocev2.Switch
	if s.swtch {
		sw = &rocev2.Switch{}
	}
	w.p = nictest.New(t, nictest.Options{
		Switch: sw,
		Seed:   s.seed, MTU: 4300, Delay: s.delay, Rate: s.rate, Offload: s.offload, Hook: w.wire.hook, Limit: limit,
		Remote: s.seed%2 == 1,
		// Packets without room are lost while memory is awaited.
		Deferred: s.deferred(),
		Config: func(c *rocev2.Config) {
			c.MaxUnacked, c.NewProfile = s.unacked, s.profiles()
			c.PeerWindow, c.Local = uint32(s.seed%4)*16, s.seed%5 == 0
		},
	})
	w.wire.p, w.wire.delay = w.p, s.delay+time.Microsecond
	if err := w.wire.eng.SetRules(s.rules); err != nil {
		t.Fatal(err)
	}
	w.plan()
	w.open()
	w.connect()
	return w
}

// plan draws the messages and reserves memory for them.
func (w *world) plan() {
	for side := range w.ends {
		for i := range w.s.pairs {
			w.ends[side] = append(w.ends[side], &end{w: w, side: side, index: i})
		}
	}
	for side, ends := range w.ends {
		for i, e := range ends {
			e.peer = w.ends[1-side][i]
			e.out = &flow{from: e, word: e.peer.mem.reserve(w.rng, 8, 8), streams: make(map[*end]*stream)}
			w.flows = append(w.flows, e.out)
		}
	}
	for _, f := range w.flows {
		if f.from.side == 0 || w.s.both {
			f.plan(w.rng)
			if chance(w.rng, 10) || w.s.perfect() && chance(w.rng, 30) {
				f.drainAt = 1 + w.rng.IntN(len(f.msgs))
			}
		}
		for _, m := range f.msgs {
			if m.receives() {
				if f.streams[m.to] == nil {
					f.streams[m.to] = new(stream)
				}
				f.streams[m.to].msgs = append(f.streams[m.to].msgs, m)
			}
		}
	}
	w.planReceives()
}

// planReceives creates a receive queue for each end, or one for all ends of a side.
func (w *world) planReceives() {
	for _, ends := range w.ends {
		var r *recvs
		for _, e := range ends {
			if r == nil || !w.s.srq {
				r = &recvs{w: w}
				w.recvs = append(w.recvs, r)
			}
			r.ends = append(r.ends, e)
			e.recvs = r
		}
	}
	for _, r := range w.recvs {
		r.plan(w.rng)
	}
}

func (w *world) node(side int) *nictest.Node { return []*nictest.Node{w.p.A, w.p.B}[side] }

// open registers the memory and writes the data into it.
func (w *world) open() {
	seed := w.s.seed
	for side, ends := range w.ends {
		w.shared[side] = w.node(side).Buffer(64)
		for _, e := range ends {
			seed += 1 << 32
			e.mem.open(w.node(side), seed)
		}
	}
	for _, r := range w.recvs {
		seed += 1 << 32
		r.mem.open(w.node(r.ends[0].side), seed)
	}
	for _, f := range w.flows {
		f.to().mem.put(list{f.word}, make([]byte, 8))
		for _, m := range f.msgs {
			if m.source {
				f.from.mem.put(m.local, m.data)
			}
			if m.op == qp.WRRead && !f.writtenBefore(m) {
				m.to.mem.put(list{m.remote}, m.data)
			}
		}
	}
}

// writtenBefore reports whether a WRITE of f writes the data that m reads.
func (f *flow) writtenBefore(m *message) bool {
	for _, o := range f.msgs {
		if o == m {
			return false
		}
		if o.writes() && o.remote == m.remote {
			return true
		}
	}
	return false
}

// connect creates the queue pairs.
func (w *world) connect() {
	for side, ends := range w.ends {
		n := w.node(side)
		var cq *nictest.CQ
		if w.s.oneCQ {
			cq = w.cq(n, 2*w.s.depth*w.s.pairs+8*w.s.pairs)
		}
		for _, e := range ends {
			w.makeQP(n, e, cq)
			for i := range 2 {
				typ := []rocev2.MWType{rocev2.MWType2, rocev2.MWType1}[i]
				mw, err := n.NIC.AllocMW(n.PD, typ, nil)
				if err != nil {
					w.p.Fatalf("%v", err)
				}
				e.windows = append(e.windows, &window{mw: mw, typ: typ})
			}
		}
	}
	for i, a := range w.ends[0] {
		b := w.ends[1][i]
		if w.s.typ != qp.UD {
			nictest.Connect(a.qp, b.qp)
			continue
		}
		for _, e := range []*end{a, b} {
			e.qp.Init()
			e.qp.Modify(qp.Attr{State: qp.RTR}, 0, nil)
			e.qp.RTS()
			e.ah = e.qp.AH().Handle()
		}
	}
	if !w.s.cold {
		w.p.RunIdle()
	}
}

func (w *world) cq(n *nictest.Node, entries int) *nictest.CQ {
	q := &polledCQ{CQ: n.CQ(entries)}
	w.cqs = append(w.cqs, q)
	q.Arm(false)
	return q.CQ
}

func (w *world) makeQP(n *nictest.Node, e *end, cq *nictest.CQ) {
	s, r := &w.s, e.recvs
	psn := pick(w.rng, 0, 1, 0xffffff-w.rng.Uint32N(64), 0x7fffff-w.rng.Uint32N(64), w.rng.Uint32()&0xffffff)
	if s.srq && r.srq == nil {
		r.srq = n.SRQ(s.depth)
		r.queue = r.srq.Recv
	}
	opt := func(o *nictest.QPOptions) {
		o.Type, o.Depth, o.SGEs, o.Inline, o.SigAll = s.typ, s.depth, s.sges, s.inline, s.sigAll
		o.GID, o.MTU, o.PSN, o.Timeout, o.RetryCnt = s.gid, s.mtu, psn, s.timeout, s.retry
		o.RNRRetry, o.MinRNR, o.RdAtomic, o.SRQ = s.rnr, s.minRNR, s.rd, r.srq
		if o.SendCQ, o.RecvCQ = cq, cq; cq == nil {
			o.SendCQ, o.RecvCQ = w.cq(n, s.depth+8), w.cq(n, s.depth+8)
		}
	}
	e.qp = n.QP(opt)
	if r.srq == nil {
		r.queue = e.qp.RQ
	}
}

// flowOf finds the flow of a queue pair by its number.
func (w *world) flowOf(side int, num uint32) *flow {
	for _, e := range w.ends[side] {
		if uint32(e.qp.Num()) == num {
			return e.out
		}
	}
	return nil
}

// work runs the clients on both sides and the link until all wait.
func (w *world) work() {
	for acts := -1; acts != w.acts; {
		acts = w.acts
		w.pass()
	}
}

func (w *world) pass() {
	now := w.p.Now()
	w.wire.deliver(now)
	w.wake = w.wire.next().Min(w.cutLink(now))
	for _, q := range w.cqs {
		w.wake = w.wake.Min(w.look(now, q))
	}
	for _, r := range w.recvs {
		w.wake = w.wake.Min(r.post(now))
	}
	for _, f := range w.flows {
		w.wake = w.wake.Min(f.post(now)).Min(f.drain(now))
	}
}

// look takes completions in the client's manner, and returns the time of its next call.
func (w *world) look(now mono.Time, q *polledCQ) mono.Time {
	switch {
	case w.s.polling == pollNotified && !w.ending:
		if q.Notified == q.seen {
			return mono.Never
		}
		q.seen = q.Notified
		q.Arm(false)
	case w.s.polling == pollSeldom && !w.ending:
		if q.Len() == 0 {
			return mono.Never
		}
		if q.nextAt == 0 {
			q.nextAt = now.Add(time.Duration(w.rng.IntN(50_000)))
		}
		if now < q.nextAt {
			return q.nextAt
		}
		q.nextAt = 0
	}
	w.take(q)
	return mono.Never
}

// take processes all completions of a queue.
func (w *world) take(q *polledCQ) {
	for c, ok := q.Poll(); ok; c, ok = q.Poll() {
		w.acts++
		w.hash(&c)
		var e *end
		for _, ends := range w.ends {
			for _, x := range ends {
				if uint32(x.qp.Num()) == c.QPN && x.qp.Node == q.Node {
					e = x
				}
			}
		}
		switch {
		case e == nil:
			w.p.Fatalf("completion of an unknown queue pair: %+v", c)
		case c.Opcode >= qp.WCRecv:
			e.receive(c)
		default:
			e.out.complete(c)
		}
	}
}

func (w *world) hash(c *qp.CQE) {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, []uint64{w.digest, c.WRID, uint64(c.Status)<<8 | uint64(c.Opcode),
		uint64(c.ByteLen)<<32 | uint64(c.Imm), uint64(c.QPN), uint64(w.p.Now())})
	w.digest = h.Sum64()
}

// cutLink takes the link down and up again, and returns the time of its next call.
func (w *world) cutLink(now mono.Time) mono.Time {
	o := &w.s.outage
	from := w.begun.Add(o.after)
	to := from.Add(o.length)
	if o.length == 0 {
		return mono.Never
	}
	if down := now >= from && now < to; down != w.wire.down {
		w.wire.down = down
		if o.noticed {
			for side := range 2 {
				if err := w.node(side).NIC.SetLink(now, !down, 0); err != nil {
					w.p.Fatalf("%v", err)
				}
			}
		}
	}
	switch {
	case now < from:
		return from
	case now < to:
		return to
	}
	return mono.Never
}
