package fabric

import "fmt"

// Check reports what must never be: bytes that are not accounted for, in the buffers of switches
// or on links.
func (n *Network) Check() error {
	for i := range n.switches {
		if err := n.switches[i].check(); err != nil {
			return err
		}
	}
	for i := range n.links {
		l := &n.links[i]
		if in, out := l.Stats.Packets, l.Stats.Delivered+l.Stats.Lost+uint64(l.flight.Len()); in != out {
			return fmt.Errorf("link %s: %d packets entered it, %d are accounted for", l.Name, in, out)
		}
	}
	return nil
}

func (s *Switch) check() error {
	var queued, stocked, shared int64
	for i := range s.ports {
		o := &s.ports[i]
		sum := int64(0)
		for c := range o.bytes {
			sum += o.bytes[c]
			if st := &o.stocks[c]; st.bytes < 0 || st.headroom < 0 || o.bytes[c] < 0 {
				return fmt.Errorf("switch %s, port %d, class %d: less than nothing: %+v, %d queued", s.Name, i, c, *st, o.bytes[c])
			}
			stocked += o.stocks[c].bytes + o.stocks[c].headroom
			shared += s.buffer.beyond(&o.stocks[c])
			if !s.buffer.lossless(uint8(c)) {
				stocked += o.bytes[c]
			}
		}
		if sum != o.queued {
			return fmt.Errorf("switch %s, port %d: %d bytes queued, %d counted", s.Name, i, sum, o.queued)
		}
		queued += sum
	}
	if queued != s.buffer.bytes || stocked != s.buffer.bytes || shared != s.buffer.shared || queued > s.buffer.cfg.Bytes {
		return fmt.Errorf("switch %s: buffer has %d bytes of %d, %d shared; queues %d, stocks %d, %d shared",
			s.Name, s.buffer.bytes, s.buffer.cfg.Bytes, s.buffer.shared, queued, stocked, shared)
	}
	return nil
}
