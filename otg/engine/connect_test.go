package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// TestConnections: queue pairs with equal keys connect, disconnect and connect again, and connect by a start of traffic. A request that no queue
// pair expects is rejected, and the peer's error tells it.
func TestConnections(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 3)
	c.Peers[1].QueuePairs[2].Active = true // and so is q0.2: neither accepts
	for i := range 2 {
		c.Flows = append(c.Flows, Flow{Name: fmt.Sprint("f", i), Port: "p1", QueuePair: fmt.Sprintf("q1.%d", i), Verb: Write, Size: 1000, LineRate: 0.001})
	}
	e := start(t, c)
	up := func(n int) func() bool {
		return func() bool { m := e.PeerMetrics(); return m[0].Up == n && m[1].Up == n }
	}
	must(t, e.Protocols(nil, Connect))
	await(t, e, "two connections", up(2))
	await(t, e, "the rejections", func() bool { m := e.PeerMetrics(); return m[0].RejectRx > 0 && m[1].RejectRx > 0 })
	m := e.PeerMetrics()
	if m[0].RequestTx != 3 || m[0].ReplyRx != 2 || m[0].ReadyTx != 2 || m[1].ReadyRx != 2 || m[1].RejectTx != 1 ||
		!strings.Contains(m[0].LastError, "rejected by 198.18.7.2") {
		t.Errorf("%+v", m)
	}
	must(t, e.Protocols([]string{"peer0"}, Disconnect))
	await(t, e, "no connections", up(0))
	if m := e.PeerMetrics(); m[0].DisconnectRequestTx != 2 || m[1].DisconnectRequestRx != 2 {
		t.Errorf("%+v", m)
	}
	must(t, e.Traffic(nil, Start))
	await(t, e, "connections and messages of both flows", func() bool {
		m := e.FlowMetrics()
		return m[0].MessagesComplete > 0 && m[1].MessagesComplete > 0
	})
	if m := e.FlowMetrics(); m[0].DestQP != 2 || m[1].SourceQP != 3 || m[0].Dest != addr(0) || m[0].PortRx != "p0" {
		t.Errorf("%+v", m)
	}
	if err := e.Protocols([]string{"peer0", "none"}, Connect); err == nil || !strings.Contains(err.Error(), `no peer "none"`) {
		t.Errorf("error %v", err)
	}
}

// TestReceiveOnly: a queue pair without a named peer is accepted by one that accepts any, which has a peer 0.0.0.0. A frame of
// a VLAN keeps its tag.
func TestReceiveOnly(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 1)
	c.Peers[0].QueuePairs[0].Remote = ""
	c.Peers[1].QueuePairs[0].Remote = ""
	c.Peers[1].Destination = netip.IPv4Unspecified()
	for i := range c.Interfaces {
		c.Interfaces[i].VLANs = []VLAN{{TPID: 0x8100, ID: 100, Priority: 3}}
	}
	c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Verb: SendImm, Size: 1, LineRate: 0.001}}
	e := start(t, c)
	must(t, e.Protocols(nil, Connect))
	must(t, e.Traffic(nil, Start))
	await(t, e, "messages", func() bool { return e.FlowMetrics()[0].MessagesTx > 10 })
	if m := e.FlowMetrics()[0]; m.Remote || m.FramesRx != 0 || m.DestQP != 2 || m.ACKRx == 0 {
		t.Errorf("%+v", m)
	}
}

// TestWrongConfigurations: an error names each object, and nothing is left behind.
func TestWrongConfigurations(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	for want, change := range map[string]func(*Config){
		"port p0: packet":                  func(c *Config) { c.Ports[0].Device = "none" },
		"flow f: message of 0 bytes":       func(c *Config) { c.Flows = []Flow{{Name: "f", QueuePair: "q0.0"}} },
		`flow f: no queue pair "x"`:        func(c *Config) { c.Flows = []Flow{{Name: "f", QueuePair: "x", Size: 1}} },
		"interface e0: 2 VLAN tags":        func(c *Config) { c.Interfaces[0].VLANs = make([]VLAN, 2) },
		"queue pair q0.0: create_qp":       func(c *Config) { c.Peers[0].QueuePairs[0].Number = 1 },
		`peer peer1: no address "y"`:       func(c *Config) { c.Peers[1].Address = "y" },
		"queue pair q0.0: no queue pair":   func(c *Config) { c.Peers[0].QueuePairs[0].Remote = "z" },
		"port p1: location netns/1:":       func(c *Config) { c.Ports[1].Kind = Verbs },
		"flow r: rate 0: must be positive": func(c *Config) { c.RawFlows = []RawFlow{{Name: "r", Tx: "p0", Frame: make([]byte, 60)}} },
	} {
		c := twoPorts(b, 1)
		change(&c)
		e := New()
		if _, err := e.Apply(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if m := e.PortMetrics(); m != nil {
			t.Errorf("%s: ports are left: %+v", want, m)
		}
		must(t, e.Close())
	}
}

// TestBroken: the messages of a queue pair that breaks fail, with a reason. The next start of the flow connects again, whichever end is
// broken.
func TestBroken(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	for i := range 2 {
		c := twoPorts(b, 1)
		c.Flows = []Flow{{Name: "f", Port: "p" + fmt.Sprint(i), QueuePair: fmt.Sprintf("q%d.0", i), Verb: Write, Size: 2000, LineRate: 0.001}}
		e := start(t, c)
		moves := func() bool { return e.FlowMetrics()[0].MessagesComplete > 2 }
		must(t, e.Traffic(nil, Start))
		await(t, e, "messages", moves)
		q := e.run.flows[0].pair
		must(t, e.do(func(now mono.Time) error { return q.modify(now, qp.Attr{State: qp.Err}, qp.AttrState, nil) }))
		await(t, e, "the messages in progress fail", func() bool {
			m := e.FlowMetrics()[0]
			return m.State == Stopped && m.MessagesFailed > 0 && strings.Contains(m.LastError, "flush") && e.PeerMetrics()[i].Down == 1
		})
		must(t, e.Traffic(nil, Start))
		await(t, e, "messages after another start", moves)
		if m := e.FlowMetrics()[0]; m.MessagesFailed != 0 || m.SequenceErrors != 0 {
			t.Errorf("%+v", m)
		}
		must(t, e.Close())
	}
}
