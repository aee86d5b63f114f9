package fabric

import "fmt"

// Check verifies that all packets and bytes in buffers and on links are accounted for. held is the number of
// packets that endpoints have neither sent nor freed.
func (n *Network) Check(held int) error {
	for i := range n.switches {
		if err := n.switches[i].check(); err != nil {
			return err
		}
	}
	for i := range n.links {
		l := &n.links[i]
		flying := l.flight.len()
		if in, out := l.Stats.Packets, l.Stats.Delivered+l.Stats.Lost+uint64(flying); in != out {
			return fmt.Errorf("link %s: %d packets entered it, %d are accounted for", l.Name, in, out)
		}
		held += flying + l.urgent.len()
	}
	for i := range n.switches {
		for k := range n.switches[i].ports {
			held += n.switches[i].ports[k].len()
		}
		if w := n.switches[i].weave; w != nil {
			for _, f := range w.held {
				held += f.kept.len()
			}
		}
	}
	used := 0
	for _, a := range n.parts {
		used += a.pool.used
	}
	if held != used {
		return fmt.Errorf("%d packets are in use, %d are in queues, on links and in NICs", used, held)
	}
	return nil
}

func (s *Switch) check() error {
	var queued, stocked, shared int64
	if s.weave != nil {
		queued = s.weave.bytes
	}
	for i := range s.ports {
		o := &s.ports[i]
		sum := int64(0)
		for c := range o.lanes {
			queued := o.lanes[c].bytes
			sum += queued
			if st := &o.stocks[c]; st.bytes < 0 || st.headroom < 0 || queued < 0 {
				return fmt.Errorf("switch %s, port %d, class %d: less than nothing: %+v, %d queued", s.Name, i, c, *st, queued)
			}
			stocked += o.stocks[c].bytes + o.stocks[c].headroom
			if s.buffer.lossless(uint8(c)) {
				shared += s.buffer.beyond(&o.stocks[c])
			}
		}
		if sum != o.queued {
			return fmt.Errorf("switch %s, port %d: %d bytes queued, %d counted", s.Name, i, sum, o.queued)
		}
		queued += sum
	}
	if queued != s.buffer.bytes || stocked != s.buffer.bytes || shared != s.buffer.shared || queued > int64(s.buffer.lossy.Bytes) {
		return fmt.Errorf("switch %s: buffer has %d bytes of %d, %d shared; queues %d, stocks %d, %d shared",
			s.Name, s.buffer.bytes, s.buffer.lossy.Bytes, s.buffer.shared, queued, stocked, shared)
	}
	return nil
}

// len returns the number of queued packets.
func (o *port) len() (n int) {
	for c := range o.lanes {
		n += o.lanes[c].len()
		if o.order != nil {
			n += o.order[c].len()
		}
	}
	return n
}
