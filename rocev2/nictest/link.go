package nictest

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Flight is a frame in flight.
type Flight struct {
	At       mono.Time // when it was sent
	From, To *Node
	Seq      int    // number of frames that From had sent before
	Frame    []byte // private copy, which a hook may change
	segSize  int
}

// Fate is the decision of a hook on a frame.
type Fate struct {
	Drop      bool
	Delay     time.Duration // in addition to the link's; later frames may overtake
	Copies    int           // additional deliveries, CopyDelay apart
	CopyDelay time.Duration
}

// Hook decides the fate of each frame.
type Hook func(f *Flight) Fate

// RoCE decodes the frame's transport packet into p. ok is false for other protocols (ARP, neighbour discovery, ICMP). The
// payload is a view.
func (f *Flight) RoCE(p *bth.Packet) (ok bool) {
	b := udpPayload(f.Frame)
	return b != nil && p.Decode(b) == nil
}

// udpPayload returns the payload of a UDP datagram to the RoCEv2 port, nil for other frames.
func udpPayload(frame []byte) []byte {
	l4, body, _, ok := inet.UDPBody(frame)
	if !ok || binary.BigEndian.Uint16(frame[l4+2:]) != bth.UDPPort {
		return nil
	}
	return frame[body:]
}

// Hooks combines hooks. A frame that one drops does not reach the next; delays and copies add up.
func Hooks(hooks ...Hook) Hook {
	return func(f *Flight) (sum Fate) {
		for _, h := range hooks {
			x := h(f)
			if x.Drop {
				return x
			}
			sum.Delay += x.Delay
			sum.Copies += x.Copies
			sum.CopyDelay = max(sum.CopyDelay, x.CopyDelay)
		}
		return sum
	}
}

// OnlyRoCE applies h to RoCE frames only and so spares address resolution.
func OnlyRoCE(h Hook) Hook {
	return func(f *Flight) Fate {
		if udpPayload(f.Frame) == nil {
			return Fate{}
		}
		return h(f)
	}
}

// random draws an event with probability p.
func (f *Flight) random(p float64) bool { return f.From.pair.RNG.Float64() < p }

// Drop drops frames with this probability.
func Drop(p float64) Hook {
	return func(f *Flight) Fate { return Fate{Drop: f.random(p)} }
}

// Duplicate delivers frames twice with this probability, the second time after delay.
func Duplicate(p float64, delay time.Duration) Hook {
	return func(f *Flight) Fate {
		if !f.random(p) {
			return Fate{}
		}
		return Fate{Copies: 1, CopyDelay: delay}
	}
}

// Reorder delays frames with this probability by up to most.
func Reorder(p float64, most time.Duration) Hook {
	return func(f *Flight) Fate {
		if !f.random(p) {
			return Fate{}
		}
		return Fate{Delay: time.Duration(f.From.pair.RNG.Int64N(int64(most) + 1))}
	}
}

// Corrupt flips one bit behind the Ethernet header with this probability.
func Corrupt(p float64) Hook {
	return func(f *Flight) Fate {
		if f.random(p) {
			bit := f.From.pair.RNG.IntN((len(f.Frame) - 14) * 8)
			f.Frame[14+bit/8] ^= 1 << (bit % 8)
		}
		return Fate{}
	}
}

// DropNth drops the RoCE frames of node from that match and whose index among them, from 0, is in nth. A nil match matches
// all.
func DropNth(from *Node, match func(*bth.Packet) bool, nth ...int) Hook {
	seen := 0
	return func(f *Flight) Fate {
		var p bth.Packet
		if f.From != from || !f.RoCE(&p) || match != nil && !match(&p) {
			return Fate{}
		}
		seen++
		return Fate{Drop: slices.Contains(nth, seen-1)}
	}
}

// wire holds the frames in flight, in the order of their arrival.
type wire []arrival

type arrival struct {
	at mono.Time
	f  *Flight
}

// add inserts f behind the frames that arrive at the same time.
func (l *wire) add(at mono.Time, f *Flight) {
	i, _ := slices.BinarySearchFunc(*l, at+1, func(a arrival, t mono.Time) int { return cmp.Compare(a.at, t) })
	*l = slices.Insert(*l, i, arrival{at, f})
}

// pop removes and returns the first frame.
func (l *wire) pop() *Flight {
	f := (*l)[0].f
	*l = slices.Delete(*l, 0, 1)
	return f
}

// next returns when the next frame arrives.
func (l *wire) next() mono.Time {
	if len(*l) == 0 {
		return mono.Never
	}
	return (*l)[0].at
}

// send puts a frame of n on the link and segments a super-frame.
func (p *Pair) send(n *Node, f *link.Frame) {
	p.tx = f.AppendTo(p.tx[:0])
	if len(p.tx) != f.Len {
		p.Fatalf("a frame of %d bytes has Len %d", len(p.tx), f.Len)
	}
	if p.o.Whole && f.SegSize > 0 {
		p.fly(n, append([]byte(nil), p.tx...), f.SegSize, nil)
		return
	}
	for i := range link.Segments(p.tx, f.SegSize) {
		p.fly(n, link.Segment(nil, p.tx, f.SegSize, i), 0, p.o.Hook)
	}
}

// fly applies the hook to one frame and delivers it.
func (p *Pair) fly(n *Node, b []byte, segSize int, hook Hook) {
	f := &Flight{At: p.now, From: n, To: n.Peer(), Seq: n.sent, Frame: b, segSize: segSize}
	n.sent++
	p.frames += link.Segments(b, segSize)
	p.note(f)
	n.free = max(n.free, p.now)
	if p.o.Rate > 0 {
		n.free = n.free.Add(time.Duration(uint64(len(b)) * 8 * uint64(time.Second) / p.o.Rate))
	}
	at := n.free.Add(p.o.Delay)
	var fate Fate
	if hook != nil {
		fate = hook(f)
	}
	if fate.Drop {
		return
	}
	at = at.Add(fate.Delay)
	p.link.add(at, f)
	for range fate.Copies {
		at = at.Add(fate.CopyDelay)
		p.link.add(at, f)
	}
}

// note adds a frame to the digest, before a hook changes it.
func (p *Pair) note(f *Flight) {
	var h [9]byte
	binary.LittleEndian.PutUint64(h[:], uint64(f.At))
	h[8] = f.From.Name[0]
	p.digest.Write(h[:])
	p.digest.Write(f.Frame)
}
