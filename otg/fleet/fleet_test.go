package fleet

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"roced.io/roced/otg/engine"
)

// spread is a configuration of an interface, a NIC and two agents. Each port has a peer with two queue pairs; those of the
// first port connect to the second and to the third.
func spread() engine.Config {
	c := engine.Config{AutoStart: true}
	for i, n := range []string{"if", "nic", "one", "two"} {
		p := engine.Port{Name: n, Device: "eth1"}
		switch n {
		case "nic":
			p.Kind = engine.Verbs
		case "one", "two":
			p.Agent = n + ":1"
		}
		c.Ports = append(c.Ports, p)
		c.Interfaces = append(c.Interfaces, engine.Interface{Name: "e" + n, Port: n, Addresses: []engine.Address{{Name: "a" + n,
			Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}), 24)}}})
		c.Peers = append(c.Peers, engine.Peer{Name: "r" + n, Address: "a" + n, QueuePairs: []engine.QueuePair{{Name: n + "0"}, {Name: n + "1"}}})
	}
	join := func(a, b *engine.QueuePair) { a.Remote, a.Active, b.Remote = b.Name, true, a.Name }
	join(&c.Peers[0].QueuePairs[0], &c.Peers[1].QueuePairs[0])
	join(&c.Peers[0].QueuePairs[1], &c.Peers[2].QueuePairs[0])
	join(&c.Peers[3].QueuePairs[0], &c.Peers[3].QueuePairs[1])
	c.Flows = []engine.Flow{{Name: "w", Port: "if", QueuePair: "if0", LineRate: 0.5, Size: 9}, {Name: "r", Port: "if", QueuePair: "if1", Verb: engine.Read, LineRate: 0.5},
		{Name: "own", Port: "two", QueuePair: "two0", LineRate: 0.5}}
	c.RawFlows = []engine.RawFlow{{Name: "plain", Tx: "one", Rx: []string{"if", "two"}, Frame: []byte{1}}}
	c.Captures = []engine.Capture{{Ports: []string{"if", "two"}, Snap: 5}}
	return c
}

// TestSplit: each engine gets the objects of its ports, and the other ends of flows.
func TestSplit(t *testing.T) {
	c := spread()
	parts, err := split(&c)
	if err != nil || len(parts) != 4 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	for i, key := range []string{interfaces, ownNICs, "one:1", "two:1"} {
		p := parts[i]
		if p.key != key || len(p.Ports) != 1 || p.Ports[0].Agent != "" || len(p.Interfaces) != 1 || len(p.Peers) != 1 || p.AutoStart {
			t.Errorf("%+v", p)
		}
	}
	for _, q := range []struct {
		pair      engine.QueuePair
		elsewhere bool
	}{{parts[0].Peers[0].QueuePairs[0], true}, {parts[2].Peers[0].QueuePairs[0], true}, {parts[2].Peers[0].QueuePairs[1], false}, {parts[3].Peers[0].QueuePairs[0], false}} {
		if q.pair.Elsewhere != q.elsewhere {
			t.Errorf("%+v", q.pair)
		}
	}
	if c.Peers[0].QueuePairs[0].Elsewhere {
		t.Error("the configuration itself has changed")
	}
	for i, want := range [][]engine.Flow{c.Flows[:2], {{Name: "w", QueuePair: "nic0", LineRate: 0.25, Size: 9, Far: true}},
		{{Name: "r", QueuePair: "one0", Verb: engine.Read, LineRate: 0.25, Far: true}}, c.Flows[2:]} {
		if !reflect.DeepEqual(parts[i].Flows, want) {
			t.Errorf("flows of %s: %+v, want %+v", parts[i].key, parts[i].Flows, want)
		}
	}
	for i, want := range []engine.RawFlow{{Name: "plain", Rx: []string{"if"}}, {}, {Name: "plain", Tx: "one", Frame: []byte{1}}, {Name: "plain", Rx: []string{"two"}}} {
		if got := append(parts[i].RawFlows, engine.RawFlow{})[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("plain flows of %s: %+v", parts[i].key, got)
		}
	}
	if parts[0].Captures[0].Snap != 5 || len(parts[3].Captures[0].Ports) != 1 || parts[1].Captures != nil {
		t.Errorf("captures %+v", parts[0].Captures)
	}
	c.Interfaces[0].Port, c.Peers[1].Address, c.Flows[2].QueuePair = "x", "y", "z"
	if _, err := split(&c); err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), `interface eif: no port "x"`) {
		t.Errorf("error %v", err)
	}
}

// stub is an engine that logs its calls.
type stub struct {
	engine.Engine
	name string
	log  *[]string
	fail error
}

func (s *stub) call(what string, names []string) error {
	*s.log = append(*s.log, s.name+" "+what+" "+strings.Join(names, ","))
	return s.fail
}
func (s *stub) Protocols(n []string, state engine.ProtocolState) error {
	return s.call([]string{"disconnect", "accept", "connect"}[state], n)
}
func (s *stub) Traffic(n []string, state engine.TrafficState) error {
	return s.call([]string{"start", "stop", "pause", "resume", "prepare"}[state], n)
}
func (s *stub) AddRawFlows(r []engine.RawFlow) error {
	return s.call("add", rawFlows(&engine.Config{RawFlows: r}))
}
func (s *stub) RemoveRawFlows(n []string) error { return s.call("remove", n) }
func (s *stub) UpdateRawFlows(r []engine.RawFlow) error {
	return s.call("update", rawFlows(&engine.Config{RawFlows: r}))
}
func (s *stub) Err() error { return s.fail }

// TestOrder: queue pairs accept before others connect, and receivers start before senders. Names reach the engines that have them.
func TestOrder(t *testing.T) {
	c := spread()
	parts, _ := split(&c)
	var log []string
	f := &fleet{cfg: c}
	for _, p := range parts {
		f.members = append(f.members, &member{&stub{name: p.Ports[0].Name, log: &log}, p.Config})
	}
	raw := engine.RawFlow{Name: "more", Tx: "if", Rx: []string{"one"}}
	for _, s := range []struct {
		call func() error
		want string
	}{
		{func() error { return f.Protocols([]string{"rif", "rone"}, engine.Connect) }, "if accept rif; one accept rone; if connect rif; one connect rone"},
		{func() error { return f.Protocols([]string{"rnic"}, engine.Disconnect) }, "nic disconnect rnic"},
		{func() error { return f.Traffic([]string{"w", "own"}, engine.Start) },
			"if prepare w; nic prepare w; two prepare own; nic start w; if start w; two start own"},
		{func() error { return f.Traffic(nil, engine.Stop) }, "if stop plain,w,r; nic stop w; one stop r,plain; two stop plain,own"},
		{func() error { return f.AddRawFlows([]engine.RawFlow{raw}) }, "if add more; one add more"},
		{func() error { return f.UpdateRawFlows([]engine.RawFlow{raw}) }, "if update more"},
		{func() error { return f.RemoveRawFlows([]string{"more"}) }, "if remove more; one remove more"},
		{func() error { return f.RemoveRawFlows(nil) }, ""},
	} {
		log = nil
		if err := s.call(); err != nil || strings.Join(log, "; ") != s.want {
			t.Errorf("calls %q, %v; want %s", log, err, s.want)
		}
	}
	if err := f.Traffic([]string{"w", "x"}, engine.Start); err == nil || !strings.Contains(err.Error(), `no flow "x"`) {
		t.Errorf("error %v", err)
	}
	f.members[1].Engine.(*stub).fail = errors.New("lost")
	if err := f.Traffic(nil, engine.Stop); err == nil || err.Error() != "lost" || f.Err().Error() != "lost" {
		t.Errorf("errors %v, %v", err, f.Err())
	}
	log, f.members[1].part.RawFlows = nil, nil
	if err := f.AddRawFlows([]engine.RawFlow{{Name: "partly", Tx: "if", Rx: []string{"nic"}}}); err == nil || len(f.cfg.RawFlows) != 1 ||
		!strings.HasSuffix(strings.Join(log, "; "), "if remove partly; nic remove partly") {
		t.Errorf("a flow that one engine refuses: %v, calls %q", err, log)
	}
	if _, err := New(nil).Apply(spread()); err == nil || !strings.Contains(err.Error(), "agent one:1: an agent has no agents") {
		t.Errorf("error %v", err)
	}
}

// TestMerged: the metrics of a flow have the counters of both ends, whichever comes first.
func TestMerged(t *testing.T) {
	own := engine.FlowMetric{Name: "f", PortTx: "a", Own: true, SourceQP: 5, FramesTx: 7, ACKRx: 3, MessagesComplete: 1, MessagesTx: 2, DestQP: 9}
	far := engine.FlowMetric{Name: "f", Far: true, Remote: true, PortRx: "b", FramesRx: 6, ACKTx: 4, MessagesComplete: 2, DestQP: 8}
	want := own
	want.Remote, want.PortRx, want.FramesRx, want.ACKTx, want.MessagesComplete, want.DestQP = true, "b", 6, 4, 2, 8
	for _, m := range []engine.FlowMetric{merged(own, far), merged(far, own)} {
		if m != want {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	far.Remote = false // does not count
	if m := merged(own, far); m.MessagesComplete != 1 {
		t.Errorf("%+v", m)
	}
	a, b := engine.RawFlowMetric{Name: "r", PortTx: "a", FramesTx: 3}, engine.RawFlowMetric{Name: "r", PortRx: "b", FramesRx: 2}
	for _, m := range []engine.RawFlowMetric{mergedRaw(a, b), mergedRaw(b, a)} {
		if m.FramesTx != 3 || m.FramesRx != 2 || m.PortRx != "b" || m.PortTx != "a" {
			t.Errorf("%+v", m)
		}
	}
}
