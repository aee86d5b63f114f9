package flor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/plugin/mono"
)

// Calls is the paper's RPC benchmark (7.1): clients keep some calls outstanding on each connection to their
// servers, by Flor or by plain RC.
//
// Plain RC works as in XRDMA (7.2): requests up to MaxSend use SEND. A SEND announces longer requests, and the
// server reads them. Answers are SENDs.
type Calls struct {
	Pairs             []Pair
	Connections       int // per pair; default 1
	Request, Response uint32
	Outstanding       int   // calls per connection; default 1
	Class             uint8 // traffic class
	// Random sends the call after an answer by a random connection of the client instead of the same one.
	Random bool
	Seed   uint64
	Plain  bool
	Flor   Config // without queue pairs, user and hosts

	// Answers lists the completed calls in order of time.
	Answers []Answer
	// RTTs lists the round-trip times that the clients' engines measured.
	RTTs []RTT

	r      *workload.Runner
	fabric *Fabric
	rng    *rand.Rand
	lanes  map[int][]int // connections by client
	ends   map[*flor.Conn]callEnd
	conns  []*flor.Conn    // of clients, by lane
	starts [][]engine.Time // by connection: when its outstanding calls began
	send   []flor.Buffer   // by host
	land   []flor.Buffer
}

// Pair is a client and its server.
type Pair struct{ Client, Server int }

// Answer is a call of a pair that completed at an instant, and its duration.
type Answer struct {
	At, Took engine.Time
	Pair     Pair
}

// RTT is a round-trip time and when it was measured.
type RTT struct{ At, Took engine.Time }

// callEnd is a connection's end.
type callEnd struct {
	lane   int // pair and connection
	client bool
}

// maxSend is the default of the longest request that uses SEND (3.2).
const maxSend = 32 << 10

// Begin implements workload.App.
func (c *Calls) Begin(now engine.Time, r *workload.Runner) {
	c.r, c.Connections, c.Outstanding = r, max(c.Connections, 1), max(c.Outstanding, 1)
	c.starts = make([][]engine.Time, len(c.Pairs)*c.Connections)
	c.rng, c.lanes = rand.New(rand.NewPCG(c.Seed, 0x63616c6c)), map[int][]int{}
	for lane := range c.starts {
		client := c.pair(lane).Client
		c.lanes[client] = append(c.lanes[client], lane)
	}
	if c.Flor.Engine.MaxSend == 0 {
		c.Flor.Engine.MaxSend = maxSend
	}
	if !c.Plain {
		if err := c.open(); err != nil {
			r.Fail(err)
		}
		return
	}
	for lane := range c.starts {
		for range c.Outstanding {
			c.callPlain(now, lane)
		}
	}
}

// Switched returns Fabric.Switched.
func (c *Calls) Switched() []engine.Time {
	if c.fabric == nil {
		return nil
	}
	return c.fabric.Switched
}

func (c *Calls) pair(lane int) Pair { return c.Pairs[lane/c.Connections] }

// next returns the connection of the call after an answer.
func (c *Calls) next(lane int) int {
	if !c.Random {
		return lane
	}
	lanes := c.lanes[c.pair(lane).Client]
	return lanes[c.rng.IntN(len(lanes))]
}

func (c *Calls) begun(now engine.Time, lane int) { c.starts[lane] = append(c.starts[lane], now) }

// answered notes the answer to the oldest call of a connection. Plain RC and Flor's SENDs keep their order except
// after losses; only the sum of durations matters.
func (c *Calls) answered(now engine.Time, lane int) {
	c.Answers = append(c.Answers, Answer{now, now - c.starts[lane][0], c.pair(lane)})
	c.starts[lane] = append(c.starts[lane][:0], c.starts[lane][1:]...)
}

// Steps of a plain call, in the upper half of a message's tag. The lower half is the connection.
const (
	plainRequest = iota << 32
	plainAnnounced
	plainRead
	plainAnswer
	plainSteps = 3 << 32
)

// announcement is the size of a SEND that announces a request.
const announcement = 64

func (c *Calls) callPlain(now engine.Time, lane int) {
	c.begun(now, lane)
	if c.Request > c.Flor.Engine.MaxSend {
		c.plain(lane, plainAnnounced)
	} else {
		c.plain(lane, plainRequest)
	}
}

// plain starts a step of a call.
func (c *Calls) plain(lane int, step uint64) {
	p := c.pair(lane)
	f := workload.Flow{Src: p.Client, Dst: p.Server, Bytes: c.Request, Verb: workload.Send, Class: c.Class, App: c, Tag: step | uint64(lane), Lane: lane}
	switch step {
	case plainAnnounced:
		f.Bytes = announcement
	case plainRead:
		f.Verb = workload.Read
	case plainAnswer:
		f.Src, f.Dst, f.Bytes = p.Server, p.Client, c.Response
	}
	c.r.Send(f)
}

// Delivered implements workload.App.
func (c *Calls) Delivered(now engine.Time, _ *workload.Runner, f *workload.Flow) {
	lane := int(uint32(f.Tag))
	switch f.Tag & plainSteps {
	case plainAnnounced:
		c.plain(lane, plainRead)
	case plainRequest:
		c.plain(lane, plainAnswer)
	case plainAnswer:
		c.answered(now, lane)
		c.callPlain(now, c.next(lane))
	}
}

// Done implements workload.App.
func (c *Calls) Done(_ engine.Time, _ *workload.Runner, f *workload.Flow) {
	if f.Tag&plainSteps == plainRead && !f.Failed {
		c.plain(int(uint32(f.Tag)), plainAnswer)
	}
}

// open connects all pairs by Flor and starts calls.
func (c *Calls) open() error {
	cfg := c.Flor
	cfg.QP, cfg.User = c.r.QP(), func(h *Host) flor.User { return &caller{c, h} }
	cfg.QP.Spares, cfg.QP.Traffic = nil, c.Class
	cfg.Memory = 2 * int(max(c.Request, c.Response))
	cfg.Engine.Measured = func(k *flor.Conn, rtt time.Duration) { c.measured(k, rtt) }
	for _, p := range c.Pairs {
		cfg.Hosts = append(cfg.Hosts, p.Client, p.Server)
	}
	slices.Sort(cfg.Hosts)
	cfg.Hosts = slices.Compact(cfg.Hosts)
	cfg.Pools = c.pools()
	f, err := New(c.r.Cluster(), cfg)
	if err != nil {
		return err
	}
	c.fabric, c.ends = f, map[*flor.Conn]callEnd{}
	c.send, c.land = make([]flor.Buffer, c.r.Hosts()), make([]flor.Buffer, c.r.Hosts())
	for _, i := range cfg.Hosts {
		c.send[i], _ = f.Host(i).Memory(int(max(c.Request, c.Response)))
		c.land[i], _ = f.Host(i).Memory(int(max(c.Request, c.Response)))
	}
	for lane := range c.starts {
		p := c.pair(lane)
		x, y, err := f.Connect(p.Client, p.Server)
		if err != nil {
			return fmt.Errorf("connection %d from host %d to host %d: %w", lane, p.Client, p.Server, err)
		}
		c.ends[x], c.ends[y] = callEnd{lane, true}, callEnd{lane, false}
		c.conns = append(c.conns, x)
		for range c.Outstanding {
			if err := c.call(f.Host(p.Client), lane); err != nil {
				return err
			}
		}
	}
	return nil
}

// pools returns the number of buffers of hosts that are only clients: they receive answers only.
func (c *Calls) pools() map[int]int {
	few := map[int]int{}
	for client, lanes := range c.lanes {
		few[client] = min(max(c.Flor.Pool, 64), max(64, 4*len(lanes)*c.Outstanding))
	}
	for _, p := range c.Pairs {
		delete(few, p.Server)
	}
	return few
}

func (c *Calls) call(h *Host, lane int) error {
	c.begun(c.r.Engine().Now(), lane)
	return c.message(c.conns[lane], h, c.Request)
}

func (c *Calls) message(k *flor.Conn, h *Host, n uint32) error {
	b := c.send[h.Num()]
	b.Data = b.Data[:n]
	return h.Send(k, 0, b)
}

func (c *Calls) measured(k *flor.Conn, rtt time.Duration) {
	if c.ends[k].client {
		c.RTTs = append(c.RTTs, RTT{c.r.Engine().Now(), engine.FromMono(mono.Time(rtt))})
	}
}

// caller is Calls as the user of a host's engine. All messages of a host use the same memory; their content does
// not matter.
type caller struct {
	*Calls
	h *Host
}

// Delivered implements flor.User.
func (u *caller) Delivered(now mono.Time, k *flor.Conn, m flor.Message) {
	u.h.Release(m)
	e := u.ends[k]
	var err error
	if e.client {
		u.answered(engine.FromMono(now), e.lane)
		err = u.call(u.h, u.next(e.lane))
	} else {
		err = u.message(k, u.h, u.Response)
	}
	if err != nil {
		u.r.Fail(err)
	}
}

// Told implements flor.User.
func (u *caller) Told(_ mono.Time, _ *flor.Conn, _ uint64, err error) {
	if err != nil {
		u.r.Fail(err)
	}
}

// Landing implements flor.User.
func (u *caller) Landing(_ *flor.Conn, n int) (flor.Buffer, bool) {
	b := u.land[u.h.Num()]
	b.Data = b.Data[:n]
	return b, true
}

// Unused implements flor.User.
func (u *caller) Unused(*flor.Conn, flor.Buffer) {}

// Closed implements flor.User.
func (u *caller) Closed(mono.Time, *flor.Conn, error) {}
