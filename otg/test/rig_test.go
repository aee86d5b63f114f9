// Package test runs roceotg's API and engine between namespaces, with gosnappi's own client.
package test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi"
	"github.com/vishvananda/netlink"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/otg/api"
	"roced.io/roced/otg/fleet"
)

// soon bounds waiting for conditions, which hold much earlier on an idle machine.
const soon = 3 * time.Minute

// mtu of the fabric's links.
const mtu = 9216

// fabric is a namespace with a switch, and a namespace for each port with one interface, eth0. The switch's end of port i is s<i>.
type fabric struct {
	t      *testing.T
	middle *namespace.Namespace
	hosts  []*namespace.Namespace
	places map[int]string // locations other than interfaces, by port
}

func newFabric(t *testing.T, ports int) *fabric {
	t.Helper()
	f := &fabric{t: t, places: map[int]string{}}
	f.middle = f.namespace()
	f.do(f.middle, func() error { return namespace.AddBridge("br0") })
	f.do(f.middle, func() error {
		return namespace.Change("br0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, mtu) })
	})
	for i := range ports {
		h := f.namespace()
		f.hosts = append(f.hosts, h)
		s := fmt.Sprintf("s%d", i)
		if err := h.Join("eth0", f.middle, s); err != nil {
			t.Fatal(err)
		}
		up := func(name string) error {
			return errors.Join(namespace.Change(name, func(l netlink.Link) error { return netlink.LinkSetMTU(l, mtu) }), namespace.SetUp(name))
		}
		f.do(h, func() error { return up("eth0") })
		f.do(f.middle, func() error { return errors.Join(up(s), namespace.Enslave(s, "br0")) })
	}
	return f
}

// namespace makes a namespace that lives as long as the test.
func (f *fabric) namespace() *namespace.Namespace {
	f.t.Helper()
	n, err := namespace.New()
	if err != nil {
		if os.Geteuid() != 0 {
			f.t.Skipf("needs CAP_SYS_ADMIN: %v", err)
		}
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = n.Close() })
	return n
}

func (f *fabric) do(n *namespace.Namespace, run func() error) {
	f.t.Helper()
	if err := n.Do(run); err != nil {
		f.t.Fatal(err)
	}
}

// bottleneck limits the switch's end of a port.
func (f *fabric) bottleneck(port int, words ...string) *bottleneck.Attachment {
	f.t.Helper()
	o, err := bottleneck.Parse(words)
	if err != nil {
		f.t.Fatal(err)
	}
	var a *bottleneck.Attachment
	f.do(f.middle, func() (err error) {
		a, err = bottleneck.Attach(fmt.Sprintf("s%d", port), o, attach.Auto)
		return err
	})
	f.t.Cleanup(func() { f.do(f.middle, a.Close) })
	return a
}

func (f *fabric) location(port int) string {
	return cmp.Or(f.places[port], "netns/"+f.hosts[port].Path()+"/eth0")
}

// serve starts the API with the real engine. It returns the addresses of gRPC and HTTPS.
func (f *fabric) serve(access api.Access) (rpc, web string) {
	f.t.Helper()
	var allowed []string
	for i := range f.hosts {
		allowed = append(allowed, f.location(i))
	}
	e := fleet.New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan [2]string, 1), make(chan error, 1)
	go func() {
		ended <- api.New(e, allowed).Serve(ctx, access, func(g, h net.Addr) { started <- [2]string{g.String(), h.String()} })
	}()
	f.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, e.Close()); err != nil {
			f.t.Error(err)
		}
	})
	select {
	case a := <-started:
		return a[0], a[1]
	case err := <-ended:
		ended <- nil
		f.t.Fatal(err)
	}
	return "", ""
}

var local = api.Access{GRPC: "127.0.0.1:0", HTTPS: "127.0.0.1:0"}

// client is gosnappi's API with checks.
type client struct {
	t *testing.T
	gosnappi.Api
}

func grpcClient(t *testing.T, address string) *client {
	c := gosnappi.NewApi()
	c.NewGrpcTransport().SetLocation(address).SetRequestTimeout(soon)
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c}
}

func httpsClient(t *testing.T, address string) *client {
	c := gosnappi.NewApi()
	c.NewHttpTransport().SetLocation("https://" + address).SetVerify(false)
	return &client{t, c}
}

// newClient starts a server for the fabric, and returns a client by gRPC.
func (f *fabric) newClient() *client {
	rpc, _ := f.serve(local)
	return grpcClient(f.t, rpc)
}

func (c *client) set(config gosnappi.Config) []string {
	c.t.Helper()
	w, err := c.SetConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return w.Warnings()
}

func (c *client) protocols(state gosnappi.StateProtocolAllStateEnum) {
	c.t.Helper()
	s := gosnappi.NewControlState()
	s.Protocol().All().SetState(state)
	if _, err := c.SetControlState(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) traffic(state gosnappi.StateTrafficFlowTransmitStateEnum, flows ...string) {
	c.t.Helper()
	s := gosnappi.NewControlState()
	s.Traffic().FlowTransmit().SetState(state).SetFlowNames(flows)
	if _, err := c.SetControlState(s); err != nil {
		c.t.Fatal(err)
	}
}

// flows returns the metrics of RoCEv2's flows by name.
func (c *client) flows() map[string]gosnappi.Rocev2FlowMetricPerQP {
	c.t.Helper()
	r := gosnappi.NewMetricsRequest()
	r.Rocev2Flow().PerQp()
	m, err := c.GetMetrics(r)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]gosnappi.Rocev2FlowMetricPerQP{}
	for _, f := range m.Rocev2FlowPerQpMetrics().Items() {
		out[f.FlowName()] = f
	}
	return out
}

// peers returns the metrics of peers by IPv4.
func (c *client) peers() map[string]gosnappi.Rocev2IPv4MetricPerPeer {
	c.t.Helper()
	r := gosnappi.NewMetricsRequest()
	r.Rocev2Ipv4().PerPeer()
	m, err := c.GetMetrics(r)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]gosnappi.Rocev2IPv4MetricPerPeer{}
	for _, p := range m.Rocev2Ipv4PerPeerMetrics().Items() {
		out[p.Name()] = p
	}
	return out
}

// await waits until a condition holds.
func (c *client) await(what string, holds func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(soon); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not after %s: %s; peers %v, flows %v", soon, what, c.peers(), c.flows())
		}
	}
}

// rest is the time without a data packet after which a sender is idle: DCQCN's lowest rate is a packet in 10 ms.
const rest = time.Second

// drained waits until all messages that were sent are complete, and the senders are idle.
func (c *client) drained() map[string]gosnappi.Rocev2FlowMetricPerQP {
	c.t.Helper()
	c.await("messages are complete", func() bool {
		for _, f := range c.flows() {
			last, err := time.Parse(time.RFC3339Nano, f.LastTimestamp())
			if err != nil || time.Since(last) < rest || f.MessageTx() != f.MessageCompleteRx()+f.MessageFail() {
				return false
			}
		}
		return true
	})
	return c.flows()
}

// addr is the address of a port.
func addr(port int) string { return netip.AddrFrom4([4]byte{198, 18, 0, byte(port + 1)}).String() }

// addPort adds a port with a device to a configuration, and returns the device.
func (f *fabric) addPort(c gosnappi.Config, port int) gosnappi.Device {
	name := fmt.Sprintf("Port %d", port)
	c.Ports().Add().SetName(name).SetLocation(f.location(port))
	d := c.Devices().Add().SetName("Device " + name)
	e := d.Ethernets().Add().SetName("Ethernet " + name).SetMac(fmt.Sprintf("02:00:00:00:01:%02x", port)).SetMtu(9100)
	e.Connection().SetPortName(name)
	e.Ipv4Addresses().Add().SetName("IPv4 " + name).SetAddress(addr(port)).SetGateway("198.18.0.254").SetPrefix(24)
	return d
}
