package scenario

import (
	"fmt"
	"slices"

	"roced.io/roced/ccalgo"
	florengine "roced.io/roced/flor/engine"
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/flor"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// Flor makes workloads of kind calls use Flor (internal/sim/flor). Omitted keys have the defaults of flor/engine.
type Flor struct {
	Reliability string // uc, or rc: the NIC's
	Unit        quantity.Bytes
	MaxSend     quantity.Bytes `yaml:"max_send"`
	Pool        int            // buffers for SENDs per host
	Chunking    profile.Part
	Congestion  profile.Part
	AckWQEs     int            `yaml:"ack_wqes"`
	AckBytes    quantity.Bytes `yaml:"ack_bytes"`
	AckDelay    engine.Time    `yaml:"ack_delay"`
	Acks        string         // own: datagrams, ahead of data; shared: behind data on its queue pairs
	Backups     *int
	Reconnect   engine.Time
	MinRTO      engine.Time `yaml:"min_rto"`
	FirstRTO    engine.Time `yaml:"first_rto"`
	Software    flor.Software
}

// NICs is a range of hosts, first and last, with their own congestion control or path selection.
type NICs struct {
	Hosts             []int
	Congestion, Paths profile.Part
}

// nics sets the congestion control and path selection of individual hosts.
func (f *File) nics(c *sim.Config) error {
	c.Specs = map[int]profile.Spec{}
	for i := range f.NICs {
		n, key := &f.NICs[i], fmt.Sprintf("nics.%d", i)
		if err := f.hosts(c, key+".hosts", n.Hosts); err != nil {
			return err
		}
		s := c.Spec
		changed := ""
		if n.Congestion.Name != "" {
			changed, s.Congestion = ".congestion", n.Congestion
		}
		if n.Paths.Name != "" {
			changed, s.Paths = ".paths", n.Paths
		}
		if changed == "" {
			return f.At(key, "set congestion or paths")
		}
		if err := profile.Validate(c.Profile, s); err != nil {
			return f.At(key+changed, "%v", err)
		}
		for h := n.Hosts[0]; h <= n.Hosts[1]; h++ {
			c.Specs[h] = s
		}
	}
	return nil
}

// hosts validates a range of hosts.
func (f *File) hosts(c *sim.Config, key string, r []int) error {
	if len(r) != 2 || r[0] < 0 || r[1] < r[0] || r[1] >= c.Hosts() {
		return f.At(key, "expected the first and the last of %d hosts, such as [0, 3]", c.Hosts())
	}
	return nil
}

// calls returns RPCs between all clients and all servers.
func (f *File) calls(c *sim.Config, key string, w *Work) ([]workload.App, error) {
	for name, r := range map[string][]int{"clients": w.Clients, "servers": w.Servers} {
		if err := f.hosts(c, key+"."+name, r); err != nil {
			return nil, err
		}
	}
	switch {
	case f.Stop == 0:
		return nil, f.At(key, "calls never end: set stop")
	case !w.Plain && f.Flor == nil:
		return nil, f.At(key, "calls use Flor: set flor, or plain: true")
	case !c.Persistent && w.Plain:
		return nil, f.At(key, "all calls of a client share connections: set transport.connections: persistent")
	case w.Request < 1 || w.Response < 1:
		return nil, f.At(key, "calls require request and response")
	}
	pairs := float64(w.Clients[1]-w.Clients[0]+1) * float64(w.Servers[1]-w.Servers[0]+1) * float64(max(w.Connections, 1))
	bytes := float64(w.Request + w.Response)
	calls := f.Stop.Seconds() * float64(f.Topology.HostRate) / 8 * float64(c.Hosts()) / (bytes + 128)
	if err := f.messages(c, key, calls, bytes, 4*pairs); err != nil {
		return nil, err
	}
	if err := f.charge(key, pairs*float64(max(w.Outstanding, 1)), bytes, 0, "%.3g connections with %d calls of %.3g bytes each", pairs, max(w.Outstanding, 1), bytes); err != nil {
		return nil, err
	}
	a := &flor.Calls{Connections: w.Connections, Request: uint32(w.Request), Response: uint32(w.Response),
		Outstanding: w.Outstanding, Class: w.Class, Plain: w.Plain, Random: w.Random, Seed: c.Seed}
	for from := w.Clients[0]; from <= w.Clients[1]; from++ {
		for to := w.Servers[0]; to <= w.Servers[1]; to++ {
			if from != to {
				a.Pairs = append(a.Pairs, flor.Pair{Client: from, Server: to})
			}
		}
	}
	senders := min(w.Clients[1]-w.Clients[0], w.Servers[1]-w.Servers[0]) + 1
	c.Payload += uint64(float64(f.Topology.HostRate) / 8 * f.Stop.Seconds() * float64(senders)) // upper bound
	if !w.Plain {
		var err error
		if a.Flor, err = f.flor(); err != nil {
			return nil, err
		}
		if c.Graph.Owner != nil && !a.Flor.SharedAcks {
			return nil, f.At("flor.acks", "datagrams of a host with several links use the first one only; set flor.acks: shared")
		}
	}
	return []workload.App{a}, nil
}

// flor returns the configuration of Flor.
func (f *File) flor() (flor.Config, error) {
	s := f.Flor
	c := flor.Config{Pool: s.Pool, AckTraffic: ackClass, SharedAcks: s.Acks == "shared", Reconnect: s.Reconnect,
		Software: s.Software,
		Engine: florengine.Config{Unit: uint32(s.Unit), MaxSend: uint32(s.MaxSend), Hardware: s.Reliability == "rc",
			Chunking: s.Chunking.Name, ChunkingWith: s.Chunking.Params, Congestion: s.Congestion.Name, CongestionWith: ccalgo.Params(s.Congestion.Params),
			AckWQEs: s.AckWQEs, AckBytes: uint32(s.AckBytes), AckDelay: s.AckDelay.Duration(),
			MinRTO: s.MinRTO.Duration(), FirstRTO: s.FirstRTO.Duration()}}
	if s.Backups != nil {
		if c.Backups = *s.Backups; c.Backups == 0 {
			c.Backups = -1
		}
	}
	if !slices.Contains([]string{"", "uc", "rc"}, s.Reliability) {
		return c, f.At("flor.reliability", "%q is neither uc nor rc", s.Reliability)
	}
	if !slices.Contains([]string{"", "own", "shared"}, s.Acks) {
		return c, f.At("flor.acks", "%q is neither own nor shared", s.Acks)
	}
	return c, nil
}
