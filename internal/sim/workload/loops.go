package workload

import "roced.io/roced/internal/sim/engine"

// RPC is a client that sends requests and waits for the responses.
type RPC struct {
	Client, Server    int
	Request, Response uint32
	Calls             int // total
	Outstanding       int // default 1

	Times []engine.Time // durations of calls
	begun int
	start map[uint64]engine.Time
}

// response marks the tag of a response.
const response = 1 << 63

// Begin implements App.
func (c *RPC) Begin(now engine.Time, r *Runner) {
	c.start = map[uint64]engine.Time{}
	for range max(c.Outstanding, 1) {
		c.call(now, r)
	}
}

func (c *RPC) call(now engine.Time, r *Runner) {
	if c.begun < c.Calls {
		c.begun++
		c.start[uint64(c.begun)] = now
		r.Send(Flow{Src: c.Client, Dst: c.Server, Bytes: c.Request, Verb: Send, App: c, Tag: uint64(c.begun)})
	}
}

// Delivered implements App.
func (c *RPC) Delivered(now engine.Time, r *Runner, f *Flow) {
	if f.Tag&response == 0 {
		r.Send(Flow{Src: c.Server, Dst: c.Client, Bytes: c.Response, Verb: Send, App: c, Tag: f.Tag | response})
		return
	}
	call := f.Tag &^ response
	c.Times = append(c.Times, now-c.start[call])
	delete(c.start, call)
	c.call(now, r)
}

// Done implements App.
func (c *RPC) Done(engine.Time, *Runner, *Flow) {}

// AllToAll sends a message from each host to each other one, a limited number per host at a time.
type AllToAll struct {
	Bytes       uint32
	Outstanding int // default 1

	Took engine.Time // until all completed
	next []int       // by host: number of started messages
	left int
	from engine.Time
}

// Begin implements App.
func (a *AllToAll) Begin(now engine.Time, r *Runner) {
	n := r.Hosts()
	a.next, a.left, a.from = make([]int, n), n*(n-1), now
	for h := range n {
		for range max(a.Outstanding, 1) {
			a.send(r, h)
		}
	}
}

// send starts the next message of a host. The first goes to the next host by number.
func (a *AllToAll) send(r *Runner, h int) {
	if n := r.Hosts(); a.next[h] < n-1 {
		a.next[h]++
		r.Send(Flow{Src: h, Dst: (h + a.next[h]) % n, Bytes: a.Bytes, App: a})
	}
}

// Done implements App.
func (a *AllToAll) Done(now engine.Time, r *Runner, f *Flow) {
	a.left--
	a.Took = now - a.from
	a.send(r, f.Src)
}

// Delivered implements App.
func (a *AllToAll) Delivered(engine.Time, *Runner, *Flow) {}

// RingAllReduce sums a vector of Bytes over all hosts: each sends a part of it to the next host, 2(n-1) times, each
// time after the previous part has arrived (Patarasuk and Yuan, JPDC 2009).
type RingAllReduce struct {
	Bytes uint32

	Took engine.Time
	from engine.Time
}

// Begin implements App.
func (a *RingAllReduce) Begin(now engine.Time, r *Runner) {
	a.from = now
	for h := range r.Hosts() {
		a.send(r, h, 1)
	}
}

func (a *RingAllReduce) send(r *Runner, h int, step uint64) {
	n := r.Hosts()
	if step <= uint64(2*(n-1)) {
		r.Send(Flow{Src: h, Dst: (h + 1) % n, Bytes: max(a.Bytes/uint32(n), 1), Verb: Send, App: a, Tag: step})
	}
}

// Delivered implements App.
func (a *RingAllReduce) Delivered(now engine.Time, r *Runner, f *Flow) {
	a.Took = now - a.from
	a.send(r, f.Dst, f.Tag+1)
}

// Done implements App.
func (a *RingAllReduce) Done(engine.Time, *Runner, *Flow) {}

// TreeAllReduce sums a vector up a binary tree of all hosts and distributes the sum.
type TreeAllReduce struct {
	Bytes uint32

	Took    engine.Time
	from    engine.Time
	waiting []int // by host: children whose sums have not arrived
}

// Tags of messages.
const (
	treeUp = iota
	treeDown
)

// Begin implements App.
func (a *TreeAllReduce) Begin(now engine.Time, r *Runner) {
	a.from, a.waiting = now, make([]int, r.Hosts())
	for h := range a.waiting {
		a.waiting[h] = len(children(h, r.Hosts()))
	}
	for h := range a.waiting {
		if a.waiting[h] == 0 {
			a.up(now, r, h)
		}
	}
}

func children(h, n int) (c []int) {
	for _, x := range [...]int{2*h + 1, 2*h + 2} {
		if x < n {
			c = append(c, x)
		}
	}
	return c
}

// up sends the sum of h and its subtree to its parent. The root distributes it.
func (a *TreeAllReduce) up(now engine.Time, r *Runner, h int) {
	if h == 0 {
		a.down(now, r, h)
		return
	}
	r.Send(Flow{Src: h, Dst: (h - 1) / 2, Bytes: a.Bytes, Verb: Send, App: a, Tag: treeUp})
}

func (a *TreeAllReduce) down(now engine.Time, r *Runner, h int) {
	a.Took = now - a.from
	for _, c := range children(h, r.Hosts()) {
		r.Send(Flow{Src: h, Dst: c, Bytes: a.Bytes, Verb: Send, App: a, Tag: treeDown})
	}
}

// Delivered implements App.
func (a *TreeAllReduce) Delivered(now engine.Time, r *Runner, f *Flow) {
	if f.Tag == treeDown {
		a.down(now, r, f.Dst)
		return
	}
	if a.waiting[f.Dst]--; a.waiting[f.Dst] == 0 {
		a.up(now, r, f.Dst)
	}
}

// Done implements App.
func (a *TreeAllReduce) Done(engine.Time, *Runner, *Flow) {}
