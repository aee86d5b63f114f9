package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// Traffic classes.
const (
	dataClass = 0
	ackClass  = 7
)

// Config returns the simulation that f describes. load reads files that it names.
func (f *File) Config(load func(name string) ([]byte, error)) (sim.Config, error) {
	c := sim.Config{Name: f.Name, Seed: f.Seed, Classes: nic.Classes{Data: dataClass, Ack: ackClass, CNP: ackClass},
		Framing: f.Framing, Contexts: f.Contexts,
		Until: f.Stop, Sample: f.Sample}
	if (f.Framing.Header == 0) != (f.Framing.Control == 0) {
		return c, f.At("framing", "set both header and control")
	}
	for _, step := range []func(*sim.Config) error{f.strict, f.qos} {
		if err := step(&c); err != nil {
			return c, err
		}
	}
	if err := f.topology(&c, load); err != nil {
		return c, err
	}
	for _, step := range []func(*sim.Config) error{f.switches, f.transport, f.senders, f.limits, f.nics, f.ideal, f.events, f.senseless} {
		if err := step(&c); err != nil {
			return c, err
		}
	}
	c.Sample = cmp.Or(c.Sample, c.Until/1000)
	return c, f.work(&c, load)
}

// switchConfig converts s, the value of key.
func (f *File) switchConfig(key string, s *Switch) (fabric.SwitchConfig, error) {
	c := fabric.SwitchConfig{Detour: s.Detour, Buffer: s.BufferConfig, Balance: s.Balance}
	if s.Bytes == 0 {
		return c, f.At(key+".buffer", "missing; set the buffer of switches, such as 9MiB")
	}
	if err := c.Balance.Check(); err != nil {
		return c, f.At(key+".balance", "%v", err)
	}
	if err := f.scheduling(key, s, &c.Port); err != nil {
		return c, err
	}
	if p := s.PFC; p != nil {
		if s.Detour {
			return c, f.At(key+".detour", "no packet is detoured with flow control; remove detour or pfc")
		}
		if p.Headroom == 0 {
			return c, f.At(key+".pfc.headroom", "missing; it must hold the packets after a pause: twice the delay at line rate and two packets")
		}
		if s.Trim > 0 {
			return c, f.At(key+".trim", "no packet is trimmed with flow control; remove trim or pfc")
		}
		c.PFC = p.PFCConfig
		c.PFC.Lossless = f.dataClasses()
		for i, class := range p.Classes {
			if class >= ackClass {
				return c, f.At(fmt.Sprintf("%s.pfc.classes.%d", key, i), "data has classes from 0 to %d", ackClass-1)
			}
			if i == 0 {
				c.PFC.Lossless, c.PFC.Apart = 0, true
			}
			c.PFC.Lossless |= 1 << class
		}
	}
	if err := f.trim(key, s, &c); err != nil {
		return c, err
	}
	if s.ECN != nil {
		c.ECN = s.ECN.ECNConfig
		var err error
		if c.ECN.Classes, err = f.mask(key+".ecn.classes", s.ECN.Classes); err != nil {
			return c, err
		}
	}
	return c, f.thresholds(key, s)
}

// trim sets the packets that a switch trims.
func (f *File) trim(key string, s *Switch, c *fabric.SwitchConfig) error {
	c.Trim.Bytes, c.Trim.Class = uint32(s.Trim), ackClass
	if len(s.TrimClasses) > 0 && s.Trim == 0 {
		return f.At(key+".trim_classes", "no packet is trimmed; set trim, such as 90, or remove trim_classes")
	}
	for i, class := range s.TrimClasses {
		if class >= ackClass {
			return f.At(fmt.Sprintf("%s.trim_classes.%d", key, i), "data has classes from 0 to %d", ackClass-1)
		}
		c.Trim.Classes |= 1 << class
	}
	return nil
}

// scheduling sets the order of classes and packets.
func (f *File) scheduling(key string, s *Switch, c *fabric.PortConfig) error {
	switch s.Scheduling {
	case "", "fifo", "drr":
	case "srpt":
		c.SRPT = true
		c.Strict = f.limitClasses()
	case "voq":
		c.Turns = true
	case "strict":
		c.Strict = 1<<fabric.Classes - 1
	default:
		return f.At(key+".scheduling", "%v", suggest.OneOf(s.Scheduling, []string{"fifo", "srpt", "voq", "strict", "drr"}))
	}
	if s.AckPriority {
		c.Strict |= 1 << ackClass
		if f.QoS != nil {
			return f.At(key+".ack_priority", "acknowledgements have a class of qos; set strict to classes that leave first")
		}
	}
	first, err := f.mask(key+".strict", s.Strict)
	if err != nil {
		return err
	}
	c.Strict |= first
	if len(s.Weights) > 0 && s.Scheduling != "drr" {
		return f.At(key+".weights", "only scheduling drr has weights")
	}
	if len(s.Weights) > fabric.Classes {
		return f.At(key+".weights", "at most %d classes", fabric.Classes)
	}
	for i, w := range s.Weights {
		if w < 1 || w > 255 {
			return f.At(fmt.Sprintf("%s.weights.%d", key, i), "%d is not from 1 to 255", w)
		}
		c.Weights[i] = uint8(w)
	}
	return nil
}

// dataClasses returns a bit mask of the classes of all workloads.
func (f *File) dataClasses() (mask uint8) {
	for i := range f.Workload {
		mask |= 1 << min(f.Workload[i].Class, ackClass-1)
	}
	return mask | f.limitClasses()
}

// limitClasses returns a bit mask of the classes that transport.class_limits adds.
func (f *File) limitClasses() (mask uint8) {
	if n := len(f.Transport.ClassLimits); n < ackClass {
		mask = 1<<(n+1) - 2
	}
	return mask
}

// limits sets the classes of data by its remaining bytes.
func (f *File) limits(c *sim.Config) error {
	limits := f.Transport.ClassLimits
	if len(limits) >= ackClass {
		return f.At("transport.class_limits", "%d limits: at most %d", len(limits), ackClass-1)
	}
	for i, l := range limits {
		if l < 1 || l > workload.MaxMessage || i > 0 && l >= limits[i-1] {
			return f.At(fmt.Sprintf("transport.class_limits.%d", i), "%d bytes: limits descend, from at most 2 GiB", l)
		}
		c.Classes.Limits = append(c.Classes.Limits, uint32(l))
	}
	for i := range f.Workload {
		if len(limits) > 0 && f.Workload[i].Class > 0 {
			return f.At(fmt.Sprintf("workload.%d.class", i), "transport.class_limits selects the classes; remove one of them")
		}
	}
	return nil
}

func (f *File) switches(c *sim.Config) error {
	base, err := f.switchConfig("switch", &f.Switch)
	if err != nil && len(c.Graph.Switches) > 0 {
		return err
	}
	configs := make([]fabric.SwitchConfig, len(c.Graph.Switches))
	for i := range configs {
		configs[i] = base
	}
	for k := range f.Switches {
		o := &f.Switches[k]
		special, err := f.switchConfig(fmt.Sprintf("switches.%d", k), &o.Switch)
		if err != nil {
			return err
		}
		matched := false
		for i, name := range c.Graph.Switches {
			if strings.HasPrefix(name, o.Match) {
				configs[i], matched = special, true
			}
		}
		if !matched {
			return f.At("switches", "no switch has a name that begins with %q", o.Match)
		}
	}
	c.Switch = func(i, _ int) fabric.SwitchConfig { return configs[i] }
	return f.reserves(c, configs)
}

// reserves rejects switches whose buffer does not hold the headrooms and reserves of all ports.
func (f *File) reserves(c *sim.Config, configs []fabric.SwitchConfig) error {
	ports := make([]int, len(configs))
	for i := range c.Graph.Cables {
		for _, node := range [...]fabric.Node{c.Graph.Cables[i].A, c.Graph.Cables[i].B} {
			if s := int(node) - c.Graph.Hosts; s >= 0 {
				ports[s]++
			}
		}
	}
	for i := range configs {
		p, buffer := &configs[i].PFC, configs[i].Buffer.Bytes
		if need := p.Reserved(ports[i]); need > buffer || need == buffer && p.Apart {
			return f.At("switch.pfc.headroom", "%s has %d ports with %d lossless classes: headroom %d and reserve %d for each take %d bytes, but the buffer has %d",
				c.Graph.Switches[i], ports[i], bits.OnesCount8(p.Lossless), p.Headroom, p.Reserve, need, buffer)
		}
	}
	return nil
}

func (f *File) transport(c *sim.Config) error {
	t := &f.Transport
	one, err := f.carries("transport", t, c.Planes)
	if err != nil {
		return err
	}
	c.Profile, c.Spec, c.QP = one.Profile, one.Spec, one.QP
	if c.MTU = t.MTU; f.Origin("transport.mtu") != "" && (t.MTU < int(qp.MinMTU) || t.MTU > 9000) {
		return f.At("transport.mtu", "%d bytes are not from %d to 9000", t.MTU, qp.MinMTU)
	}
	switch t.Connections {
	case "", "message":
	case "persistent":
		c.Persistent = true
	default:
		return f.At("transport.connections", "%q is neither message nor persistent", t.Connections)
	}
	return nil
}

// carries returns the transport that t, the value of key, describes.
func (f *File) carries(key string, t *Transport, planes int) (out sim.Transport, err error) {
	out.Profile, out.Spec = t.Profile, t.Spec
	if planes > 1 {
		out.Spec.Paths.Params = maps.Clone(out.Spec.Paths.Params)
		if out.Spec.Paths.Params == nil {
			out.Spec.Paths.Params = map[string]float64{}
		}
		out.Spec.Paths.Params["planes"] = float64(planes)
	}
	if err := profile.Validate(out.Profile, out.Spec); err != nil {
		return out, f.At(key, "%v", err)
	}
	if t.MaxUnacked > 1<<22 {
		return out, f.At(key+".max_unacked", "%d packets exceed half of the PSN space", t.MaxUnacked)
	}
	out.QP = nic.QPConfig{MaxUnacked: t.MaxUnacked, CNPInterval: t.CNPInterval.Duration(), UnlimitedRetries: t.Unlimited}
	if t.AckTimeout > 0 {
		out.QP.Timeout = workload.AckTimeout(t.AckTimeout.Duration())
	}
	if t.AckEach {
		out.QP.Tuning.AcksPerWindow = 1 << 30
	}
	if strings.HasPrefix(t.Congestion.Name, "dcqcn") && t.CNPInterval == 0 && t.Congestion.Params["echo"] == 0 {
		return out, f.At(key+".cnp_interval", "dcqcn needs CNPs: set their interval, such as 50us, or %s.congestion.echo", key)
	}
	return out, nil
}

// senders sets the transports of hosts and workloads.
func (f *File) senders(c *sim.Config) error {
	c.Senders = map[int]int{}
	for i := range f.Transports {
		s, key := &f.Transports[i], fmt.Sprintf("transports.%d", i)
		switch t := &s.Transport; {
		case t.MTU != 0 || t.Connections != "" || len(t.ClassLimits) > 0:
			return f.At(key, "mtu, connections and class_limits are the same for all transports: set them in transport")
		case s.Name == "" && len(s.Hosts) == 0:
			return f.At(key, "set hosts, or a name for workloads")
		case f.named(s.Name) < i+1 && s.Name != "":
			return f.At(key+".name", "%q is the name of another transport", s.Name)
		}
		one, err := f.carries(key, &s.Transport, c.Planes)
		if err != nil {
			return err
		}
		c.Transports = append(c.Transports, one)
		if len(s.Hosts) == 0 {
			continue
		}
		if err := f.hosts(c, key+".hosts", s.Hosts); err != nil {
			return err
		}
		for h := s.Hosts[0]; h <= s.Hosts[1]; h++ {
			c.Senders[h] = i + 1
		}
	}
	return nil
}

// named returns the number of the transport with a name, from 1; 0 if there is none.
func (f *File) named(name string) int {
	return 1 + slices.IndexFunc(f.Transports, func(s Sender) bool { return s.Name == name })
}

// ideal sets the reference of slowdowns.
func (f *File) ideal(c *sim.Config) error {
	switch f.Ideal {
	case "", "exact":
		return nil
	case "ns3": // conweave-ns3: a full payload per hop, headers on all packets, no acknowledgement
	default:
		return f.At("ideal", "%q is neither exact nor ns3", f.Ideal)
	}
	mtu, header := uint64(c.MTU), uint64(f.Framing.Header)
	if mtu == 0 || header == 0 {
		return f.At("ideal", "ns3 needs transport.mtu and framing")
	}
	c.Ideal = func(fl *workload.Flow, path []*fabric.Link) (sum engine.Time) {
		packets := (uint64(fl.Bytes) + mtu - 1) / mtu
		for _, l := range path {
			sum += 2*l.Delay() + engine.Time(mtu*8e12/l.Rate())
		}
		return sum + engine.Time((uint64(fl.Bytes)+header*packets)*8e6/(path[0].Rate()/1e6))
	}
	return nil
}
