package scenario

import (
	"fmt"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
)

// Limits of a scenario without --force.
const (
	maxMemory = 16 << 30 // bytes
	maxEvents = 1e12     // some days
)

// Memory that things take, in bytes, about; TestEstimate compares them with a simulation.
const (
	hostBytes       = 4 << 10
	switchBytes     = 4 << 10
	cableBytes      = 5 << 10 // links and ports in both directions
	messageBytes    = 300     // plan and result
	connectionBytes = 12 << 10
	sampleBytes     = 300 // of a list that grows
	changeBytes     = 200 // of a link, by an event
)

// eventsPerHop is the number of events for a packet and its acknowledgement at each link.
const eventsPerHop = 5

// estimate is the memory and the events that a simulation needs, about. They are computed before anything is built.
type estimate struct{ memory, events float64 }

// charge adds n things of a size to the estimate. It returns an error if they are too many; what names them.
func (f *File) charge(key string, n, bytes, events float64, what string, args ...any) error {
	e := &f.estimate
	e.memory += n * bytes
	e.events += events
	if f.Force || e.memory <= maxMemory && e.events <= maxEvents {
		return nil
	}
	return f.At(key, "%s: the simulation would need about %s of memory and %.1g events; more than %s or %.0g events need --force",
		fmt.Sprintf(what, args...), size(e.memory), e.events, size(maxMemory), maxEvents)
}

// size formats bytes.
func size(bytes float64) string {
	for _, u := range []struct {
		name  string
		bytes float64
	}{{"PiB", 1 << 50}, {"TiB", 1 << 40}} {
		if bytes >= u.bytes {
			return fmt.Sprintf("%.3g %s", bytes/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%.3g GiB", bytes/(1<<30))
}

// network charges the topology.
func (f *File) network() error {
	t := &f.Topology
	n := func(i int) float64 { return float64(max(i, 0)) }
	var hosts, switches, cables float64
	switch t.Kind {
	case "star":
		hosts, switches, cables = n(t.Hosts), 1, n(t.Hosts)
	case "dumbbell":
		hosts = n(t.Left) + n(t.Right)
		switches, cables = 2, hosts+1
	case "parallel":
		hosts, switches = 2*n(t.Hosts), 2+n(t.Paths)
		cables = hosts + 2*n(t.Paths)
	case "leaf-spine":
		hosts, switches = n(t.Leaves)*n(t.HostsPerLeaf), n(t.Leaves)+n(t.Spines)
		cables = hosts + n(t.Leaves)*n(t.Spines)*n(max(t.Cables, 1))
	case "fat-tree":
		hosts, switches = n(t.K)*n(t.K)*n(t.K)/4, n(t.K)*n(t.K)*5/4
		cables = 3 * hosts
	case "jellyfish":
		hosts, switches = n(t.Hosts), n(t.Switches)
		cables = hosts + switches*n(t.Degree)/2
		// The generator lists all pairs of switches for each cable.
		if err := f.charge("topology.switches", switches*switches, 17, switches*switches*switches*n(t.Degree)/1000, "the generator of %.0f switches", switches); err != nil {
			return err
		}
	case "rails":
		hosts, switches = n(max(t.Rails, 2))*n(t.Machines), n(max(t.Rails, 2))+n(t.Spines)
		cables = hosts + n(max(t.Rails, 2))*n(t.Spines)
	}
	return f.graphSize(hosts, switches, cables)
}

// graphSize charges a topology of so many nodes, and its routes.
func (f *File) graphSize(hosts, switches, cables float64) error {
	planes := float64(max(f.Topology.Planes, 1))
	hosts, switches, cables = planes*hosts, planes*switches, planes*cables
	routing := hosts * (hosts + switches + 3*cables) / 20 // a search from each host, in steps that are shorter than events
	return f.charge("topology", 1, hosts*hostBytes+switches*switchBytes+cables*cableBytes+2*hosts*switches, routing,
		"%.0f hosts, %.0f switches, %.0f cables", hosts, switches, cables)
}

// messages charges n messages of a workload with so many bytes each, on connections.
func (f *File) messages(c *sim.Config, key string, n, bytes, connections float64) error {
	mtu := 1000.0
	if c.MTU > 0 {
		mtu = float64(c.MTU)
	}
	return f.charge(key, 1, n*messageBytes+connections*connectionBytes, n*(bytes/mtu+1)*f.hops()*eventsPerHop, "%.3g messages of %.3g bytes", n, bytes)
}

// hops returns the number of links of a long path.
func (f *File) hops() float64 {
	switch f.Topology.Kind {
	case "pair":
		return 1
	case "star":
		return 2
	case "dumbbell":
		return 3
	case "fat-tree":
		return 6
	}
	return 4
}

// samples charges the samples of the network. Without an end, the simulation takes at least as long as the payload on all
// hosts' links.
func (f *File) samples(c *sim.Config) error {
	if c.Sample == 0 {
		return nil
	}
	span := c.Until
	if rate := float64(f.Topology.HostRate) * float64(c.Hosts()); span == 0 && rate > 0 {
		span = engine.Time(min(float64(c.Payload)*8/rate*float64(engine.Second), float64(engine.Never)))
	}
	n := float64(span) / float64(c.Sample)
	return f.charge("sample", n, sampleBytes, n*float64(len(c.Graph.Switches)+2*len(c.Graph.Cables))/20, "%.3g samples", n)
}
