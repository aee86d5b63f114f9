package qptest

import (
	"slices"
	"sort"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Node is a queue pair and its host.
type Node struct {
	Q        *qp.QP
	H        *Host
	Counters qp.Counters
	now      *mono.Time
	late     []flight // packets that wait for memory, in order
	timer    mono.Time
}

// arm re-arms the timer of n only if it has fired or must fire earlier.
func (n *Node) arm() mono.Time {
	if at := n.Q.NextTimeout(); at < n.timer || n.timer <= *n.now {
		n.timer = at
	}
	return n.timer
}

// Send posts a send work request. It sets w.Length to the length of its data.
func (n *Node) Send(w qp.SendWQE) {
	w.Length = uint32(len(w.Inline))
	for _, s := range w.SGEs {
		w.Length += s.Length
	}
	n.H.Sends = append(n.H.Sends, w)
	n.Q.Doorbell(*n.now)
}

// Recv posts a receive work request.
func (n *Node) Recv(wrid uint64, sges ...qp.SGE) {
	n.H.Recvs.WQEs = append(n.H.Recvs.WQEs, qp.RecvWQE{WRID: wrid, SGEs: sges})
	n.Q.RecvPosted(*n.now)
}

// Hook decides the fate of a packet sent by node from. Each returned duration delivers the packet once, with that
// delay in addition to the link's. No durations lose the packet; unequal durations reorder packets.
type Hook func(from int, p *bth.Packet) []time.Duration

// Options describe a pair. Zero values select defaults.
type Options struct {
	Type   qp.Type
	Attr   qp.Attr                      // for both ends, except for DestQPN
	Config func(node int, c *qp.Config) // changes the configuration of one end
	Delay  time.Duration
	Hook   Hook
}

// attr returns the attributes with defaults for missing ones.
func (o *Options) attr() qp.Attr {
	a := o.Attr
	if a.PathMTU == 0 {
		a.PathMTU = 1
	}
	if a.AccessFlags == 0 {
		a.AccessFlags = qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic | qp.AccessFlushGlobal
	}
	if a.MaxRdAtomic == 0 && a.MaxDestRdAtomic == 0 {
		a.MaxRdAtomic, a.MaxDestRdAtomic = 4, 4
	}
	if a.Timeout == 0 && a.RetryCnt == 0 {
		a.Timeout, a.RetryCnt, a.RNRRetry, a.MinRNRTimer = 8, 7, 7, 1
	}
	return a
}

// GRH is the header that the link passes with each datagram: 40 bytes, 0 to 39.
var GRH = func() (g [40]byte) {
	for i := range g {
		g[i] = byte(i)
	}
	return g
}()

// flight is an encoded packet in transit.
type flight struct {
	at mono.Time
	to int
	b  []byte
}

// Pair is two connected queue pairs, QPN 20 and 21, in RTS.
type Pair struct {
	Nodes   [2]*Node
	Now     mono.Time
	Hook    Hook
	Packets int // sent so far

	delay time.Duration
	wire  []flight // by time of arrival
}

// NewPair returns a connected pair.
func NewPair(o Options) (*Pair, error) {
	p := &Pair{Now: 1, Hook: o.Hook, delay: o.Delay}
	if o.Type == 0 {
		o.Type = qp.RC
	}
	if p.delay == 0 {
		p.delay = time.Microsecond
	}
	for i := range p.Nodes {
		n := &Node{H: NewHost(), now: &p.Now, timer: mono.Never}
		c := qp.Config{Tuning: qp.Software,
			Type: o.Type, QPN: bth.QPN(20 + i), MaxSendWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 256,
			Host: n.H, Counters: &n.Counters,
		}
		if o.Config != nil {
			o.Config(i, &c)
		}
		n.Q = qp.New(c)
		a := o.attr()
		a.DestQPN = uint32(20 + 1 - i)
		if err := Connect(p.Now, n.Q, o.Type, a, qp.RTS); err != nil {
			return nil, err
		}
		p.Nodes[i] = n
	}
	return p, nil
}

// poll sends all packets that may leave now.
func (p *Pair) poll() {
	var t qp.Transmit
	for i, n := range p.Nodes {
		before, silent := n.Counters, !n.Q.Runnable() && p.Now < n.Q.NextTimeout()
		for n.Q.PollTransmit(p.Now, &t) {
			if silent {
				panic("qptest: a queue pair that is not runnable has a packet")
			}
			p.send(i, &t.Packet)
			before = n.Counters
		}
		if n.Q.Blocked() && n.Counters != before {
			panic("qptest: a blocked queue pair has changed counters")
		}
		n.Q.Flushed(p.Now)
		n.H.flushed()
	}
}

// send encodes a packet onto the wire, because payload views end with Flushed.
func (p *Pair) send(from int, pkt *bth.Packet) {
	p.Packets++
	fate := []time.Duration{0}
	if p.Hook != nil {
		fate = p.Hook(from, pkt)
	}
	if len(fate) == 0 {
		return
	}
	b := pkt.AppendTo(nil)
	for _, late := range fate {
		at := p.Now.Add(p.delay + late)
		i := sort.Search(len(p.wire), func(i int) bool { return p.wire[i].at > at })
		p.wire = slices.Insert(p.wire, i, flight{at, 1 - from, b})
	}
}

// deliver delivers the packet that arrives next.
func (p *Pair) deliver() {
	f := p.wire[0]
	p.wire = slices.Delete(p.wire, 0, 1)
	n := p.Nodes[f.to]
	if n.late = append(n.late, f); len(n.late) == 1 {
		p.receive(n)
	}
}

// receive passes the waiting packets to n, until one finds no memory.
func (p *Pair) receive(n *Node) {
	for len(n.late) > 0 {
		var pkt bth.Packet
		if err := pkt.Decode(n.late[0].b); err != nil {
			panic("qptest: decode a sent packet: " + err.Error())
		}
		before, completed := n.Counters, len(n.H.SendCQ)+len(n.H.RecvCQ)
		if n.Q.Receive(p.Now, &pkt, qp.RxMeta{GRH: GRH[:]}) == qp.Later {
			if n.Counters != before || completed != len(n.H.SendCQ)+len(n.H.RecvCQ) {
				panic("qptest: a packet refused with Later has changed counters or completions")
			}
			return
		}
		n.late = slices.Delete(n.late, 0, 1)
	}
}

// resume notifies queue pairs that memory is available.
func (p *Pair) resume() (again bool) {
	for _, n := range p.Nodes {
		if n.Q.Blocked() || len(n.late) > 0 {
			n.Q.Resume(p.Now)
			p.receive(n)
		}
		again = again || n.Q.Blocked() || len(n.late) > 0
	}
	return again
}

// Step sends pending packets, advances to the next event and processes it. It returns false if that event is later
// than limit.
func (p *Pair) Step(limit mono.Time) bool {
	again := p.resume()
	p.poll()
	next := p.Nodes[0].arm().Min(p.Nodes[1].arm())
	if len(p.wire) > 0 {
		next = next.Min(p.wire[0].at)
	}
	if again || p.Nodes[0].Q.Blocked() || p.Nodes[1].Q.Blocked() {
		next = next.Min(p.Now.Add(p.delay))
	}
	if next == mono.Never || next > limit {
		return false
	}
	p.Now = max(p.Now, next)
	for _, n := range p.Nodes {
		if p.Now >= n.Q.NextTimeout() {
			n.Q.OnTimeout(p.Now)
		}
	}
	for len(p.wire) > 0 && p.wire[0].at <= p.Now {
		p.deliver()
	}
	return true
}

// maxSteps is more than any test needs.
const maxSteps = 1 << 20

// Run steps until limit. If limit is mono.Never, it steps until there are no more events. It panics after maxSteps.
func (p *Pair) Run(limit mono.Time) {
	for range maxSteps {
		if !p.Step(limit) {
			if limit != mono.Never {
				p.Now = max(p.Now, limit)
			}
			return
		}
	}
	panic("qptest: the pair still has events after the maximum number of steps")
}

// Wait steps until done returns true, and returns the last result of done.
func (p *Pair) Wait(done func() bool) bool {
	for range maxSteps {
		if done() {
			return true
		}
		if !p.Step(mono.Never) {
			break
		}
	}
	return done()
}
