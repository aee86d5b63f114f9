package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// settings are those of a port without congestion control. On a busy machine a loop can rest for longer than a few milliseconds.
var settings = PortSettings{CNP: Marking{48, 1}, CNPInterval: 55 * time.Microsecond, ACK: Marking{40, 1}, NAK: Marking{41, 1},
	Timeout: 250 * time.Millisecond, Retries: 7}

// twoPorts returns a configuration of two ports in the namespaces of b, with an interface and a peer each. pairs are the numbers
// of the queue pairs.
func twoPorts(b *netlab.Bed, pairs int) Config {
	return portsIn([2]string{b.NS[0].Path(), b.NS[1].Path()}, pairs)
}

// portsIn is twoPorts for namespaces by path.
func portsIn(ns [2]string, pairs int) Config {
	c := Config{}
	for i := range 2 {
		n := fmt.Sprint(i)
		c.Ports = append(c.Ports, Port{Name: "p" + n, Location: "netns/" + n, Namespace: ns[i], Device: netlab.Veth, Promiscuous: true, RoCE: settings})
		own, far := addr(i), addr(1-i)
		c.Interfaces = append(c.Interfaces, Interface{Name: "e" + n, Port: "p" + n, MAC: inet.MAC{2, 0, 0, 0, 1, byte(i)}, MTU: 1500,
			Addresses: []Address{{Name: "a" + n, Prefix: netip.PrefixFrom(own, 24)}}})
		p := Peer{Name: "peer" + n, Address: "a" + n, Destination: far, PathMTU: 1024}
		for k := range pairs {
			p.QueuePairs = append(p.QueuePairs, QueuePair{Name: fmt.Sprintf("q%d.%d", i, k), Remote: fmt.Sprintf("q%d.%d", 1-i, k), Active: i == 0,
				Number: uint32(2 + k), Data: Marking{24, 1}, SourcePort: uint16(49152 + k), PSN: 0xfffff0, VirtualAddress: 0x1000, RemoteKey: 7})
		}
		c.Peers = append(c.Peers, p)
	}
	return c
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 7, byte(i + 1)}) }

// start applies a configuration.
func start(t *testing.T, c Config) *engine {
	t.Helper()
	e := New().(*engine)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := e.Apply(c); err != nil {
		t.Fatal(err)
	}
	return e
}

// await waits until a condition holds.
func await(t *testing.T, e Engine, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after a minute: %s\nflows %+v\nraw flows %+v\npeers %+v\nports %+v", what, e.FlowMetrics(), e.RawFlowMetrics(), e.PeerMetrics(), e.PortMetrics())
		}
	}
}

// TestFlows: each verb moves messages between two interfaces.
func TestFlows(t *testing.T) {
	for _, v := range []Verb{Write, WriteImm, Send, SendImm, Read} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			b := porttest.DirectBed(t, [2]bool{true, true})
			c := twoPorts(b, 1)
			c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Verb: v, Size: 100_000, LineRate: 0.01}}
			e := start(t, c)
			if m := e.FlowMetrics()[0]; !m.HasLatency || m.LatencyAvg != 0 {
				t.Errorf("before the first packet: %+v", m)
			}
			must(t, e.Traffic(nil, Start))
			must(t, e.Traffic(nil, Pause))
			must(t, e.Traffic(nil, Start))
			await(t, e, "ten messages", func() bool { return e.FlowMetrics()[0].MessagesComplete >= 10 })
			must(t, e.Traffic(nil, Stop))
			var m FlowMetric
			await(t, e, "all messages are complete", func() bool {
				m = e.FlowMetrics()[0]
				return m.MessagesTx == m.MessagesComplete && m.FramesTx == m.FramesRx
			})
			if m.MessagesFailed != 0 || m.Completion == 0 || !m.HasLatency || m.LatencyMin <= 0 || v != Read && m.ACKTx == 0 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestUnused: warnings name the settings that the NIC does not use, and the values that it uses instead.
func TestUnused(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 1)
	c.Ports[1].Speed, c.Ports[1].RoCE.DCQCN = 1e9, DCQCN{Enable: true, FirstRate: 2e-5, MinRate: 0.5}
	c.Peers[1].PathMTU = 4096
	a := &c.Interfaces[0].Addresses
	(*a)[0].Gateway = addr(253)
	*a = append(*a, Address{Name: "second", Prefix: netip.MustParsePrefix("198.18.8.1/24"), Gateway: netip.MustParseAddr("198.18.8.254")},
		Address{Name: "third", Prefix: netip.MustParsePrefix("fd00:7::1/64"), Gateway: netip.MustParseAddr("fd00:8::1")})
	e := New().(*engine)
	t.Cleanup(func() { _ = e.Close() })
	warnings, err := e.Apply(c)
	want := []string{"port p1: DCQCN: rate after the first CNP of 0.002 per cent: using 0.336, a packet in 10 ms",
		"peer peer1: path MTU 4096: using 1024, which fits into e1",
		"second: gateway 198.18.8.254: not used, another address of e0 has one of this family",
		"third: gateway fd00:8::1: not used, it is outside of fd00:7::/64"}
	if err != nil || !slices.Equal(warnings, want) {
		t.Errorf("%v, warnings %q, want %q", err, warnings, want)
	}
	var port rocev2.PortAttr
	await(t, e, "the link is up", func() bool {
		must(t, e.do(func(mono.Time) error { port = e.run.hosts[1].core.PortAttr(); return nil }))
		return port.State == rocev2.PortActive
	})
	if port.LinkMTU != 1500 {
		t.Errorf("MTU %d of the interface, on a link with more", port.LinkMTU)
	}
}

// TestXDP: a flow between an XDP port and a packet port. ARP takes the packet socket.
func TestXDP(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 1)
	c.Ports[0].Kind = XDP
	c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Verb: Write, Size: 100_000, LineRate: 0.01}}
	e := start(t, c)
	must(t, e.Traffic(nil, Start))
	await(t, e, "ten messages and acknowledgements", func() bool { // one acknowledgement may be that of several messages
		return e.FlowMetrics()[0].MessagesComplete >= 10 && e.PortMetrics()[0].FramesRx >= 10
	})
	if m := e.PortMetrics()[0]; !m.Up || !m.Transmitting {
		t.Errorf("%+v", m)
	}
}

// TestTAP: a port on a TAP device, which ends with the configuration.
func TestTAP(t *testing.T) {
	ns := links(t, 1)
	must(t, ns[1].Do(func() error { return errors.Join(namespace.AddBridge("br"), namespace.Enslave("w0", "br")) }))
	b := &netlab.Bed{NS: ns}
	c := twoPorts(b, 1)
	c.Ports[0].Device = "w0"
	c.Ports[1].Kind, c.Ports[1].Device = TAP, "tap0"
	c.Flows = []Flow{{Name: "f", Port: "p1", QueuePair: "q1.0", Verb: Read, Size: 10_000, LineRate: 0.01}}
	e := start(t, c)
	must(t, ns[1].Do(func() error { return errors.Join(namespace.SetUp("tap0"), namespace.Enslave("tap0", "br")) }))
	must(t, e.Traffic(nil, Start))
	await(t, e, "ten messages", func() bool { return e.FlowMetrics()[0].MessagesComplete >= 10 })
	must(t, e.SetLink([]string{"p1"}, false))
	await(t, e, "the port is down", func() bool { m := e.PortMetrics(); return m[0].Up && !m[1].Up })
	must(t, e.Close())
	if err := ns[1].Do(func() error { return namespace.SetUp("tap0") }); err == nil {
		t.Error("the TAP device is left")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
