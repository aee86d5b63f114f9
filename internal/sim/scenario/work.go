package scenario

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
)

//go:embed cdf/*.txt
var cdfs embed.FS

var (
	verbs = map[string]workload.Verb{"": workload.Write, "write": workload.Write, "write_imm": workload.WriteImm, "send": workload.Send,
		"read": workload.Read, "fetch_add": workload.FetchAdd, "compare_swap": workload.CmpSwap}
	services = map[string]workload.Service{"": workload.RC, "rc": workload.RC, "uc": workload.UC, "ud": workload.UD}
)

// work adds the workloads.
func (f *File) work(c *sim.Config, load func(string) ([]byte, error)) error {
	if len(f.Workload) == 0 {
		return f.At("workload", "no workload; hosts would send nothing")
	}
	for i := range f.Workload {
		a, err := f.app(c, i, load)
		if err != nil {
			return err
		}
		c.Apps = append(c.Apps, a...)
	}
	return f.samples(c)
}

// app returns the i-th workload.
func (f *File) app(c *sim.Config, i int, load func(string) ([]byte, error)) ([]workload.App, error) {
	w := &f.Workload[i]
	key := fmt.Sprintf("workload.%d", i)
	verb, ok := verbs[w.Verb]
	if !ok {
		return nil, f.At(key+".verb", "%v", suggest.OneOf(w.Verb, []string{"write", "write_imm", "send", "read", "fetch_add", "compare_swap"}))
	}
	service, ok := services[w.Service]
	if !ok {
		return nil, f.At(key+".service", "%v", suggest.OneOf(w.Service, []string{"rc", "uc", "ud"}))
	}
	if w.Class >= ackClass {
		return nil, f.At(key+".class", "data has classes from 0 to %d; acknowledgements have %d", ackClass-1, ackClass)
	}
	carries := f.named(w.Transport)
	if w.Transport == "" {
		carries = 0
	} else if carries == 0 {
		return nil, f.At(key+".transport", "%q is not a name of a transport", w.Transport)
	}
	if w.Size > workload.MaxMessage && !slices.Contains(collectives, w.Kind) || w.Request > workload.MaxMessage || w.Response > workload.MaxMessage {
		return nil, f.At(key, "a message has at most 2 GiB")
	}
	switch w.Kind {
	case "poisson":
		p, err := f.poisson(c, key, w, uint64(i))
		if err != nil {
			return nil, err
		}
		return []workload.App{&workload.OpenLoop{Verb: verb, Service: service, Class: w.Class, Transport: carries, Next: p.Source()}}, nil
	case "permutation", "incast", "queries", "flows":
		ps, err := f.planned(c, key, w, load)
		for i := range ps {
			c.Payload += uint64(ps[i].Bytes)
		}
		if err == nil {
			err = f.joined(c, key, ps)
		}
		return []workload.App{&workload.OpenLoop{Verb: verb, Service: service, Class: w.Class, Transport: carries, Next: workload.List(ps)}}, err
	case "stream":
		return f.stream(c, key, w, i, carries)
	case "rpc":
		return f.rpc(c, key, w)
	case "calls":
		return f.calls(c, key, w)
	case "goal":
		return f.goal(c, key, w, uint64(i), load)
	case "iterations":
		return f.iterations(c, key, w, uint64(i))
	}
	return f.collectives(c, key, w, uint64(i))
}

// rpc returns the calls of one client to one server.
func (f *File) rpc(c *sim.Config, key string, w *Work) ([]workload.App, error) {
	if err := f.pair(c, key, "client", w.Client, "server", w.Server); err != nil {
		return nil, err
	}
	if w.Calls < 1 {
		return nil, f.At(key, "rpc needs the number of calls")
	}
	if err := f.messages(c, key, 2*float64(w.Calls), float64(w.Request+w.Response)/2, 1); err != nil {
		return nil, err
	}
	c.Payload += uint64(w.Calls) * uint64(w.Request+w.Response)
	return []workload.App{&workload.RPC{Client: w.Client, Server: w.Server, Request: uint32(w.Request), Response: uint32(w.Response),
		Calls: w.Calls, Outstanding: w.Outstanding, Class: w.Class}}, nil
}

// pair validates two hosts that keys of a workload name.
func (f *File) pair(c *sim.Config, key, first string, a int, second string, b int) error {
	last := c.Hosts() - 1
	switch {
	case a < 0 || a > last:
		return f.At(key, "%s: no host %d; hosts are 0 to %d", first, a, last)
	case b < 0 || b > last:
		return f.At(key, "%s: no host %d; hosts are 0 to %d", second, b, last)
	case a == b:
		return f.At(key, "%s and %s are both host %d; they must differ", first, second, a)
	}
	return f.joined(c, key, []workload.Planned{{Src: a, Dst: b}})
}

// joined rejects messages between hosts that no path joins.
func (f *File) joined(c *sim.Config, key string, ps []workload.Planned) error {
	joined := c.Graph.Joined()
	for _, p := range ps {
		if !joined(p.Src, p.Dst) {
			return f.At(key, "from host %d to host %d: %v", p.Src, p.Dst, nic.ErrApart)
		}
	}
	return nil
}

// planned returns the messages of a workload whose messages are all known.
func (f *File) planned(c *sim.Config, key string, w *Work, load func(string) ([]byte, error)) ([]workload.Planned, error) {
	switch w.Kind {
	case "incast":
		return f.incast(c, key, w)
	case "queries":
		return f.queries(c, key, w)
	case "flows":
		text, err := load(w.File)
		if err != nil {
			return nil, f.At(key+".file", "%v", err)
		}
		ps, err := workload.ReadFlows(string(text), workload.Nodes{Hosts: c.Hosts(), IDs: c.HostIDs, Switches: c.Graph.Switches, Joined: c.Graph.Joined()})
		if err != nil {
			return nil, f.At(key+".file", "%s: %v", w.File, err)
		}
		return ps, nil
	}
	if err := f.messages(c, key, float64(c.Hosts()), float64(w.Size), float64(c.Hosts())); err != nil {
		return nil, err
	}
	ps := workload.Permutation(c.Hosts(), uint32(w.Size), c.Seed)
	if w.Halves {
		ps = workload.Halves(c.Hosts(), uint32(w.Size), c.Seed)
	}
	for k := range ps {
		ps[k].At = w.At
	}
	return ps, nil
}

// pairs returns the connections of n messages between any hosts that exist at the same time: all with persistent connections,
// otherwise a part, about.
func (f *File) pairs(c *sim.Config, n float64) float64 {
	hosts := float64(c.Hosts())
	if c.Persistent {
		return min(n, hosts*hosts)
	}
	return min(n, 16*hosts)
}

// stream returns consecutive messages on a connection of their own.
func (f *File) stream(c *sim.Config, key string, w *Work, lane, carries int) ([]workload.App, error) {
	if err := f.pair(c, key, "from", w.From, "to", w.To); err != nil {
		return nil, err
	}
	switch {
	case w.Size < 1:
		return nil, f.At(key, "stream needs the size of a message")
	case !c.Persistent:
		return nil, f.At(key, "a stream has one connection for all its messages: set transport.connections: persistent")
	case w.Path != "" && !slices.Contains(c.Graph.Switches, w.Path):
		return nil, f.At(key+".path", "no switch %q; there are %s", w.Path, strings.Join(c.Graph.Switches, ", "))
	case w.Fence < 0 || w.Fence > 1:
		return nil, f.At(key+".fence", "must be from 0 to 1")
	case w.Until == 0 && f.Stop == 0:
		return nil, f.At(key, "a stream never ends: set until or stop")
	}
	end := w.Until
	if f.Stop > 0 && (end == 0 || f.Stop < end) {
		end = f.Stop
	}
	if err := f.connections(key, w); err != nil {
		return nil, err
	}
	payload := float64(f.Topology.HostRate) / 8 * max(end-w.At, 0).Seconds() // at most
	const least = 64                                                         // bytes of a packet
	if err := f.messages(c, key, payload/max(float64(w.Size), least), float64(w.Size), float64(max(w.QPs, 1))); err != nil {
		return nil, err
	}
	c.Payload += uint64(payload)
	var apps []workload.App
	for i := range max(w.QPs, 1) {
		apps = append(apps, &workload.Stream{From: w.From, To: w.To, Size: uint32(w.Size), Outstanding: w.Outstanding,
			At: w.At, Until: w.Until, Lane: lane + i<<16, Fence: w.Fence, StopWait: w.StopWait, Seed: c.Seed, Transport: carries, Via: w.Path, Class: w.Class})
	}
	return apps, nil
}

// queries returns incasts at random instants to random hosts. All hosts together receive a part of their links'
// capacity.
func (f *File) queries(c *sim.Config, key string, w *Work) ([]workload.Planned, error) {
	hosts := c.Hosts()
	if w.Senders < 1 || w.Senders >= hosts || w.Size < 1 || w.Until == 0 || f.Topology.HostRate == 0 || w.Load <= 0 || w.Load > 2 {
		return nil, f.At(key, "queries need senders, fewer than %d hosts, size, until, a load of at most 2 and topology.host_rate", hosts)
	}
	bytes := w.Load * float64(f.Topology.HostRate) * float64(hosts) / 8 * w.Until.Seconds()
	if n := bytes / float64(w.Size); n > 0 {
		if err := f.messages(c, key, n, float64(w.Size), f.pairs(c, n)); err != nil {
			return nil, err
		}
	}
	return workload.Queries(hosts, w.Senders, uint32(w.Size), w.Load*float64(f.Topology.HostRate), w.Until, c.Seed), nil
}

// incast returns messages from some hosts to one, in rounds.
func (f *File) incast(c *sim.Config, key string, w *Work) (ps []workload.Planned, err error) {
	hosts := c.Hosts()
	if w.To < 0 || w.To >= hosts {
		return nil, f.At(key, "to: no host %d; hosts are 0 to %d", w.To, hosts-1)
	}
	if w.Senders < 1 || w.Senders >= hosts {
		return nil, f.At(key, "%d senders: must be from 1 to %d, the other hosts", w.Senders, hosts-1)
	}
	n := float64(max(w.Rounds, 1)) * float64(w.Senders)
	if err := f.messages(c, key, n, float64(w.Size), f.pairs(c, n)); err != nil {
		return nil, err
	}
	for round := range max(w.Rounds, 1) {
		at := w.At + engine.Time(round)*w.Every
		if w.Random {
			ps = append(ps, workload.RandomIncast(hosts, w.To, w.Senders, uint32(w.Size), at, c.Seed+uint64(round)<<32)...)
			continue
		}
		ps = append(ps, workload.Incast(hosts, w.To, w.Senders, uint32(w.Size), at)...)
	}
	return ps, nil
}

func (f *File) poisson(c *sim.Config, key string, w *Work, n uint64) (*workload.Poisson, error) {
	sizes, err := f.sizes(key, w)
	if err != nil {
		return nil, err
	}
	if w.Until == 0 {
		return nil, f.At(key+".until", "missing; set the time of the last message")
	}
	p := &workload.Poisson{Hosts: c.Hosts(), Rate: uint64(f.Topology.HostRate), Load: w.Load, Sizes: sizes, Until: w.Until, Seed: c.Seed + n<<32, Halves: w.Halves}
	if w.CrossRack {
		if p.CrossRack = f.Topology.HostsPerLeaf; p.CrossRack == 0 {
			return nil, f.At(key+".cross_rack", "only leaf-spine topologies have racks")
		}
	}
	if p.Rate == 0 {
		return nil, f.At("topology.host_rate", "missing; a load is a part of the host rate")
	}
	if err := p.Check(); err != nil {
		return nil, f.At(key, "%v", err)
	}
	senders := float64(p.Hosts)
	if p.Halves {
		senders = float64(p.Hosts / 2)
	}
	payload := p.Load * float64(p.Rate) / 8 * senders * p.Until.Seconds() // in the mean
	c.Payload += uint64(payload)
	messages := payload / p.Sizes.Mean()
	return p, f.messages(c, key, messages, p.Sizes.Mean(), f.pairs(c, messages))
}

// sizes returns the distribution that w names.
func (f *File) sizes(key string, w *Work) (*workload.CDF, error) {
	if w.Sizes == "" && w.Size > 0 {
		return workload.Fixed(float64(w.Size)), nil
	}
	if n, err := quantity.ParseBytes(w.Sizes); err == nil && n > 0 {
		return workload.Fixed(float64(n)), nil
	}
	text, err := cdfs.ReadFile("cdf/" + w.Sizes + ".txt")
	if err != nil {
		return nil, f.At(key+".sizes", "%q is neither a size nor one of %s", w.Sizes, strings.Join(distributions(), ", "))
	}
	return workload.ReadCDF(string(text))
}

// distributions returns the names of the built-in distributions.
func distributions() (names []string) {
	files, _ := cdfs.ReadDir("cdf")
	for _, d := range files {
		names = append(names, strings.TrimSuffix(d.Name(), ".txt"))
	}
	return names
}
