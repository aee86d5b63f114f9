package fabric

import (
	"fmt"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/engine"
)

// Part is the switches and hosts of a network that share a clock. A network has one part, or several that may run on
// different processors (engine.Group). Hosts are in the part of their switch.
type Part struct {
	// Owner is notified of packets dropped in this part.
	Owner Owner
	// Telemetry returns where switches add their records of p; nil: nowhere. The function is nil if no packet has telemetry.
	Telemetry func(p *Packet) *ccalgo.Telemetry

	net      *Network
	eng      *engine.Engine
	id       int
	pool     pool
	drops    [Reasons]uint64
	lost     [Classes]uint64 // the same packets by class
	switches []*Switch
	soonest  []engine.Time // by switch: lower bound of its next event

	// Packets for other parts, by window and part: those of this window, and those of the previous one, which the others
	// take.
	boxes  [2][][]letter
	window int         // index of this window's boxes
	first  engine.Time // arrival time of the first packet in them
}

// letter is a packet that enters a link to another part.
type letter struct {
	link *Link
	p    Packet
}

// outbox is where a link to another part puts its packets.
type outbox struct {
	part *Part
	to   int
	last engine.Time // arrival time of the last packet
}

// Next implements engine.Partner.
func (a *Part) Next() engine.Time {
	first := a.first
	for _, at := range a.soonest {
		first = min(first, at)
	}
	return first
}

// Advance implements engine.Partner. Each switch processes all its events before until. Its packets arrive later, so
// the switches do not need to take turns.
func (a *Part) Advance(until engine.Time) {
	for i, at := range a.soonest {
		if at < until {
			a.switches[i].advance(until)
		}
	}
}

// Fired implements engine.Partner.
func (a *Part) Fired() (sum uint64) {
	for _, s := range a.switches {
		sum += s.fired
	}
	return sum
}

// Begin implements engine.Part: it takes the packets that other parts sent in the previous window. No part may send
// packets before all parts have begun the previous window.
func (a *Part) Begin() {
	a.window ^= 1
	a.first = engine.Never
	for i, box := range a.boxes[a.window] {
		a.boxes[a.window][i] = box[:0]
	}
	for _, other := range a.net.parts {
		if other != a {
			a.take(other)
		}
	}
}

// take moves the packets of another part onto their links.
func (a *Part) take(other *Part) {
	letters := other.boxes[a.window^1][a.id]
	for i := range letters {
		p := a.pool.take()
		*p = letters[i].p
		if l := letters[i].link; !l.flight.follow(p) {
			l.expect(p.at)
		}
	}
}

// post puts p, which leaves the part, into the outbox. It frees p.
func (o *outbox) post(l *Link, p *Packet) {
	a := o.part
	o.last = p.at
	a.first = min(a.first, p.at)
	box := &a.boxes[a.window][o.to]
	*box = append(*box, letter{l, *p})
	a.pool.give(p)
}

// Undivided returns an error if both ends of a link between parts draw from its random generator.
func (n *Network) Undivided() error {
	for i := range n.links {
		if l := &n.links[i]; l.away != nil && l.faults.jitter > 0 && l.faults.loss+l.faults.corruption > 0 {
			return fmt.Errorf("link %s has both jitter and losses, which is impossible between the parts of several processors", l.Name)
		}
	}
	return nil
}

// NewPacket returns a packet with undefined contents; the caller sets all fields.
func (a *Part) NewPacket() *Packet { return a.pool.take() }

// Free returns a packet to the pool.
func (a *Part) Free(p *Packet) { a.pool.give(p) }

// drop ends a lost packet. PFC frames are not counted.
func (a *Part) drop(now engine.Time, p *Packet, why Reason) {
	if p.Kind == Data {
		a.drops[why]++
		a.lost[p.Class]++
		a.Owner.Dropped(now, p, why)
	}
	a.Free(p)
}

// Divide returns the part of each switch if n parts share the switches of g. A pod is a set of switches that stay
// connected without the top tier, the switches farthest from hosts; in a fat-tree these are the core. If all switches
// have hosts, each is a pod. Parts have whole pods.
func (g *Graph) Divide(n int) ([]int, error) {
	pod, pods := g.pods()
	if n > pods {
		return nil, fmt.Errorf("%d processors: the topology has only %d pods, and a processor simulates at least one", n, pods)
	}
	of, top, tops := make([]int, len(pod)), 0, 0
	for _, p := range pod {
		if p < 0 {
			tops++
		}
	}
	for i, p := range pod {
		if p >= 0 {
			of[i] = p * n / pods
			continue
		}
		of[i] = top * n / tops
		top++
	}
	return of, nil
}

// pods returns the pod of each switch, -1 for those of the top tier, and the number of pods.
func (g *Graph) pods() (pod []int, pods int) {
	near := make([][]int, len(g.Switches))
	tier := make([]int, len(g.Switches))
	var queue []int
	for _, c := range g.Cables {
		a, b := int(c.A)-g.Hosts, int(c.B)-g.Hosts
		switch {
		case a >= 0 && b >= 0:
			near[a], near[b] = append(near[a], b), append(near[b], a)
		case max(a, b) >= 0 && tier[max(a, b)] == 0:
			tier[max(a, b)] = 1
			queue = append(queue, max(a, b))
		}
	}
	top := 1
	for ; len(queue) > 0; queue = queue[1:] {
		for _, b := range near[queue[0]] {
			if tier[b] == 0 {
				tier[b] = tier[queue[0]] + 1
				top = tier[b]
				queue = append(queue, b)
			}
		}
	}
	pod = make([]int, len(g.Switches))
	for i := range pod {
		pod[i] = -1
	}
	var fill func(i int)
	fill = func(i int) {
		pod[i] = pods
		for _, b := range near[i] {
			if top > 1 && pod[b] < 0 && tier[b] < top {
				fill(b)
			}
		}
	}
	for i := range pod {
		if pod[i] < 0 && (top == 1 || tier[i] < top) {
			fill(i)
			pods++
		}
	}
	return pod, pods
}
