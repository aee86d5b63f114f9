// Package sim simulates RDMA over a fabric: it runs the daemon's transports, the same code, on simulated
// NICs, links and switches. A Config describes a simulation, which New creates and Run runs. The result
// has the duration of each message and the counters of the network. The same Config gives the same
// result on every machine.
//
// Four hosts send 100 KB to a fifth one at once, over a switch that drops packets without buffer space:
//
//	s, err := sim.New(sim.Config{
//		Graph: fabric.Star(fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}, 5),
//		Switch: func(_, _ int) fabric.SwitchConfig {
//			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 1 << 20}}
//		},
//		Profile: "irn",
//		Apps:    []workload.App{&workload.OpenLoop{Next: workload.List(workload.Incast(5, 0, 4, 100_000, 0))}},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	r, err := s.Run()
//	if err != nil {
//		log.Fatal(err)
//	}
//	for _, f := range r.Flows {
//		fmt.Printf("host %d: %.1f us\n", f.Src, f.FCT.Seconds()*1e6)
//	}
//
// The parts can be used separately: engine is the clock, fabric the network, nic has the NICs, workload
// the traffic, result the output; scenario reads a Config from a file.
package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/inside"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// Config describes a simulation.
type Config struct {
	Name  string
	Seed  uint64
	Graph *fabric.Graph
	// Switch returns the configuration of the i-th switch, which has so many ports.
	Switch  func(i, ports int) fabric.SwitchConfig
	Framing nic.Framing
	// Contexts is the cost of many queue pairs in a NIC.
	Contexts nic.Contexts
	Classes  nic.Classes
	// DSCP has the DSCP of packets in captures and for fault rules, by class; nil: class selectors (RFC 2474 4.2.2).
	DSCP *[fabric.Classes]uint8

	// Planes is the number of ports of each NIC, in as many copies of the network (fabric.Planes): Graph has the hosts of
	// all. Zero is one.
	Planes int
	// HostIDs has the IDs of hosts in a topology file; nil: their numbers.
	HostIDs []int

	Profile string // one of profile.Names
	Spec    profile.Spec
	// Specs has the exceptions by host.
	Specs map[int]profile.Spec
	QP    nic.QPConfig // without Profile and User
	// Transports are further transports, which messages select by number (workload.Flow), or by their source (Senders).
	Transports []Transport
	Senders    map[int]int // number of the transport from 1, by host
	MTU        int         // path MTU in bytes; default 1000
	// Persistent keeps a connection for each pair of hosts. Otherwise each message has its own.
	Persistent bool
	// Ideal returns the duration that slowdowns refer to; path is a shortest path. Default: the exact duration in
	// an empty network.
	Ideal func(f *workload.Flow, path []*fabric.Link) engine.Time

	Apps   []workload.App
	Events []Event
	Faults map[string][]string // fault rules by link name, see Simulation.Faults
	Until  engine.Time         // default: until no event is pending
	// Sample is the interval of samples of queues and goodput; zero: none.
	Sample engine.Time
	// Queues names the links of switches whose queues are sampled.
	Queues []string
	// Payload is the total size of all messages in bytes, for Progress; zero: unknown.
	Payload uint64
	// Processors, if not zero, is the number of parts of the network that run at the same time (Graph.Divide). The result
	// does not depend on it. It equals that without Processors, except that messages which end at the same instant are in
	// the order of their numbers, and for Result.Late: after the end of a message its other host closes the connection up
	// to one link delay later, and may still answer a packet.
	Processors int
	// Check verifies the network's invariants every quarter of a millisecond.
	Check bool
	// Inside measures the internal state of queue pairs for Result.Inside, except those that Opened traces itself.
	Inside bool
	// Opened is called for each new connection, for tracing; may be nil.
	Opened func(first, second *nic.QP, f *workload.Flow)
}

// Transport is a transport besides that of Config.Profile.
type Transport struct {
	Profile string
	Spec    profile.Spec
	QP      nic.QPConfig // as Config.QP
}

// Event changes the network at an instant.
type Event struct {
	At engine.Time
	Do func(n *fabric.Network)
}

// Hosts returns the number of hosts.
func (c *Config) Hosts() int { return c.Graph.Machines() / max(c.Planes, 1) }

// ErrUnfinished reports messages that were outstanding when no event was pending.
var ErrUnfinished = errors.New("messages never ended")

// Simulation is a simulation, which can run once.
type Simulation struct {
	// Watch, if not nil, is called regularly while the simulation runs, for example to show progress. An error ends
	// the run.
	Watch func() error
	// Interrupted, if not nil, is called more often, after some link delays. If it reports true, Watch is called, to end the run.
	Interrupted func() bool

	cfg     Config
	clock   *engine.Group
	cluster *nic.Cluster
	runner  *workload.Runner
	makers  []*profile.Maker
	result  result.Result
	sampler sampler
	events  eventTimer
	last    progress
	path    []*fabric.Link // scratch
	inside  *inside.Inside // nil unless Config.Inside
	// repeated is the number of events that only exist because there are several parts.
	repeated uint64
}

// New creates the network and its hosts.
func New(c Config) (*Simulation, error) {
	c.MTU = cmp.Or(c.MTU, 1000)
	c.QP.MTU = cmp.Or(c.QP.MTU, c.MTU)
	c.Planes = max(c.Planes, 1)
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Simulation{cfg: c}
	if err := s.build(); err != nil {
		return nil, err
	}
	s.makers = s.newMakers(&c)
	c.QP.Profile = func(nic int) (qp.Profile, error) { return s.makers[nic].New(c.Profile, c.spec(c.Graph.Machine(nic))) }
	if c.Ideal == nil {
		b := s.bytes()
		c.Ideal = func(f *workload.Flow, path []*fabric.Link) engine.Time {
			if f.Service != workload.RC {
				return b.OneWay(f.Bytes, path)
			}
			return b.Ideal(f.Bytes, path)
		}
	}
	if c.Inside {
		s.inside = inside.New(c.Hosts())
		c.Opened = s.watchInside(c.QP.MaxUnacked, c.Opened)
	}
	s.runner = workload.NewRunner(s.cluster, workload.Config{QP: c.QP, Clock: s.clock, Persistent: c.Persistent, Ideal: s.ideal, Ended: s.ended, Opened: c.Opened,
		Supports: supports(c.Profile), Transports: s.transports(c.Transports, &c.QP), Senders: c.Senders})
	s.cfg = c
	for _, a := range c.Apps {
		s.runner.Add(a)
	}
	if err := s.sampler.find(s.cluster.Network(), c.Queues); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Faults)) {
		links, err := s.cluster.Network().Named(name)
		if err != nil {
			return nil, err
		}
		if err := s.Faults(links, c.Faults[name]...); err != nil {
			return nil, err
		}
	}
	s.result.Name, s.result.Seed, s.result.Profile, s.result.HostIDs = c.Name, c.Seed, c.Profile, c.HostIDs
	return s, nil
}

func supports(name string) func(op qp.WROpcode) bool {
	return func(op qp.WROpcode) bool { return profile.Supports(name, op) }
}

// transports completes further transports with values of the default one's queue pairs.
func (s *Simulation) transports(list []Transport, base *nic.QPConfig) (out []workload.Transport) {
	for _, t := range list {
		q := t.QP
		q.MTU, q.MaxUnacked = base.MTU, cmp.Or(q.MaxUnacked, base.MaxUnacked)
		q.Profile = func(nic int) (qp.Profile, error) { return s.makers[nic].New(t.Profile, t.Spec) }
		out = append(out, workload.Transport{QP: q, Supports: supports(t.Profile)})
	}
	return out
}

// build creates the clock, the network and the NICs.
func (s *Simulation) build() (err error) {
	c := &s.cfg
	e := new(engine.Engine)
	s.clock = engine.Alone(e)
	net := fabric.Config{Graph: c.Graph, Switch: c.Switch, Seed: c.Seed}
	if c.Processors > 0 {
		if net.Engines, net.Parts, err = s.parallel(e); err != nil {
			return err
		}
	}
	s.cluster, err = nic.NewCluster(e, nic.Config{Framing: c.Framing, Contexts: c.Contexts, Classes: c.Classes, MTU: c.MTU, Planes: c.Planes, Engines: net.Engines, Telemetry: c.telemetry(), Explicit: c.explicit(),
		Network: func(o fabric.Owner) (*fabric.Network, error) {
			net.Owner = o
			return fabric.New(e, net)
		}})
	return err
}

// telemetry reports whether some congestion control needs telemetry.
func (c *Config) telemetry() bool {
	needs := ccalgo.NeedsTelemetry(c.Spec.Congestion.Name)
	for _, s := range c.Specs {
		needs = needs || ccalgo.NeedsTelemetry(s.Congestion.Name)
	}
	for i := range c.Transports {
		needs = needs || ccalgo.NeedsTelemetry(c.Transports[i].Spec.Congestion.Name)
	}
	return needs
}

// explicit reports whether switches follow the paths that packets name.
func (c *Config) explicit() bool {
	return len(c.Graph.Switches) > 0 && c.Switch != nil && c.Switch(0, 0).Balance.Name == fabric.Explicit
}

// spec returns the spec of a host.
func (c *Config) spec(host int) profile.Spec {
	if s, ok := c.Specs[host]; ok {
		return s
	}
	return c.Spec
}

// validate checks the transports.
func (c *Config) validate() error {
	errs := []error{profile.Validate(c.Profile, c.Spec)}
	for _, host := range slices.Sorted(maps.Keys(c.Specs)) {
		if err := profile.Validate(c.Profile, c.Specs[host]); err != nil {
			errs = append(errs, fmt.Errorf("host %d: %w", host, err))
		}
	}
	for i := range c.Transports {
		if err := profile.Validate(c.Transports[i].Profile, c.Transports[i].Spec); err != nil {
			errs = append(errs, fmt.Errorf("transport %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// watchInside measures both ends of a connection, and then calls opened if it is not nil.
func (s *Simulation) watchInside(outstanding uint32, opened func(first, second *nic.QP, f *workload.Flow)) func(first, second *nic.QP, f *workload.Flow) {
	return func(first, second *nic.QP, f *workload.Flow) {
		s.inside.Watch(first, outstanding)
		s.inside.Watch(second, outstanding)
		if opened != nil {
			opened(first, second, f)
		}
	}
}

// Cluster returns the simulated NICs and their network.
func (s *Simulation) Cluster() *nic.Cluster { return s.cluster }

// bytes returns the sizes on a link of a transport's middle packets.
func (s *Simulation) bytes() workload.Bytes {
	b := workload.Bytes{Payload: uint32(s.cfg.QP.MTU), Header: uint32(s.cfg.Framing.Header), Ack: uint32(s.cfg.Framing.Control)}
	if b.Header == 0 { // standard headers: Ethernet, IPv4, UDP, BTH, ICRC; see nic.Framing
		b.Header, b.Ack = 14+20+8+bth.BTHLen+bth.ICRCLen+24, 60+24
	}
	return b
}

// ideal returns the duration of f in an empty network.
func (s *Simulation) ideal(f *workload.Flow) engine.Time {
	s.path = s.cluster.Path(f.Src, f.Dst, s.path[:0])
	if n := uint32(s.cfg.Planes); n > 1 {
		part := *f
		part.Bytes = (f.Bytes + n - 1) / n
		return s.cfg.Ideal(&part, s.path)
	}
	return s.cfg.Ideal(f, s.path)
}

// hardwareRTO is the timeout of Eunomia, which assumes one as short as IRN's (Eunomia 3.2.3, IRN 4.1). The default
// of a queue pair, 67 ms, allows for delays of daemons.
const hardwareRTO = 320 * time.Microsecond

// span is the scale of a network, between whose NICs packets can travel.
type span struct {
	first    int         // NIC
	rtt      engine.Time // longest round trip of a full packet and its acknowledgement from the first NIC, without other traffic
	fastest  float64     // rate of a NIC
	capacity float64     // bytes on the longest path of the first NIC, at its rate
}

// spans returns the span of each NIC's network.
func (s *Simulation) spans() (of []*span) {
	net, b, known := s.cluster.Network(), s.bytes(), map[int]*span{}
	networks := net.Graph().Networks()
	for h := range net.Hosts() / s.cfg.Planes {
		x := known[networks[h]]
		if x == nil {
			x = &span{first: h}
			known[networks[h]] = x
		} else {
			x.rtt = max(x.rtt, b.Ideal(b.Payload, net.Path(x.first, h, nil)))
		}
		x.fastest = max(x.fastest, s.rate(h))
		of = append(of, x)
	}
	for _, x := range known {
		x.capacity = x.rtt.Duration().Seconds() * s.rate(x.first) / 8
	}
	return of
}

// rate returns the rate of a NIC, of all its ports.
func (s *Simulation) rate(nic int) float64 {
	return float64(s.cluster.Network().Uplink(nic).Rate()) * float64(s.cfg.Planes)
}

// newMakers returns the makers of plug-ins, by NIC. It sets the default limit of outstanding packets: four times the
// capacity of the longest path.
func (s *Simulation) newMakers(c *Config) (makers []*profile.Maker) {
	capacity := 0.0
	for h, x := range s.spans() {
		makers = append(makers, profile.NewMaker(profile.Link{Rate: s.rate(h), RTT: x.rtt.Duration(), MTU: s.cfg.QP.MTU, Fastest: x.fastest, RTO: hardwareRTO}))
		capacity = max(capacity, x.capacity)
	}
	c.QP.MaxUnacked = cmp.Or(c.QP.MaxUnacked, max(uint32(min(4*capacity, 1<<31))/uint32(s.cfg.QP.MTU), 64))
	return makers
}

// Run runs until everything has ended, or Config.Until. If Watch ends it, the result is that until then.
func (s *Simulation) Run() (*result.Result, error) {
	s.events.start(s)
	s.sampler.start(s)
	s.runner.Start()
	s.clock.Interrupt(s.Interrupted)
	for s.more() {
		s.clock.Run(min(s.clock.Now()+slice, s.until()))
		if err := s.check(); err != nil {
			return nil, err
		}
		s.findDeadlock()
		if s.Watch != nil {
			if err := s.Watch(); err != nil {
				s.finish()
				return &s.result, err
			}
		}
	}
	s.finish()
	if err := s.runner.Err(); err != nil {
		return nil, err
	}
	if n := s.runner.Running(); n > 0 && s.cfg.Until == 0 {
		return &s.result, fmt.Errorf("%d %w", n, ErrUnfinished)
	}
	return &s.result, nil
}

// slice is how long the engine runs between two checks for the end.
const slice = engine.Millisecond / 4

func (s *Simulation) until() engine.Time {
	return cmp.Or(s.cfg.Until, engine.Never)
}

// more reports whether events besides samples are pending.
func (s *Simulation) more() bool {
	idle := s.clock.Pending() <= s.sampler.pending()
	return s.runner.Err() == nil && s.clock.Now() < s.until() && !idle && !s.stuck()
}

func (s *Simulation) check() error {
	if !s.cfg.Check {
		return nil
	}
	return s.cluster.Check()
}

// Progress is the progress of a running simulation.
type Progress struct {
	Now   engine.Time
	Done  int // completed messages
	Under int // outstanding messages
	// Part is the completed part of the payload, or of the time until Config.Until; zero if both are unknown.
	Part float64
}

// Progress returns the progress of the simulation.
func (s *Simulation) Progress() Progress {
	p := Progress{Now: s.clock.Now(), Done: len(s.result.Flows), Under: s.runner.Running()}
	if s.cfg.Payload > 0 {
		p.Part = min(float64(s.cluster.Placed())/float64(s.cfg.Payload), 1)
	}
	if s.cfg.Until > 0 {
		p.Part = max(p.Part, float64(p.Now)/float64(s.cfg.Until))
	}
	return p
}

// ended records a message.
func (s *Simulation) ended(f *workload.Flow) {
	s.result.Flows = append(s.result.Flows, result.Flow{
		ID: f.ID, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Start: f.Start, FCT: f.End - f.Start, Ideal: f.Ideal, Slowdown: f.Slowdown(), Class: f.Class, Port: f.Port})
}
