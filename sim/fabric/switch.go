package fabric

import (
	"math/rand/v2"

	"roced/sim/engine"
)

// SwitchConfig describes a switch.
type SwitchConfig struct {
	Buffer    BufferConfig
	ECN       ECNConfig
	Port      PortConfig
	PauseTime engine.Time // that a PFC frame holds; default 5 us
	Balance   BalanceConfig
	// Detour makes packets without room go to another switch instead, by a random port (DIBS:
	// Zarifis et al., EuroSys 2014).
	Detour bool
}

// maxHops bounds how many switches a packet passes, as the IP header's TTL does.
const maxHops = 64

// Switch is an output-queued switch over a shared buffer.
type Switch struct {
	Name string

	agenda agenda
	routes []uint16 // by host: a port, or oneOf and which of groups leads to it, each plus one; 0: none
	ports  []port
	groups [][]uint16 // ports
	lb     balancer
	net    *Network
	buffer buffer
	marker marker
	rng    rand.PCG
	cfg    SwitchConfig
	id     int
	fired  uint64 // what has been due
}

// oneOf marks routes with several ports.
const oneOf = 1 << 15

func (s *Switch) init(n *Network, id int, name string, c SwitchConfig, ports int) {
	if c.PauseTime == 0 {
		c.PauseTime = 5 * engine.Microsecond
	}
	*s = Switch{Name: name, id: id, net: n, cfg: c, ports: make([]port, ports)}
	s.rng.Seed(n.seed, uint64(id)+1<<32)
	s.buffer.init(c.Buffer, ports)
	s.marker.init(c.ECN)
	s.lb = newBalancer(s, c.Balance)
	for i := range s.ports {
		o := &s.ports[i]
		o.sw = s
		if c.Port.SRPT {
			o.ranked = new([Classes]ranked)
		}
		o.number = int32(i)
	}
	s.agenda.init(ports*int(things), &n.soonest[id])
}

// advance does what is due before until.
func (s *Switch) advance(until engine.Time) {
	a := &s.agenda
	for a.next() < until {
		d := a.begin()
		o := &s.ports[d.what/things]
		switch d.what % things {
		case whatArrive:
			o.out.Reverse.deliver(d.at)
		case whatFree:
			o.out.free(d.at)
		case whatResume:
			o.out.expirePauses(d.at)
		case whatRefresh:
			o.refresh(d.at)
		}
		a.done()
		s.fired++
	}
	s.net.soonest[s.id] = a.next()
}

// Arrive implements Sink.
func (s *Switch) Arrive(now engine.Time, in int32, p *Packet) {
	p.in = uint16(in)
	if p.Hops++; p.Hops > maxHops {
		s.net.drop(now, p, TooManyHops)
		return
	}
	way := s.routes[p.Dst]
	switch {
	case way == 0:
		s.net.drop(now, p, NoRoute)
		return
	case way&oneOf != 0:
		way = s.lb.choose(now, s, way&^oneOf-1, p)
	default:
		way--
	}
	o := &s.ports[way]
	if !s.admit(o, p) {
		if o = s.detour(p); o == nil {
			why := Overflow
			if s.buffer.lossless(p.Class) {
				why = NoHeadroom
			}
			s.net.drop(now, p, why)
			return
		}
	}
	if m := &s.marker; !m.cfg.AtDequeue && m.mark(p, o.lanes[p.Class].bytes, &s.rng) {
		o.stats.Marked++
	}
	o.add(p)
	if s.buffer.lossless(p.Class) {
		s.ports[in].watch(now, p.Class)
	}
	o.out.Wake(now)
}

// Soon implements Sink.
func (s *Switch) Soon(*Packet) {}

// admit takes p into the buffer, if there is room on its way out by o.
func (s *Switch) admit(o *port, p *Packet) bool {
	if s.buffer.lossless(p.Class) {
		return s.buffer.admitIngress(&s.ports[p.in].stocks[p.Class], int64(p.Bytes))
	}
	return s.buffer.admitEgress(int64(p.Bytes), o.lanes[p.Class].bytes)
}

// detour returns another port by which p may leave and admits it there, nil if there is none.
func (s *Switch) detour(p *Packet) *port {
	if !s.cfg.Detour || s.buffer.lossless(p.Class) {
		return nil
	}
	n := len(s.ports)
	first := int(s.rng.Uint64() % uint64(n))
	for i := range n {
		o := &s.ports[(first+i)%n]
		if !o.toHost && !o.out.down && s.admit(o, p) {
			return o
		}
	}
	return nil
}

// left gives back the buffer of p, which leaves by o.
func (s *Switch) left(now engine.Time, o *port, p *Packet) {
	if m := &s.marker; m.cfg.AtDequeue && m.mark(p, o.lanes[p.Class].bytes, &s.rng) {
		o.stats.Marked++
	}
	if !s.buffer.lossless(p.Class) {
		s.buffer.leaveEgress(int64(p.Bytes))
		return
	}
	in := &s.ports[p.in]
	s.buffer.leaveIngress(&in.stocks[p.Class], int64(p.Bytes))
	in.watch(now, p.Class)
}

// Queued is how many bytes the switch holds.
func (s *Switch) Queued() int64 { return s.buffer.bytes }

// Ports is the number of ports.
func (s *Switch) Ports() int { return len(s.ports) }

// Port returns what port i has done, its link and what is queued for it.
func (s *Switch) Port(i int) (st PortStats, out *Link, queued int64) {
	o := &s.ports[i]
	return o.stats, o.out, o.queued
}
