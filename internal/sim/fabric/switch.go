package fabric

import (
	"cmp"
	"math"
	"math/rand/v2"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/engine"
)

// SwitchConfig describes a switch.
type SwitchConfig struct {
	Buffer  BufferConfig
	PFC     PFCConfig
	ECN     ECNConfig
	Port    PortConfig
	Balance BalanceConfig
	// Detour sends packets that find no buffer to another switch by a random port (DIBS: Zarifis et al., EuroSys
	// 2014).
	Detour bool
	// Trim cuts packets that find no buffer to Bytes bytes. Trimmed packets continue in their own class (NDP: Handley
	// et al., SIGCOMM 2017, 3.1). Zero bytes: the switch drops them. Classes is a bit mask of the classes whose packets may
	// be trimmed, as MRC's switches select them by DSCP; zero: all.
	Trim struct {
		Bytes   uint32
		Class   uint8
		Classes uint8
	}
}

// maxHops bounds the number of switches on a packet's path, as the IP header's TTL does.
const maxHops = 64

// Switch is an output-queued switch over a shared buffer.
type Switch struct {
	Name string

	agenda agenda
	routes []uint16 // by host: a port, or oneOf and an index of groups, each plus one; 0: none
	ports  []port
	groups [][]uint16 // ports of equally long paths
	lb     balancer
	weave  *weave // only for "conweave"
	ways   *ways  // only for "ksp"
	net    *Network
	part   *Part
	buffer buffer
	marker marker
	rng    rand.PCG
	cfg    SwitchConfig
	id     int
	fired  uint64 // processed events
}

// oneOf marks routes with several ports.
const oneOf = 1 << 15

func (s *Switch) init(a *Part, id int, name string, c SwitchConfig, ports int) {
	c.PFC.Pause = cmp.Or(c.PFC.Pause, 5*engine.Microsecond)
	n := a.net
	*s = Switch{Name: name, id: id, net: n, part: a, cfg: c, ports: make([]port, ports)}
	s.rng.Seed(n.seed, uint64(id)+1<<32)
	s.buffer.init(c.Buffer, c.PFC, ports)
	s.marker.init(c.ECN)
	s.lb = newBalancer(s, c.Balance)
	for i := range s.ports {
		o := &s.ports[i]
		o.sw, o.marker = s, &s.marker
		if c.Port.SRPT || c.Port.Turns {
			o.order = new([Classes]discipline)
			for k := range o.order {
				o.order[k] = c.Port.discipline(ports)
			}
		}
		o.number = int32(i)
	}
	s.agenda.init(ports*int(things)+1, &a.soonest[len(a.switches)])
	a.switches = append(a.switches, s)
	switch c.Balance.Name {
	case "conweave":
		s.weave = newWeave(s, c.Balance)
		s.lb = s.weave
	case "ksp":
		s.ways = &n.ways
		n.ways.k = max(n.ways.k, c.Balance.paths(8))
	}
}

// advance processes all events before until.
func (s *Switch) advance(until engine.Time) {
	d, ok := s.agenda.take(until)
	for ; ok; d, ok = s.agenda.take(until) {
		if int(d.what) == len(s.ports)*int(things) {
			s.weave.expire(d.at)
			continue
		}
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
		s.fired++
	}
	*s.agenda.soonest = d.at
}

// Arrive implements Sink.
func (s *Switch) Arrive(now engine.Time, in int32, p *Packet) {
	p.in = uint16(in)
	if p.Hops++; p.Hops > maxHops {
		s.part.drop(now, p, TooManyHops)
		return
	}
	way := s.routes[p.Dst]
	if way == 0 {
		s.part.drop(now, p, NoRoute)
		return
	}
	o := s.port(now, way, p)
	if s.weave != nil && p.Kind == Weave && o.toHost {
		s.weave.told(now, p)
		s.part.Free(p)
		return
	}
	if !s.admit(o, p) {
		if o = s.squeeze(o, p); o == nil {
			why := Overflow
			if s.buffer.lossless(p.Class) {
				why = NoHeadroom
			}
			s.part.drop(now, p, why)
			return
		}
	}
	if s.buffer.lossless(p.Class) {
		s.ports[in].watch(now, p.Class)
	}
	if s.weave == nil || !o.toHost || !s.weave.keeps(now, o, p) {
		s.enqueue(now, o, p)
	}
}

// port selects the egress port of p.
func (s *Switch) port(now engine.Time, way uint16, p *Packet) *port {
	switch {
	case s.ways != nil:
		if at, ok := s.ways.choose(s, p); ok {
			return &s.ports[at]
		}
		return &s.ports[s.first(way)]
	case way&oneOf != 0:
		return &s.ports[s.lb.choose(now, s, way&^oneOf-1, p)]
	default:
		return &s.ports[way-1]
	}
}

// enqueue queues p after its admission.
func (s *Switch) enqueue(now engine.Time, o *port, p *Packet) {
	if m := o.marker; !m.dequeue && m.mark(p, o.lanes[p.Class].bytes, &s.rng) {
		o.stats.Marked++
	}
	o.add(p)
	o.out.Wake(now)
}

// Soon implements Sink.
func (s *Switch) Soon(*Packet) {}

// admit admits p to the buffer if there is room for it at egress port o.
func (s *Switch) admit(o *port, p *Packet) bool {
	in := &s.ports[p.in].stocks[p.Class]
	if s.buffer.lossless(p.Class) {
		return s.buffer.admitIngress(in, int64(p.Bytes))
	}
	return s.buffer.admitEgress(in, int64(p.Bytes), o.lanes[p.Class].bytes)
}

// squeeze finds another port for p, or trims and admits it.
func (s *Switch) squeeze(o *port, p *Packet) *port {
	if other := s.detour(p); other != nil {
		return other
	}
	t := &s.cfg.Trim
	if t.Bytes == 0 || p.Kind != Data || p.Cut() || p.Bytes <= t.Bytes || s.buffer.lossless(p.Class) {
		return nil
	}
	if t.Classes != 0 && t.Classes>>p.Class&1 == 0 {
		return nil
	}
	p.Bytes, p.Class = t.Bytes, t.Class
	if o.toHost {
		p.flags |= cutLast
	} else {
		p.flags |= cut
	}
	if !s.admit(o, p) {
		return nil
	}
	o.stats.Trimmed++
	return o
}

// detour admits p at another random port and returns that port, nil if none has room.
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

// left releases the buffer of p when p leaves by o.
func (s *Switch) left(now engine.Time, o *port, p *Packet) {
	if s.part.Telemetry != nil && p.Kind == Data {
		s.record(now, o, p)
	}
	if m := o.marker; m.dequeue && m.mark(p, o.lanes[p.Class].bytes, &s.rng) {
		o.stats.Marked++
	}
	in := &s.ports[p.in]
	if !s.buffer.lossless(p.Class) {
		s.buffer.leaveEgress(&in.stocks[p.Class], int64(p.Bytes))
		return
	}
	s.buffer.leaveIngress(&in.stocks[p.Class], int64(p.Bytes))
	in.watch(now, p.Class)
}

// record adds the state of o to the telemetry of p, which leaves.
func (s *Switch) record(now engine.Time, o *port, p *Packet) {
	if t := s.part.Telemetry(p); t != nil {
		t.Add(uint32(s.id), ccalgo.Hop{At: now.Mono(), Sent: o.out.Stats.Bytes, Rate: o.out.rate, Queued: uint32(min(o.queued, math.MaxUint32))})
	}
}

// Queued returns the number of buffered bytes.
func (s *Switch) Queued() int64 { return s.buffer.bytes }

// Ports returns the number of ports.
func (s *Switch) Ports() int { return len(s.ports) }

// Port returns the counters of port i, its link and its queued bytes.
func (s *Switch) Port(i int) (st PortStats, out *Link, queued int64) {
	o := &s.ports[i]
	return o.stats, o.out, o.queued
}
