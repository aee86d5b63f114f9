package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

// twoNICs returns a configuration of the two NICs of a daemon, with a peer and so many queue pairs each.
func twoNICs(t *testing.T, pairs int) (Config, *lab.Within) {
	t.Helper()
	w := lab.NewWithin(t, "otg")
	t.Setenv("ROCED_RUN_DIR", w.RunDir)
	c := Config{}
	for i, nic := range []string{"rxe_a", "rxe_b"} {
		n := fmt.Sprint(i)
		own, far := netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}), netip.AddrFrom4([4]byte{198, 18, 0, byte(2 - i)})
		c.Ports = append(c.Ports, Port{Name: "p" + n, Location: "nic://" + nic, Kind: Verbs, Device: nic, RoCE: settings})
		c.Interfaces = append(c.Interfaces, Interface{Name: "e" + n, Port: "p" + n, MTU: 1500, Addresses: []Address{{Name: "a" + n,
			Prefix: netip.PrefixFrom(own, 24)}}})
		p := Peer{Name: "peer" + n, Address: "a" + n, Destination: far, PathMTU: 4096}
		for k := range pairs {
			p.QueuePairs = append(p.QueuePairs, QueuePair{Name: fmt.Sprintf("q%d.%d", i, k), Remote: fmt.Sprintf("q%d.%d", 1-i, k), Active: i == 0,
				Data: Marking{DSCP: 24}, SourcePort: uint16(49152 + k), PSN: 0xfffff0})
		}
		c.Peers = append(c.Peers, p)
	}
	return c, w
}

// startNICs applies a configuration.
func startNICs(t *testing.T, c Config) (*nics, []string) {
	t.Helper()
	e := NewNICs().(*nics)
	t.Cleanup(func() { must(t, e.Close()) })
	warnings, err := e.Apply(c)
	must(t, err)
	return e, warnings
}

// TestNICFlows: each verb moves messages between two NICs, with the attributes of the configuration. After the end of the traffic,
// all messages are complete.
func TestNICFlows(t *testing.T) {
	c, _ := twoNICs(t, 5)
	for v := Write; v <= Read; v++ {
		c.Flows = append(c.Flows, Flow{Name: fmt.Sprint("f", v), Port: "p0", QueuePair: fmt.Sprint("q0.", int(v)), Verb: v, Size: 256 << 10, LineRate: 0.2})
	}
	c.Ports[0].Speed = 1e9
	e, warnings := startNICs(t, c)
	if all := strings.Join(warnings, "\n"); !strings.Contains(all, "the NIC rxe_a decides") {
		t.Errorf("warnings %q", warnings)
	}
	must(t, e.Traffic(nil, Start))
	await(t, e, "two messages of each flow", func() bool {
		for _, m := range e.FlowMetrics() {
			if m.MessagesComplete < 2 {
				return false
			}
		}
		return true
	})
	a, err := e.pairs["q0.3"].qp.Query()
	must(t, err)
	if a.AV.TrafficClass != 24<<2 || a.AV.FlowLabel != 1<<14|2 || a.Timeout != timeoutCode(settings.Timeout) || a.RetryCnt != 7 {
		t.Errorf("attributes %+v", a)
	}
	if p := e.PeerMetrics(); p[0].Up != 5 || p[1].Up != 5 || p[0].Messages {
		t.Errorf("%+v", p)
	}
	must(t, e.Traffic(nil, Stop))
	await(t, e, "all messages are complete", func() bool {
		for _, m := range e.FlowMetrics() {
			if m.MessagesTx != m.MessagesComplete {
				return false
			}
		}
		return true
	})
	for _, m := range e.FlowMetrics() {
		if m.MessagesFailed != 0 || m.Completion <= 0 || m.Own || m.Remote || m.SourceQP < 2 || m.DestQP != e.pairs[strings.Replace("q1."+m.Name[1:], " ", "", 1)].qp.Num() || m.PortRx != "p1" {
			t.Errorf("%+v", m)
		}
	}
	if p := e.PortMetrics(); !p[0].Up || p[0].FramesTx < 500 || p[1].BytesRx < 1<<20 {
		t.Errorf("%+v", p)
	}
}

// TestNICRate: flows share the rate of their group. The token bucket of a queue pair permits a burst, so the time of many messages is
// compared.
func TestNICRate(t *testing.T) {
	c, _ := twoNICs(t, 2)
	c.Ports[0].Speed = 100e6
	for i := range 2 {
		c.Flows = append(c.Flows, Flow{Name: fmt.Sprint("f", i), Port: "p0", QueuePair: fmt.Sprint("q0.", i), Size: 100_000, LineRate: 1})
	}
	e, _ := startNICs(t, c)
	must(t, e.Protocols(nil, Connect))
	await(t, e, "queue pairs are up", func() bool { return e.PeerMetrics()[0].Up == 2 && e.PeerMetrics()[1].Up == 2 })
	began := time.Now()
	must(t, e.Traffic(nil, Start))
	await(t, e, "20 messages", func() bool { m := e.FlowMetrics(); return m[0].MessagesComplete+m[1].MessagesComplete >= 20 })
	if d, least := time.Since(began), 100*time.Millisecond; d < least {
		t.Errorf("2 MB at 100 Mb/s took %s, at least %s", d, least)
	}
	if m := e.FlowMetrics(); m[0].MessagesComplete < 5 || m[1].MessagesComplete < 5 {
		t.Errorf("%+v", m)
	}
}

// TestNICConnections: queue pairs disconnect and connect again, a request that no queue pair expects is rejected, and a NIC without
// the address is an error.
func TestNICConnections(t *testing.T) {
	c, _ := twoNICs(t, 2)
	c.Peers[1].QueuePairs[1].Remote = "another"
	c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Size: 1000, LineRate: 0.001}}
	e, _ := startNICs(t, c)
	must(t, e.Protocols(nil, Connect))
	await(t, e, "a connection and a rejection", func() bool {
		m := e.PeerMetrics()
		e.mu.Lock()
		defer e.mu.Unlock()
		return m[0].Up == 1 && m[1].Up == 1 && e.pairs["q0.1"].state == pairFailed && strings.Contains(m[0].LastError, "rejected by 198.18.0.2")
	})
	must(t, e.Protocols([]string{"peer1"}, Disconnect))
	await(t, e, "no connection", func() bool { m := e.PeerMetrics(); return m[0].Up == 0 && m[1].Up == 0 })
	must(t, e.Traffic(nil, Start))
	await(t, e, "messages", func() bool { return e.FlowMetrics()[0].MessagesComplete > 10 })
	for _, err := range []error{e.SetLink(nil, false), e.StartCapture(nil), e.AddRawFlows(nil), second(e.Ping(nil)), second(e.Captured("p0"))} {
		if err == nil || !strings.Contains(err.Error(), "NICs of a daemon do not have it") {
			t.Errorf("error %v", err)
		}
	}
	c.Interfaces[0].Addresses[0].Prefix = netip.MustParsePrefix("198.18.9.9/24")
	c.Ports[1].Device = "none"
	if _, err := e.Apply(c); err == nil || !strings.Contains(err.Error(), "port p1: NIC none: ") {
		t.Errorf("error %v", err)
	}
	c.Ports[1].Device = "rxe_b"
	if _, err := e.Apply(c); err == nil || !strings.Contains(err.Error(), "NIC rxe_a has no address 198.18.9.9; use one of 198.18.0.1") {
		t.Errorf("error %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestNICLost: a daemon that ends is an error, its queue pairs are down, and a later configuration works.
func TestNICLost(t *testing.T) {
	c, w := twoNICs(t, 1)
	c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Size: 1000, LineRate: 0.01}}
	e, _ := startNICs(t, c)
	must(t, e.Traffic(nil, Start))
	await(t, e, "messages", func() bool { return e.FlowMetrics()[0].MessagesComplete > 10 })
	must(t, w.Stop())
	await(t, e, "the loss", func() bool { return e.Err() != nil && e.PeerMetrics()[0].Down == 1 })
	if s := e.Err().Error(); !strings.Contains(s, "port p0: NIC rxe_a is lost") {
		t.Error(s)
	}
	c, _ = twoNICs(t, 1)
	if _, err := e.Apply(c); err != nil || e.Err() != nil {
		t.Errorf("%v, %v", err, e.Err())
	}
}
