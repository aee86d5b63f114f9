package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/fabric"
)

// Keys by kind, besides those of all kinds. A key of another kind would have no effect.
var (
	topologyKeys = map[string][]string{
		"pair":       {"host_rate", "delay"},
		"star":       {"host_rate", "delay", "hosts"},
		"dumbbell":   {"host_rate", "core_rate", "delay", "left", "right"},
		"parallel":   {"host_rate", "core_rate", "delay", "hosts", "paths"},
		"leaf-spine": {"host_rate", "core_rate", "delay", "leaves", "spines", "hosts_per_leaf", "cables"},
		"fat-tree":   {"host_rate", "core_rate", "delay", "k"},
		"jellyfish":  {"host_rate", "core_rate", "delay", "switches", "degree", "hosts", "seed"},
		"rails":      {"host_rate", "core_rate", "delay", "machines", "rails", "spines"},
		"graph":      {"host_rate", "links", "relay"},
		"ns3":        {"host_rate", "file", "relay"},
	}
	workKeys = map[string][]string{
		"poisson":         {"verb", "service", "class", "dscp", "transport", "sizes", "size", "load", "until", "cross_rack", "halves"},
		"permutation":     {"verb", "service", "class", "dscp", "transport", "size", "at", "halves"},
		"incast":          {"verb", "service", "class", "dscp", "transport", "to", "senders", "size", "at", "rounds", "every", "random"},
		"queries":         {"verb", "service", "class", "dscp", "transport", "senders", "size", "load", "until"},
		"stream":          {"class", "dscp", "transport", "path", "from", "to", "size", "outstanding", "at", "until", "fence", "stop_wait", "qps"},
		"flows":           {"verb", "service", "class", "dscp", "transport", "file"},
		"rpc":             {"class", "dscp", "client", "server", "request", "response", "calls", "outstanding"},
		"calls":           {"class", "dscp", "clients", "servers", "connections", "request", "response", "outstanding", "plain", "random"},
		"goal":            {"class", "dscp", "file", "from", "random", "at"},
		"iterations":      {"class", "dscp", "pattern", "size", "ranks", "jobs", "random", "rounds", "compute", "group", "at"},
		"all-to-all":      {"class", "dscp", "size", "ranks", "jobs", "random", "qps", "rounds", "outstanding"},
		"ring-all-reduce": {"class", "dscp", "size", "ranks", "jobs", "random", "qps", "rounds"},
		"tree-all-reduce": {"class", "dscp", "size", "ranks", "jobs", "random", "qps", "rounds"},
	}
	balanceKeys = map[string][]string{
		"ecmp": nil, "spray": nil, "round-robin": nil, "po2": nil, "drill": {"samples", "per_host"}, fabric.Explicit: nil, "letflow": {"gap"}, "ksp": {"paths"},
		"conweave": {"paths", "reply", "busy", "extra", "wait", "inactive"},
	}
	eventKeys = map[string][]string{
		"fail": nil, "restore": nil, "degrade": {"rate"}, "lose": {"probability"}, "corrupt": {"probability"}, "jitter": {"most"}, "mark": {"min", "max", "probability"}, "fail-some": {"percent", "every", "until"},
	}
)

// only rejects keys of the mapping at key besides common and those of its kind. Unknown kinds are rejected
// elsewhere.
func (f *File) only(key, kind string, kinds map[string][]string, common ...string) error {
	special, known := kinds[kind]
	if !known {
		return nil
	}
	return f.Only(key, kind, slices.Concat(common, special))
}

// strict rejects keys without effect.
func (f *File) strict(*sim.Config) error {
	if err := f.only("topology", f.Topology.Kind, topologyKeys, "kind", "planes"); err != nil {
		return err
	}
	for i := range f.Workload {
		if err := f.only(fmt.Sprintf("workload.%d", i), f.Workload[i].Kind, workKeys, "kind"); err != nil {
			return err
		}
	}
	for i, e := range f.Events {
		if err := f.only(fmt.Sprintf("events.%d", i), e.Do, eventKeys, "at", "link", "index", "do"); err != nil {
			return err
		}
	}
	return nil
}

// marked lists congestion controls that depend on ECN marks.
var marked = []string{"dcqcn", "dctcp"}

// senseless rejects combinations that cannot work or have no effect.
func (f *File) senseless(c *sim.Config) error {
	if err := f.needsMarks(c, "transport", &f.Transport); err != nil {
		return err
	}
	for i := range f.Transports {
		if err := f.needsMarks(c, fmt.Sprintf("transports.%d", i), &f.Transports[i].Transport); err != nil {
			return err
		}
	}
	if f.Switch.Balance.Samples != 0 && f.Switch.Balance.Name != "drill" {
		return f.At("switch.balance.samples", "only drill has samples, not %s", orECMP(f.Switch.Balance.Name))
	}
	if err := f.only("switch.balance", orECMP(f.Switch.Balance.Name), balanceKeys, "name"); err != nil {
		return err
	}
	if f.Flor != nil && !slices.ContainsFunc(f.Workload, func(w Work) bool { return w.Kind == "calls" }) {
		return f.At("flor", "only workloads of kind calls use Flor")
	}
	if f.Stop > 0 && f.Sample > f.Stop {
		return f.At("sample", "longer than stop: there would be no sample")
	}
	return nil
}

// perPacket are the load balancers by which each packet takes another path.
var perPacket = []string{"spray", "round-robin", "po2", "drill"}

// needsMarks rejects congestion control that waits for marks or telemetry in vain.
func (f *File) needsMarks(c *sim.Config, key string, t *Transport) error {
	name := t.Congestion.Name
	if ccalgo.NeedsTelemetry(name) && len(c.Graph.Switches) > 0 {
		if balance := c.Switch(0, 0).Balance.Name; slices.Contains(perPacket, balance) {
			return f.At(key+".congestion", "%s compares packets of one path, and switches choose one for each packet: set switch.balance to ecmp or letflow, not %s", name, balance)
		}
	}
	if !slices.Contains(marked, name) || len(c.Graph.Switches) == 0 {
		return nil
	}
	mask := f.marks(c)
	if mask == 0 {
		return f.At(key+".congestion", "%s needs ECN marks, and no switch marks packets: set switch.ecn", name)
	}
	if !slices.ContainsFunc(f.Workload, func(w Work) bool { return mask>>w.Class&1 != 0 }) {
		return f.At(key+".congestion", "%s needs ECN marks, and no switch marks packets of the workloads' classes: set ecn.classes", name)
	}
	return nil
}

func orECMP(name string) string {
	return cmp.Or(name, "ecmp")
}

// marks returns a bit mask of the classes whose packets a switch or a fault rule marks.
func (f *File) marks(c *sim.Config) (mask uint8) {
	const all = 1<<fabric.Classes - 1
	for i := range c.Graph.Switches {
		if e := c.Switch(i, 0).ECN; e.Max > 0 {
			mask |= cmp.Or(e.Classes, all)
		}
	}
	if slices.ContainsFunc(f.Faults, func(x Faults) bool {
		return slices.ContainsFunc(x.Rules, func(rule string) bool { return strings.Contains(rule, "ecn") })
	}) {
		return all
	}
	return mask
}
