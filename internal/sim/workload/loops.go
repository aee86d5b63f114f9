package workload

import "roced.io/roced/internal/sim/engine"

// RPC is a client that sends requests and waits for the responses.
type RPC struct {
	Client, Server    int
	Request, Response uint32
	Calls             int // total
	Outstanding       int // default 1
	Class             uint8

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
		r.Send(Flow{Src: c.Client, Dst: c.Server, Bytes: c.Request, Verb: r.Notifying(), Class: c.Class, App: c, Tag: uint64(c.begun)})
	}
}

// Delivered implements App.
func (c *RPC) Delivered(now engine.Time, r *Runner, f *Flow) {
	if f.Tag&response == 0 {
		r.Send(Flow{Src: c.Server, Dst: c.Client, Bytes: c.Response, Verb: r.Notifying(), Class: c.Class, App: c, Tag: f.Tag | response})
		return
	}
	call := f.Tag &^ response
	c.Times = append(c.Times, now-c.start[call])
	delete(c.start, call)
	c.call(now, r)
}

// Done implements App.
func (c *RPC) Done(engine.Time, *Runner, *Flow) {}
