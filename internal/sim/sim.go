// Package sim simulates RDMA over a fabric: the transports of the daemon, the very same code, on
// simulated NICs, links and switches. A simulation is a Config, run by New and Run; the result
// says how long each message took and what the network did meanwhile. The same Config gives the
// same result on every machine.
//
// Four hosts send 100 KB to a fifth one at once, over a switch that drops what it has no room for:
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
// What it is made of can be used by itself: engine is the clock, fabric the network, nic the NICs,
// workload what hosts do, result what is shown of it, scenario reads all of it from a file.
package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"roced.io/roced/bth"
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
	// Switch is what the i-th switch, with so many ports, is like.
	Switch  func(i, ports int) fabric.SwitchConfig
	Framing nic.Framing
	Classes nic.Classes

	Profile string // of profile.Names
	Spec    profile.Spec
	// Specs are those of hosts that have another one.
	Specs map[int]profile.Spec
	QP    nic.QPConfig // but for Profile and User
	MTU   int          // path MTU in bytes; default 1000
	// Persistent keeps a connection for each pair of hosts; else each message has its own.
	Persistent bool
	// Ideal is what slowdowns are measured by, over the links of a shortest way; default: what an
	// empty network takes, exactly.
	Ideal func(f *workload.Flow, path []*fabric.Link) engine.Time

	Apps   []workload.App
	Events []Event
	Faults map[string][]string // rules by the name of a link, see Simulation.Faults
	Until  engine.Time         // default: until nothing happens any more
	// Sample is how often queues and goodput are looked at; zero: never.
	Sample engine.Time
	// Queues are links of switches whose queues are noted at each sample.
	Queues []string
	// Payload is how many bytes all messages have together, for Progress; zero: not known.
	Payload uint64
	// Check looks at the invariants of the network at each sample and in the end.
	Check bool
	// Inside has queue pairs tell what they do, for Result.Inside: all but those that Opened has traced
	// for itself.
	Inside bool
	// Opened is shown each connection when it has been made, for tracing; may be nil.
	Opened func(first, second *nic.QP, f *workload.Flow)
}

// Event is something that happens to the network at an instant.
type Event struct {
	At engine.Time
	Do func(n *fabric.Network)
}

// ErrUnfinished says that messages were under way when nothing happened any more.
var ErrUnfinished = errors.New("messages never ended")

// Simulation is one that can be run once.
type Simulation struct {
	// Watch, if not nil, is called now and then while the simulation runs, to show how far it is;
	// an error ends the run.
	Watch func() error

	cfg     Config
	eng     engine.Engine
	cluster *nic.Cluster
	runner  *workload.Runner
	makers  []*profile.Maker
	result  result.Result
	sampler sampler
	events  eventTimer
	path    []*fabric.Link // scratch
	inside  *inside.Inside // nil if it was not asked for
}

// New builds the network and its hosts.
func New(c Config) (*Simulation, error) {
	if c.MTU == 0 {
		c.MTU = 1000
	}
	if c.QP.MTU == 0 {
		c.QP.MTU = c.MTU
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Simulation{cfg: c}
	var err error
	s.cluster, err = nic.NewCluster(&s.eng, nic.Config{Framing: c.Framing, Classes: c.Classes, MTU: c.MTU,
		Network: func(o fabric.Owner) (*fabric.Network, error) {
			return fabric.New(&s.eng, fabric.Config{Graph: c.Graph, Switch: c.Switch, Seed: c.Seed, Owner: o})
		}})
	if err != nil {
		return nil, err
	}
	rtt := s.baseRTT()
	s.makers = s.newMakers(rtt)
	c.QP.Profile = func(host int) (qp.Profile, error) { return s.makers[host].New(c.Profile, c.spec(host)) }
	if c.Ideal == nil {
		b := s.bytes()
		c.Ideal = func(f *workload.Flow, path []*fabric.Link) engine.Time {
			if f.Service != workload.RC {
				return b.OneWay(f.Bytes, path)
			}
			return b.Ideal(f.Bytes, path)
		}
	}
	if c.QP.MaxUnacked == 0 {
		c.QP.MaxUnacked = s.unacked(rtt)
	}
	if c.Inside {
		s.inside = inside.New(c.Graph.Hosts)
		c.Opened = s.watchInside(c.QP.MaxUnacked, c.Opened)
	}
	s.runner = workload.NewRunner(s.cluster, workload.Config{QP: c.QP, Persistent: c.Persistent, Ideal: s.ideal, Ended: s.ended, Opened: c.Opened})
	s.cfg = c
	for _, a := range c.Apps {
		s.runner.Add(a)
	}
	if err := s.sampler.find(s.cluster.Network(), c.Queues); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Faults)) {
		l, err := s.cluster.Network().Link(name, 0)
		if err != nil {
			return nil, err
		}
		if err := s.Faults(l, c.Faults[name]...); err != nil {
			return nil, err
		}
	}
	s.result.Name, s.result.Seed, s.result.Profile = c.Name, c.Seed, c.Profile
	return s, nil
}

// spec is that of a host.
func (c *Config) spec(host int) profile.Spec {
	if s, ok := c.Specs[host]; ok {
		return s
	}
	return c.Spec
}

// validate reports what is wrong with the transports.
func (c *Config) validate() error {
	errs := []error{profile.Validate(c.Profile, c.Spec)}
	for _, host := range slices.Sorted(maps.Keys(c.Specs)) {
		if err := profile.Validate(c.Profile, c.Specs[host]); err != nil {
			errs = append(errs, fmt.Errorf("host %d: %w", host, err))
		}
	}
	return errors.Join(errs...)
}

// watchInside has both ends of a connection tell what they do, and then calls opened, if there is one.
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

// Runner returns what runs the applications.
func (s *Simulation) Runner() *workload.Runner { return s.runner }

// bytes are what packets take on links, those of a transport's middle packets.
func (s *Simulation) bytes() workload.Bytes {
	b := workload.Bytes{Payload: uint32(s.cfg.QP.MTU), Header: s.cfg.Framing.Header, Ack: s.cfg.Framing.Control}
	if b.Header == 0 { // standard headers: Ethernet, IPv4, UDP, BTH, ICRC; see nic.Framing
		b.Header, b.Ack = 14+20+8+bth.BTHLen+bth.ICRCLen+24, 60+24
	}
	return b
}

// ideal is what f takes in an empty network.
func (s *Simulation) ideal(f *workload.Flow) engine.Time {
	s.path = s.cluster.Network().Path(f.Src, f.Dst, s.path[:0])
	return s.cfg.Ideal(f, s.path)
}

// unacked is how many packets may be outstanding where nothing else limits them: four times what
// the longest way holds.
func (s *Simulation) unacked(rtt time.Duration) uint32 {
	rate := s.cluster.Network().Path(0, 1, nil)[0].Rate()
	return max(uint32(4*rtt.Seconds()*float64(rate)/8)/uint32(s.cfg.QP.MTU), 64)
}

// hardwareRTO is the timeout of Eunomia, which wants it as short as IRN's (Eunomia 3.2.3, IRN 4.1).
// That of a queue pair, 67 ms, is for daemons that may come round late.
const hardwareRTO = 320 * time.Microsecond

// newMakers returns what makes the plug-ins of each host's queue pairs.
func (s *Simulation) newMakers(rtt time.Duration) (makers []*profile.Maker) {
	rates, fastest := make([]float64, s.cfg.Graph.Hosts), 0.0
	for h := range rates {
		rates[h] = float64(s.cluster.Network().Path(h, (h+1)%len(rates), nil)[0].Rate())
		fastest = max(fastest, rates[h])
	}
	for _, rate := range rates {
		makers = append(makers, profile.NewMaker(profile.Link{Rate: rate, RTT: rtt, MTU: s.cfg.QP.MTU, Fastest: fastest, RTO: hardwareRTO}))
	}
	return makers
}

// baseRTT is the longest round trip of a full packet and its acknowledgement in an empty network,
// from the first host.
func (s *Simulation) baseRTT() time.Duration {
	b, longest := s.bytes(), engine.Time(0)
	for h := 1; h < s.cfg.Graph.Hosts; h++ {
		longest = max(longest, b.Ideal(b.Payload, s.cluster.Network().Path(0, h, nil)))
	}
	return longest.Duration()
}

// Run runs until everything has ended, or Config.Until.
func (s *Simulation) Run() (*result.Result, error) {
	s.events.start(s)
	s.sampler.start(s)
	s.runner.Start()
	for s.more() {
		s.eng.Run(min(s.eng.Now()+slice, s.until()))
		if err := s.check(); err != nil {
			return nil, err
		}
		if s.Watch != nil {
			if err := s.Watch(); err != nil {
				return nil, err
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

// slice is how long the engine runs between two looks at whether all is done.
const slice = engine.Millisecond / 4

func (s *Simulation) until() engine.Time {
	if s.cfg.Until == 0 {
		return engine.Never
	}
	return s.cfg.Until
}

// more reports whether something remains to be done, besides sampling.
func (s *Simulation) more() bool {
	idle := s.eng.Pending() <= s.sampler.pending()
	return s.runner.Err() == nil && s.eng.Now() < s.until() && !idle
}

func (s *Simulation) check() error {
	if !s.cfg.Check {
		return nil
	}
	return s.cluster.Check()
}

// Progress is how far a running simulation has come.
type Progress struct {
	Now   engine.Time
	Done  int // messages that have ended
	Under int // messages under way
	// Part of the payload, or of the time until Config.Until, that is behind us; zero if neither is
	// known.
	Part float64
}

// Progress returns how far the simulation has come.
func (s *Simulation) Progress() Progress {
	p := Progress{Now: s.eng.Now(), Done: len(s.result.Flows), Under: s.runner.Running()}
	if s.cfg.Payload > 0 {
		p.Part = min(float64(s.cluster.Placed())/float64(s.cfg.Payload), 1)
	}
	if s.cfg.Until > 0 {
		p.Part = max(p.Part, float64(p.Now)/float64(s.cfg.Until))
	}
	return p
}

// ended notes a message.
func (s *Simulation) ended(f *workload.Flow) {
	s.result.Flows = append(s.result.Flows, result.Flow{
		ID: f.ID, Src: f.Src, Dst: f.Dst, Bytes: f.Bytes, Start: f.Start, FCT: f.End - f.Start, Ideal: f.Ideal, Slowdown: f.Slowdown()})
}
