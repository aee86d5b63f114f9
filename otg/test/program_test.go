package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/lab"
)

// TestKilled: a killed program leaves no interface behind, and a later one uses the same names.
func TestKilled(t *testing.T) {
	f := newFabric(t, 1)
	bin := program(t, ".", "../cmd/roceotg")
	exists := func() bool {
		err := f.hosts[0].Do(func() error {
			_, err := netlink.LinkByName("rg0")
			return err
		})
		return !errors.As(err, &netlink.LinkNotFoundError{})
	}
	tap := "tap://netns/" + f.hosts[0].Path() + "/rg0"
	for range 2 {
		rpc, web := free(t), free(t)
		p := exec.CommandContext(context.Background(), bin, "-grpc", rpc, "-https", web, strings.TrimPrefix(tap, "tap://"))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, soon, "the program listens", func() bool {
			c, err := net.Dial("tcp", web)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
		code, answer := post(t, web, "/config", fmt.Sprintf(`{"ports": [{"name": "p", "location": %q}]}`, tap))
		if code != http.StatusOK || !exists() {
			t.Errorf("%d %s", code, answer)
		}
		if err := p.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
		lab.Eventually(t, soon, "the interface is gone", func() bool { return !exists() })
	}
}

// program builds a program of the module in a folder, and returns its path.
func program(t *testing.T, module, pkg string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-C", module, "-o", bin, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// free returns an address with a port that no program uses.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestLoad: 8 ports, 64 flows, 1,024 queue pairs.
func TestLoad(t *testing.T) {
	lab.Long(t)
	const ports, each, flows = 8, 128, 8
	f := newFabric(t, ports)
	c := f.newClient()
	config := gosnappi.NewConfig()
	var all []int
	for i := range ports {
		all = append(all, i)
		in := f.addPort(config, i).Rocev2().Ipv4Interfaces().Add().SetIpv4Name(fmt.Sprintf("IPv4 Port %d", i))
		p := in.Peers().Add().SetName(fmt.Sprintf("Peer %d", i)).SetDestinationIpAddress(addr(i ^ 1))
		tx := config.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName(fmt.Sprintf("Port %d", i))
		tx.TransmitType().TargetLineRate().SetValue(50)
		for k := range each {
			name := fmt.Sprintf("QP%d_%d", i, k)
			p.Qps().Add().SetQpName(name).ConnectionType().ReliableConnection().SetSourceQpNumber(uint32(2 + k))
			if k < flows {
				tx.TransmitType().TargetLineRate().Flows().Add().SetName(name).SetTxEndpoint(name).SetMessageSize(64).
					SetMessageSizeUnit(gosnappi.Rocev2FlowMessageSizeUnit.KB)
			}
		}
		rc := config.Options().PerPortOptions().Add().SetPortName(fmt.Sprintf("Port %d", i)).Protocols().Add().Rocev2().ConnectionType()
		rc.ReliableConnection().SetRetransmissionTimeoutValue(500)
	}
	speed(config, gosnappi.Layer1Speed.SPEED_100_FD_MBPS, all...)
	c.set(config)
	c.await("1,024 queue pairs are up", func() bool {
		up := uint64(0)
		for _, p := range c.peers() {
			up += p.QpUp()
		}
		return up == ports*each
	})
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.messages(3)
	m := c.stop()
	if len(m) != ports*flows {
		t.Errorf("%d flows", len(m))
	}
	for _, f := range m {
		if f.MessageFail() != 0 {
			t.Errorf("%v", f)
		}
	}
}

// TestIPv6: queue pairs by IPv6 in a VLAN.
func TestIPv6(t *testing.T) {
	f := newFabric(t, 2)
	c := f.newClient()
	config := gosnappi.NewConfig()
	address := func(port int) string { return fmt.Sprintf("fd00::%d", port+1) }
	for i := range 2 {
		d := f.addPort(config, i)
		e := d.Ethernets().Items()[0]
		e.Vlans().Add().SetName(fmt.Sprintf("VLAN %d", i)).SetId(7).SetPriority(3)
		e.Ipv6Addresses().Add().SetName(fmt.Sprintf("IPv6 %d", i)).SetAddress(address(i)).SetGateway("fd00::ffff")
		p := d.Rocev2().Ipv6Interfaces().Add().SetIpv6Name(fmt.Sprintf("IPv6 %d", i)).Peers().Add()
		p.SetName(fmt.Sprintf("Peer %d", i)).SetDestinationIpAddress(address(1 - i)).Qps().Add().SetQpName(fmt.Sprintf("QP%d", i))
	}
	tx := config.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName("Port 1").TransmitType().TargetLineRate().SetValue(1)
	flow := tx.Flows().Add().SetName("flow").SetTxEndpoint("QP1").SetRxEndpoint("Port 0").SetMessageSizeUnit(gosnappi.Rocev2FlowMessageSizeUnit.KB)
	flow.Rocev2Verb().Read()
	c.set(config)
	r := gosnappi.NewMetricsRequest()
	r.Rocev2Ipv6().PerPeer().SetPeerNames([]string{"Peer 1"})
	c.await("the queue pair is up", func() bool {
		m, err := c.GetMetrics(r)
		if err != nil {
			t.Fatal(err)
		}
		return len(m.Rocev2Ipv6PerPeerMetrics().Items()) == 1 && m.Rocev2Ipv6PerPeerMetrics().Items()[0].QpUp() == 1
	})
	if len(c.peers()) != 0 {
		t.Errorf("peers by IPv4: %v", c.peers())
	}
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.await("messages", func() bool { return c.flows()["flow"].MessageCompleteRx() >= 5 })
	if m := c.flows()["flow"]; m.SrcIpv4() != address(1) || m.MessageFail() != 0 || m.PortRx() != "Port 0" {
		t.Errorf("%v", m)
	}
}
