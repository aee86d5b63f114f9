package fabric

import (
	"math/bits"
	"slices"

	"roced.io/roced/internal/sim/engine"
)

// Deadlock is a cycle of links that flow control has stopped permanently: the packets of a class that keep each link stopped wait
// for the next link, and those of the last link for the first.
type Deadlock struct {
	Class uint8
	Since engine.Time // when the last link stopped
	Links []*Link
}

// Deadlock returns the first cycle of the lowest class, nil if there is none.
func (n *Network) Deadlock() *Deadlock {
	paused := uint8(0)
	for i := range n.links {
		paused |= n.links[i].paused
	}
	for ; paused != 0; paused &= paused - 1 {
		class := uint8(bits.TrailingZeros8(paused))
		k := knot{class: class, stuck: map[*Link]map[uint16]int64{}}
		for i := range n.links {
			if l := &n.links[i]; k.stopped(l) {
				k.links = append(k.links, l)
			}
		}
		for k.shrink() {
		}
		if len(k.links) > 0 {
			return k.cycle()
		}
	}
	return nil
}

// knot is links that a class stopped, and that resume at most because of links outside.
type knot struct {
	class uint8
	links []*Link
	stuck map[*Link]map[uint16]int64 // bytes that wait for a link of the knot, by ingress port of its switch
}

// stopped reports whether the switch at l's end has stopped it.
func (k *knot) stopped(l *Link) bool {
	s, ok := l.dst.(*Switch)
	return ok && l.paused>>k.class&1 != 0 && s.ports[l.dstPort].stocks[k.class].stopped
}

// shrink removes the links that resume when all packets which do not wait for links of the knot have left. It returns false if
// there is none.
func (k *knot) shrink() bool {
	clear(k.stuck)
	for _, l := range k.links {
		if o, ok := l.src.(*port); ok {
			k.stuck[l] = o.waiting(k.class)
		}
	}
	before := len(k.links)
	k.links = slices.DeleteFunc(k.links, func(l *Link) bool { return l.dst.(*Switch).wouldResume(l.dstPort, k) })
	return len(k.links) < before
}

// waiting returns the bytes of a class that wait for o, by ingress port.
func (o *port) waiting(class uint8) map[uint16]int64 {
	bytes := map[uint16]int64{}
	count := func(p *Packet) { bytes[p.in] += int64(p.Bytes) }
	if o.order != nil {
		o.order[class].each(count)
	} else {
		o.lanes[class].each(count)
	}
	return bytes
}

// wouldResume reports whether the sender at a port would resume if the switch held only the packets stuck in k.
func (s *Switch) wouldResume(in int32, k *knot) bool {
	b := buffer{pfc: s.buffer.pfc, pauseAlpha: s.buffer.pauseAlpha}
	var at stock
	for i := range s.ports {
		left := s.ports[i].stocks[k.class] // without the packets that leave, first those of the headroom
		stuck := k.into(s, uint16(i))
		left.headroom = max(left.headroom-(left.headroom+left.bytes-stuck), 0)
		left.bytes = stuck - left.headroom
		b.shared += b.beyond(&left)
		if int32(i) == in {
			at = left
		}
	}
	return b.resumes(&at)
}

// into returns the stuck bytes that came in by a port of s.
func (k *knot) into(s *Switch, in uint16) (sum int64) {
	for i := range s.ports {
		sum += k.stuck[s.ports[i].out][in]
	}
	return sum
}

// cycle begins with the first link of the knot and follows the links. Each link of a knot waits for another one.
func (k *knot) cycle() *Deadlock {
	d := &Deadlock{Class: k.class}
	for l := k.links[0]; ; {
		if i := slices.Index(d.Links, l); i >= 0 {
			d.Links = d.Links[i:]
			break
		}
		d.Links = append(d.Links, l)
		s := l.dst.(*Switch)
		i := slices.IndexFunc(s.ports, func(o port) bool { return k.stuck[o.out][uint16(l.dstPort)] > 0 })
		l = s.ports[i].out
	}
	for _, l := range d.Links {
		d.Since = max(d.Since, l.pausedSince)
	}
	return d
}
