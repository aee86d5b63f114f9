package workload

import "roced.io/roced/internal/sim/engine"

// Collective has the hosts that take part in a collective operation, and how they send.
type Collective struct {
	Ranks  []int // hosts by rank; nil: all hosts, by number
	QPs    int   // connections between two ranks, which share each message; default 1
	Rounds int   // operations, each after the previous one has ended at all ranks; default 1
	Class  uint8 // traffic class

	Ended []Round // completed operations
	began engine.Time
	rank  []int // by host
}

// Round is an operation of a collective.
type Round struct{ Start, Took engine.Time }

// Report describes the operations of a collective.
type Report struct {
	Kind  string
	Ranks int
	Bytes uint64 // of a rank's vector
	Sent  uint64 // bytes that each rank has to send in an operation, the numerator of nccl-tests' bus bandwidth
	Ended []Round
}

// Reporter is an application that is a collective.
type Reporter interface{ Report() Report }

// start begins the first operation.
func (c *Collective) start(now engine.Time, r *Runner) {
	if c.Ranks == nil {
		for h := range r.Hosts() {
			c.Ranks = append(c.Ranks, h)
		}
	}
	c.began, c.rank = now, make([]int, r.Hosts())
	for i, h := range c.Ranks {
		c.rank[h] = i
	}
}

// over records the end of an operation. It reports whether another one is due.
func (c *Collective) over(now engine.Time) bool {
	c.Ended = append(c.Ended, Round{c.began, now - c.began})
	c.began = now
	return len(c.Ended) < max(c.Rounds, 1)
}

// parts returns the number of messages that carry bytes.
func (c *Collective) parts(bytes uint64) int { return int(min(uint64(max(c.QPs, 1)), max(bytes, 1))) }

// send sends bytes as f from one rank to another, in equal parts on all connections.
func (c *Collective) send(r *Runner, f Flow, from, to int, bytes uint64) {
	f.Src, f.Dst, f.Class = c.Ranks[from], c.Ranks[to], c.Class
	n := uint64(c.parts(bytes))
	for i := range n {
		f.Lane, f.Bytes = int(i), uint32(bytes*(i+1)/n-bytes*i/n)
		r.Send(f)
	}
}

// AllToAll sends a message from each rank to each other one, a limited number per rank at a time.
type AllToAll struct {
	Collective
	Bytes       uint64
	Outstanding int // default 1

	next  []int // by rank: number of started messages
	parts []int // by rank and message: completed parts
	left  int   // messages
}

// Begin implements App.
func (a *AllToAll) Begin(now engine.Time, r *Runner) {
	a.start(now, r)
	a.round(r)
}

// round begins an operation.
func (a *AllToAll) round(r *Runner) {
	n := len(a.Ranks)
	a.next, a.parts, a.left = make([]int, n), make([]int, n*n), n*(n-1)
	for rank := range n {
		for range max(a.Outstanding, 1) {
			a.advance(r, rank)
		}
	}
}

// advance starts the next message of a rank. The first goes to the next rank.
func (a *AllToAll) advance(r *Runner, rank int) {
	if n := len(a.Ranks); a.next[rank] < n-1 {
		a.next[rank]++
		to := (rank + a.next[rank]) % n
		a.send(r, Flow{App: a, Tag: uint64(rank*n + to)}, rank, to, a.Bytes)
	}
}

// Done implements App. An operation with a failed message does not end.
func (a *AllToAll) Done(now engine.Time, r *Runner, f *Flow) {
	if f.Failed {
		return
	}
	if a.parts[f.Tag]++; a.parts[f.Tag] < a.Collective.parts(a.Bytes) {
		return
	}
	if a.left--; a.left == 0 && a.over(now) {
		a.round(r)
		return
	}
	a.advance(r, a.rank[f.Src])
}

// Delivered implements App.
func (a *AllToAll) Delivered(engine.Time, *Runner, *Flow) {}

// Report implements Reporter.
func (a *AllToAll) Report() Report {
	n := uint64(len(a.Ranks))
	return Report{"all-to-all", len(a.Ranks), n * a.Bytes, (n - 1) * a.Bytes, a.Ended}
}

// RingAllReduce sums a vector of Bytes over all ranks: each sends a part of it to the next rank, 2(n-1) times, each
// time after the previous part has arrived (Patarasuk and Yuan, JPDC 2009).
type RingAllReduce struct {
	Collective
	Bytes uint64

	arrived [][]int // by rank and step: messages
	step    []int   // by rank: complete steps
	left    int     // ranks that have not received all steps
}

// Begin implements App.
func (a *RingAllReduce) Begin(now engine.Time, r *Runner) {
	a.start(now, r)
	a.round(r)
}

// round begins an operation.
func (a *RingAllReduce) round(r *Runner) {
	n := len(a.Ranks)
	a.arrived, a.step, a.left = make([][]int, n), make([]int, n), n
	for rank := range n {
		a.arrived[rank] = make([]int, a.steps())
	}
	for rank := range n {
		a.pass(r, rank, 0)
	}
}

func (a *RingAllReduce) steps() int { return 2 * (len(a.Ranks) - 1) }

// part returns the bytes of a step.
func (a *RingAllReduce) part() uint64 { return max(a.Bytes/uint64(len(a.Ranks)), 1) }

// pass sends a step of a rank.
func (a *RingAllReduce) pass(r *Runner, rank, step int) {
	if step < a.steps() {
		a.send(r, Flow{Verb: r.Notifying(), App: a, Tag: uint64(step)}, rank, (rank+1)%len(a.Ranks), a.part())
	}
}

// Delivered implements App. A rank processes steps in their order, and passes each on as a whole.
func (a *RingAllReduce) Delivered(now engine.Time, r *Runner, f *Flow) {
	rank := a.rank[f.Dst]
	a.arrived[rank][f.Tag]++
	for all := a.parts(a.part()); a.step[rank] < a.steps() && a.arrived[rank][a.step[rank]] == all; {
		a.step[rank]++
		a.pass(r, rank, a.step[rank])
		if a.step[rank] < a.steps() {
			continue
		}
		if a.left--; a.left == 0 && a.over(now) {
			a.round(r)
			return
		}
	}
}

// Done implements App.
func (a *RingAllReduce) Done(engine.Time, *Runner, *Flow) {}

// Report implements Reporter.
func (a *RingAllReduce) Report() Report {
	return Report{"ring-all-reduce", len(a.Ranks), a.Bytes, uint64(a.steps()) * a.part(), a.Ended}
}

// TreeAllReduce sums a vector up a binary tree of all ranks and distributes the sum.
type TreeAllReduce struct {
	Collective
	Bytes uint64

	waiting []int // by rank: messages with children's sums that have not arrived
	missing []int // by rank: messages with the sum of all that have not arrived
	left    int   // ranks without the sum of all
}

// Tags of messages.
const (
	treeUp = iota
	treeDown
)

// Begin implements App.
func (a *TreeAllReduce) Begin(now engine.Time, r *Runner) {
	a.start(now, r)
	a.round(r)
}

// round begins an operation.
func (a *TreeAllReduce) round(r *Runner) {
	n, parts := len(a.Ranks), a.parts(a.Bytes)
	a.waiting, a.missing, a.left = make([]int, n), make([]int, n), n-1
	for rank := range n {
		a.waiting[rank], a.missing[rank] = parts*len(children(rank, n)), parts
	}
	for rank := range n {
		if a.waiting[rank] == 0 {
			a.up(r, rank)
		}
	}
}

func children(rank, n int) (c []int) {
	for _, x := range [...]int{2*rank + 1, 2*rank + 2} {
		if x < n {
			c = append(c, x)
		}
	}
	return c
}

// up sends the sum of a rank and its subtree to its parent. The root distributes it.
func (a *TreeAllReduce) up(r *Runner, rank int) {
	if rank == 0 {
		a.down(r, rank)
		return
	}
	a.send(r, Flow{Verb: r.Notifying(), App: a, Tag: treeUp}, rank, (rank-1)/2, a.Bytes)
}

func (a *TreeAllReduce) down(r *Runner, rank int) {
	for _, c := range children(rank, len(a.Ranks)) {
		a.send(r, Flow{Verb: r.Notifying(), App: a, Tag: treeDown}, rank, c, a.Bytes)
	}
}

// Delivered implements App.
func (a *TreeAllReduce) Delivered(now engine.Time, r *Runner, f *Flow) {
	rank := a.rank[f.Dst]
	if f.Tag == treeUp {
		if a.waiting[rank]--; a.waiting[rank] == 0 {
			a.up(r, rank)
		}
		return
	}
	if a.missing[rank]--; a.missing[rank] > 0 {
		return
	}
	a.down(r, rank)
	if a.left--; a.left == 0 && a.over(now) {
		a.round(r)
	}
}

// Done implements App.
func (a *TreeAllReduce) Done(engine.Time, *Runner, *Flow) {}

// Report implements Reporter.
func (a *TreeAllReduce) Report() Report {
	n := uint64(len(a.Ranks))
	return Report{"tree-all-reduce", len(a.Ranks), a.Bytes, 2 * (n - 1) * a.Bytes / n, a.Ended}
}
