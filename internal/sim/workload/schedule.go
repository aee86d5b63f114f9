package workload

import (
	"errors"
	"fmt"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// OpKind is the kind of an operation of a rank.
type OpKind uint8

// Kinds of operations.
const (
	CalcOp OpKind = iota // takes Length on CPU
	SendOp               // of Bytes to Peer; ends with the last acknowledgement
	RecvOp               // of the next message with Tag from Peer
)

// Op is an operation of a rank.
type Op struct {
	Kind   OpKind
	CPU    uint16 // of a calculation
	Rank   int32
	Peer   int32
	Tag    uint32
	Bytes  uint32
	Length engine.Time
	Line   int32 // in its file; 0: none

	needs  int32   // operations that must end or start before it
	after  []int32 // operations that need its end
	starts []int32 // operations that need its start
}

// Schedule is an application of ranks that calculate, send and receive, with dependencies between the operations of a rank.
// Ranks affect each other only by messages, so parts of a network may run at the same time.
type Schedule struct {
	Kind  string
	Hosts []int // by rank
	Class uint8
	At    engine.Time
	Ops   []Op

	r       *Runner
	ranks   []rank
	flows   []Flow // by operation, of sends
	links   map[[2]int32]*link
	meeting engine.Meeting
}

// rank is the state of a rank. Only the part of its host uses it.
type rank struct {
	s       *Schedule
	eng     *engine.Engine
	ready   []int32
	running bool // ready is being processed
	posted  map[message][]int32
	arrived map[message]int
	cpus    map[uint16]*cpu
	left    int
	end     engine.Time
}

// message selects the messages that a receive takes.
type message struct {
	from int32
	tag  uint32
}

// cpu is a processor of a rank, with its waiting calculations; the first one runs.
type cpu struct {
	rank  *rank
	queue []int32
	timer engine.Timer
}

// link is the connection from one rank to another.
type link struct {
	s        *Schedule
	from, to *nic.QP
	sent     []int32 // sends that have not ended
}

// Add appends an operation and returns its number.
func (s *Schedule) Add(o Op) int32 {
	s.Ops = append(s.Ops, o)
	return int32(len(s.Ops) - 1)
}

// Require lets op begin after the end of on, or after its start.
func (s *Schedule) Require(op, on int32, start bool) {
	s.Ops[op].needs++
	if start {
		s.Ops[on].starts = append(s.Ops[on].starts, op)
		return
	}
	s.Ops[on].after = append(s.Ops[on].after, op)
}

// OpError is an error of an operation.
type OpError struct {
	Op  Op
	Why string
}

// Error implements error.
func (e OpError) Error() string {
	where := fmt.Sprintf("rank %d", e.Op.Rank)
	if e.Op.Line > 0 {
		where = fmt.Sprintf("line %d, %s", e.Op.Line, where)
	}
	return where + ": " + e.Why
}

// Check returns an error if a message has no receive or a receive no message, or if operations wait for each other. The
// latter pairs sends and receives in their order, as the runs do.
func (s *Schedule) Check() error {
	type way struct {
		from, to int32
		tag      uint32
	}
	sends, recvs := map[way][]int32{}, map[way][]int32{}
	for i := range s.Ops {
		switch o := &s.Ops[i]; o.Kind {
		case SendOp:
			w := way{o.Rank, o.Peer, o.Tag}
			sends[w] = append(sends[w], int32(i))
		case RecvOp:
			w := way{o.Peer, o.Rank, o.Tag}
			recvs[w] = append(recvs[w], int32(i))
		}
	}
	partner := make([]int32, len(s.Ops))
	for i := range s.Ops {
		o := &s.Ops[i]
		if partner[i] = -1; o.Kind == RecvOp && len(recvs[way{o.Peer, o.Rank, o.Tag}]) > len(sends[way{o.Peer, o.Rank, o.Tag}]) {
			return OpError{*o, fmt.Sprintf("rank %d has fewer sends with tag %d to this rank than this rank has recvs; add a send", o.Peer, o.Tag)}
		}
		if o.Kind == SendOp && len(sends[way{o.Rank, o.Peer, o.Tag}]) > len(recvs[way{o.Rank, o.Peer, o.Tag}]) {
			return OpError{*o, fmt.Sprintf("rank %d has fewer recvs with tag %d from this rank than this rank has sends; add a recv", o.Peer, o.Tag)}
		}
	}
	for w, list := range sends {
		for i, op := range list {
			partner[op] = recvs[w][i]
		}
	}
	return s.acyclic(partner)
}

// acyclic returns an error if operations wait for each other. partner has the receive of each send, -1 for others.
func (s *Schedule) acyclic(partner []int32) error {
	needs := make([]int32, len(s.Ops))
	var free []int32
	for i := range s.Ops {
		needs[i] += s.Ops[i].needs
		if partner[i] >= 0 {
			needs[partner[i]]++
		}
	}
	for i, n := range needs {
		if n == 0 {
			free = append(free, int32(i))
		}
	}
	done := 0
	release := func(list ...int32) {
		for _, op := range list {
			if needs[op]--; needs[op] == 0 {
				free = append(free, op)
			}
		}
	}
	for ; len(free) > 0; done++ {
		op := free[len(free)-1]
		free = free[:len(free)-1]
		release(s.Ops[op].after...)
		release(s.Ops[op].starts...)
		if partner[op] >= 0 {
			release(partner[op])
		}
	}
	if done == len(s.Ops) {
		return nil
	}
	for i, n := range needs {
		if n > 0 {
			return OpError{s.Ops[i], "this operation waits for itself through others; remove a dependency"}
		}
	}
	return errors.New("operations wait for each other")
}

// Begin implements App.
func (s *Schedule) Begin(_ engine.Time, r *Runner) {
	s.r, s.links = r, map[[2]int32]*link{}
	s.ranks, s.flows = make([]rank, len(s.Hosts)), make([]Flow, len(s.Ops))
	for i, h := range s.Hosts {
		s.ranks[i] = rank{s: s, eng: r.k.EngineOf(h), posted: map[message][]int32{}, arrived: map[message]int{}, cpus: map[uint16]*cpu{}}
	}
	for i := range s.Ops {
		o := &s.Ops[i]
		s.ranks[o.Rank].left++
		if o.Kind != SendOp {
			continue
		}
		f := &s.flows[i]
		*f = Flow{Src: s.Hosts[o.Rank], Dst: s.Hosts[o.Peer], Bytes: o.Bytes, Verb: r.Notifying(), Class: s.Class, App: s}
		if err := s.prepare(o, f); err != nil {
			r.Fail(OpError{*o, err.Error()})
			return
		}
	}
	s.meeting.Init(r.cfg.Clock, s)
	s.meeting.Set(s.At)
}

// prepare connects the ranks of a message and posts its receive: parts of a network cannot do so while they run.
func (s *Schedule) prepare(o *Op, f *Flow) error {
	r, way := s.r, [2]int32{o.Rank, o.Peer}
	f.ID, f.Transport = r.flows, r.cfg.Senders[f.Src]
	r.flows++
	r.running++
	if r.cfg.Ideal != nil {
		f.Ideal = r.cfg.Ideal(f)
	}
	l := s.links[way]
	if l == nil {
		l = &link{s: s}
		q := r.transport(f).QP
		q.User, q.Spares = l, nil
		var err error
		if l.from, l.to, err = r.k.Connect(f.Src, f.Dst, q); err != nil {
			return err
		}
		if s.links[way] = l; r.cfg.Opened != nil {
			r.cfg.Opened(l.from, l.to, f)
		}
	}
	l.to.PostRecv(nic.RecvWR{Length: MaxMessage})
	return nil
}

// Handle implements engine.Handler: it begins the operations that need no other.
func (s *Schedule) Handle(now engine.Time, _ int32) {
	var first []int32
	for i := range s.Ops {
		if s.Ops[i].needs == 0 {
			first = append(first, int32(i))
		}
	}
	for _, i := range first {
		k := &s.ranks[s.Ops[i].Rank]
		k.ready = append(k.ready, i)
		k.run(now)
	}
}

// release reports to operations that one which they need has ended or started.
func (k *rank) release(ops []int32) {
	for _, i := range ops {
		if o := &k.s.Ops[i]; o.needs > 1 {
			o.needs--
		} else {
			k.ready = append(k.ready, i)
		}
	}
}

// run begins the operations that are ready.
func (k *rank) run(now engine.Time) {
	if k.running {
		return
	}
	k.running = true
	for i := 0; i < len(k.ready); i++ {
		k.begin(now, k.ready[i])
	}
	k.ready, k.running = k.ready[:0], false
}

// begin begins an operation.
func (k *rank) begin(now engine.Time, i int32) {
	o := &k.s.Ops[i]
	k.release(o.starts)
	switch o.Kind {
	case SendOp:
		k.s.flows[i].Start = now
		k.s.links[[2]int32{o.Rank, o.Peer}].post(i)
	case RecvOp:
		m := message{o.Peer, o.Tag}
		if k.arrived[m] > 0 {
			k.arrived[m]--
			k.finish(now, i)
			return
		}
		k.posted[m] = append(k.posted[m], i)
	default:
		c := k.cpus[o.CPU]
		if c == nil {
			c = &cpu{rank: k}
			c.timer.Init(c, 0)
			k.cpus[o.CPU] = c
		}
		if c.queue = append(c.queue, i); len(c.queue) == 1 {
			k.eng.Set(&c.timer, now+o.Length)
		}
	}
}

// finish ends an operation.
func (k *rank) finish(now engine.Time, i int32) {
	k.left--
	k.end = now
	k.release(k.s.Ops[i].after)
}

// Handle implements engine.Handler: the first calculation has ended.
func (c *cpu) Handle(now engine.Time, _ int32) {
	done := c.queue[0]
	if c.queue = c.queue[1:]; len(c.queue) > 0 {
		c.rank.eng.Set(&c.timer, now+c.rank.s.Ops[c.queue[0]].Length)
	}
	c.rank.finish(now, done)
	c.rank.run(now)
}

// post sends the message of operation i, whose number is its immediate data.
func (l *link) post(i int32) {
	l.sent = append(l.sent, i)
	w := qp.SendWQE{Opcode: qp.WRSendImm, Length: l.s.flows[i].Bytes, Imm: uint32(i)}
	if l.s.flows[i].Verb == WriteImm {
		w.Opcode = qp.WRWriteImm
	}
	l.from.Post(w)
}

// Completed implements nic.User.
func (l *link) Completed(now engine.Time, q *nic.QP, e qp.CQE, receive bool) {
	s := l.s
	if receive {
		if e.Status == qp.StatusSuccess && int(e.Imm) < len(s.Ops) {
			s.took(now, &s.Ops[e.Imm])
		}
		return
	}
	if len(l.sent) == 0 {
		return
	}
	i := l.sent[0]
	l.sent = l.sent[1:]
	f := &s.flows[i]
	f.End, f.Failed = now, e.Status != qp.StatusSuccess
	s.r.end(ending{f: f, from: l.from, to: l.to, stays: true}, q)
	if !f.Failed {
		k := &s.ranks[s.Ops[i].Rank]
		k.finish(now, i)
		k.run(now)
	}
}

// took gives an arrived message to the receive that waits for it.
func (s *Schedule) took(now engine.Time, o *Op) {
	k, m := &s.ranks[o.Peer], message{o.Rank, o.Tag}
	waiting := k.posted[m]
	if len(waiting) == 0 {
		k.arrived[m]++
		return
	}
	k.posted[m] = waiting[1:]
	k.finish(now, waiting[0])
	k.run(now)
}

// Done implements App.
func (s *Schedule) Done(engine.Time, *Runner, *Flow) {}

// Delivered implements App.
func (s *Schedule) Delivered(engine.Time, *Runner, *Flow) {}

// Report implements Reporter: the whole schedule is one operation, and Bytes and Sent are those of the rank that sends most.
func (s *Schedule) Report() Report {
	sent := make([]uint64, len(s.Hosts))
	for i := range s.Ops {
		if o := &s.Ops[i]; o.Kind == SendOp {
			sent[o.Rank] += uint64(o.Bytes)
		}
	}
	r := Report{Kind: s.Kind, Ranks: len(s.Hosts)}
	var end engine.Time
	for i := range s.ranks {
		r.Sent, end = max(r.Sent, sent[i]), max(end, s.ranks[i].end)
		if s.ranks[i].left > 0 {
			return r
		}
	}
	r.Bytes, r.Ended = r.Sent, []Round{{s.At, end - s.At}}
	return r
}
