package engine

import (
	"cmp"
	"slices"
	"time"

	"roced.io/roced/plugin/mono"
)

// flight returns the WQE of a global number, or nil if it is retired.
func (s *sender) flight(gn uint64) *flight {
	if n := s.gn - gn; n == 0 || n > uint64(s.flights.Len()) {
		return nil
	}
	return s.flights.At(uint32(gn))
}

// believes reports whether the engine may have sent all WQEs named by an acknowledgement. Otherwise its sender is
// hostile or broken.
func (c *Conn) believes(a *Ack) bool {
	for i := range a.Len() {
		n, send := a.At(i)
		if !send {
			if !c.believesWrite(Imm(n)) {
				return false
			}
			continue
		}
		if int64(n-c.gn) >= 0 {
			return false
		}
		if f := c.flight(n); f != nil && f.kind == kindWrite {
			return false
		}
	}
	return true
}

// believesWrite reports whether the engine has sent a chunk by WRITE, or may have, in a message that is over.
func (c *Conn) believesWrite(i Imm) bool {
	m := c.writes[i.MessageID()&uint32(len(c.writes)-1)]
	if m == nil || m.mid != i.MessageID() {
		return midDiff(i.MessageID(), c.mid) < 0 && (m == nil || midDiff(i.MessageID(), m.mid) < 0)
	}
	_, found := m.chunk(i.Offset())
	return found
}

// chunk returns the global number of the WRITE of the chunk at offset.
func (m *outbound) chunk(offset uint32) (gn uint64, found bool) {
	i, found := slices.BinarySearchFunc(m.chunks, offset, func(s sentChunk, at uint32) int { return cmp.Compare(s.offset, at) })
	if !found {
		return 0, false
	}
	return m.chunks[i].gn, true
}

// named returns the WQE of the i-th number of a, or nil if it is settled.
func (c *Conn) named(a *Ack, i int) (*flight, uint64) {
	n, send := a.At(i)
	if !send {
		m := c.writes[Imm(n).MessageID()&uint32(len(c.writes)-1)]
		if m == nil || m.mid != Imm(n).MessageID() {
			return nil, 0
		}
		n, _ = m.chunk(Imm(n).Offset())
	}
	return c.flight(n), n
}

// acknowledged processes a valid acknowledgement that arrived at t4.
func (c *Conn) acknowledged(now mono.Time, a *Ack, t4 mono.Time) {
	var latest uint64
	some, sampled := false, false
	var rtt time.Duration
	for i := range a.Len() {
		f, gn := c.named(a, i)
		if f == nil || f.settled {
			continue // the peer acknowledges a retransmission by its own number
		}
		if i == a.Len()-1 && t4 != 0 {
			if sampled = f.left; sampled && f.sent != 0 {
				rtt = t4.Sub(f.sent) - a.Delay // Flor 4.1, equation 1
			}
			f.ackedAt = t4.Add(-a.Delay)
		}
		if !some || int64(gn-latest) > 0 {
			latest = gn
		}
		some = true
		c.arrivedThere(f)
	}
	if !some {
		return
	}
	c.progress, c.timeouts = now, 0
	c.rto = now.Add(c.rtt.timeout(&c.e.cfg, 0))
	if sampled {
		c.feed(now, max(rtt, 0))
	}
	c.findLost(now, latest)
	c.retire()
}

// arrivedThere settles a WQE that has arrived at the peer.
func (c *Conn) arrivedThere(f *flight) {
	f.settled = true
	c.inFlight -= weight(f.n)
	c.flying--
	c.unfed += uint32(weight(f.n))
	if f.kind != kindWrite {
		c.acked.mark(f.rn)
	}
	if m := f.m; m != nil {
		m.open--
		c.settle(m)
	}
}

// findLost declares WQEs lost that precede an arrived WQE of the same queue pair by Reorder or more. Queue pairs keep
// their order (Flor 5).
func (c *Conn) findLost(now mono.Time, latest uint64) {
	slot, lost := c.flights.At(uint32(latest)).slot, uint32(0)
	for ; int64(latest-c.scanned) >= int64(c.e.cfg.Reorder); c.scanned++ {
		f := c.flight(c.scanned)
		if f == nil || f.settled {
			continue
		}
		if f.slot != slot {
			break
		}
		c.lose(f)
		lost++
	}
	if lost > 0 {
		c.chunker.OnLoss()
		c.cc.OnLoss(now, lost, false)
	}
}

// lose settles a lost WQE: SENDs retransmit its content (Flor 5).
func (c *Conn) lose(f *flight) {
	f.settled = true
	c.inFlight -= weight(f.n)
	c.flying--
	c.e.ctr.Lost++
	if p := f.piece; p.kind == kindWrite {
		p.kind = KindRewrite
		c.rewrites.add(p)
	} else {
		c.again.add(p)
	}
}

// loseAll queues all uncompleted WQEs of a queue pair for retransmission.
func (c *Conn) loseAll(now mono.Time, slot int) {
	lost := uint32(0)
	for i := c.flights.Head; i != c.flights.Tail; i++ {
		if f := c.flights.At(i); !f.settled && int(f.slot) == slot {
			c.lose(f)
			lost++
		}
	}
	if lost > 0 {
		c.cc.OnLoss(now, lost, false)
	}
}

// retire drops the oldest WQEs that are settled and completed, in whichever order that happened.
func (c *Conn) retire() {
	for f := c.flights.Oldest(); f != nil && f.settled && f.left; f = c.flights.Oldest() {
		*f = flight{}
		c.flights.Head++
	}
	if first := c.gn - uint64(c.flights.Len()); int64(first-c.scanned) > 0 {
		c.scanned = first
	}
}

// completed processes the completion of a WQE, and reports whether that WQE exists.
func (c *Conn) completed(now mono.Time, cp *Completion) bool {
	f := c.flight(cp.ID)
	if f == nil || f.left || c.slots[f.slot].qp != cp.QP {
		return false
	}
	f.left = true
	m := f.m
	if m != nil {
		m.wqes--
	}
	switch {
	case cp.Kind == Failed:
		if c.err == nil {
			c.switchFrom(now, int(f.slot))
		}
	case c.err != nil:
	case c.e.cfg.Hardware:
		c.confirmed(now, f, cp.At)
	default:
		if f.sent = cp.At; f.settled && f.ackedAt != 0 && cp.At != 0 {
			c.feed(now, max(f.ackedAt.Sub(cp.At), 0))
		}
	}
	c.retire()
	if m != nil {
		c.settle(m)
	}
	return true
}

// confirmed settles a WQE that the NIC's reliability has delivered to the peer (Flor 6). Its round trip lasts from
// posting to completion.
func (c *Conn) confirmed(now mono.Time, f *flight, at mono.Time) {
	if f.settled {
		return
	}
	rtt := now.Sub(f.posted)
	if at != 0 {
		rtt = at.Sub(c.e.clock.NIC(f.posted))
	}
	c.arrivedThere(f)
	c.progress = now
	c.feed(now, max(rtt, 0))
}
