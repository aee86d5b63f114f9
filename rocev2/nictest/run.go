package nictest

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// stuck bounds the calls of the NICs at one instant without a frame. More means that a NIC requests calls that do nothing.
const stuck = 1000

// nodes returns the nodes in the order of service.
func (p *Pair) nodes() [2]*Node { return [2]*Node{p.A, p.B} }

// transmit sends all frames of the NICs.
func (p *Pair) transmit() {
	for carried := true; carried; {
		carried = false
		for _, n := range p.nodes() {
			for f := p.poll(n); f != nil; f = p.poll(n) {
				if f.Forwarded { // the peer may answer
					carried = true
					continue
				}
				if p.o.Leaving != nil {
					p.o.Leaving(n)
				}
				p.send(n, f)
			}
		}
	}
}

// poll takes a frame from n, unless the link is busy.
func (p *Pair) poll(n *Node) *link.Frame {
	if n.waits = p.o.Busy && n.free > p.now; n.waits {
		return nil
	}
	return n.NIC.PollTransmit(p.now)
}

// nextEvent returns the time of the next event.
func (p *Pair) nextEvent() mono.Time {
	return p.link.next().Min(p.A.nextEvent()).Min(p.B.nextEvent())
}

func (n *Node) nextEvent() mono.Time {
	at := n.nextDeferred()
	if n.waits {
		return at.Min(n.free)
	}
	return at.Min(n.NIC.NextTimeout())
}

// step advances the time to the next event and handles it. It returns false if there is none until end.
func (p *Pair) step(end mono.Time) bool {
	p.transmit()
	at := p.nextEvent()
	if at > end {
		return false
	}
	p.now = max(p.now, at)
	for p.link.next() <= p.now {
		p.deliver(p.link.pop())
	}
	for _, n := range p.nodes() {
		n.advanceDeferred(p.now)
		if n.NIC.NextTimeout() <= p.now {
			n.NIC.Advance(p.now)
		}
	}
	p.transmit()
	return true
}

// deliver passes a copy of the frame to its NIC and overwrites it afterwards: the NIC must not keep frames.
func (p *Pair) deliver(f *Flight) {
	p.rx = append(p.rx[:0], f.Frame...)
	f.To.NIC.Receive(p.now, p.rx, f.segSize)
	for i := range p.rx {
		p.rx[i] = 0xdb
	}
}

// RunUntil advances the time until cond holds, at most by limit, and reports whether it holds.
func (p *Pair) RunUntil(cond func() bool, limit time.Duration) bool {
	p.tb.Helper()
	end := p.now.Add(limit)
	last, frames, calls := p.now, p.frames, 0
	for {
		p.transmit()
		if cond() {
			return true
		}
		if !p.step(end) {
			if end != mono.Never {
				p.now = end
			}
			return cond()
		}
		calls++
		if p.now != last || p.frames != frames {
			last, frames, calls = p.now, p.frames, 0
		}
		if calls > stuck {
			p.Fatalf("the time stands still: timeouts of a at %d, of b at %d, link %d",
				p.A.NIC.NextTimeout(), p.B.NIC.NextTimeout(), p.link.next())
		}
	}
}

// Run advances the time by d.
func (p *Pair) Run(d time.Duration) {
	p.tb.Helper()
	p.RunUntil(func() bool { return false }, d)
}

// RunIdle advances the time until no frame is in flight and no timer runs. It is fatal if that takes longer than
// Options.Limit.
func (p *Pair) RunIdle() {
	p.tb.Helper()
	idle := func() bool { return p.nextEvent() == mono.Never }
	if !p.RunUntil(idle, p.o.Limit) {
		p.Fatalf("not idle after %v: timeouts of a at %d, of b at %d, link %d", p.o.Limit,
			p.A.NIC.NextTimeout(), p.B.NIC.NextTimeout(), p.link.next())
	}
}
