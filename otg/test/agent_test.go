package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
)

// Addresses of the controller and of the agent in their management network.
const (
	controllerAddr = "198.18.100.1"
	agentAddr      = "198.18.100.2"
	agentEnd       = agentAddr + ":40052"
)

// machines starts the network of a controller at port 0 and an agent at port 1. It returns functions that start the programs. Each
// returns a function that kills it.
func (f *fabric) machines() (controller func() (*client, func()), agent func() func()) {
	f.t.Helper()
	bin := program(f.t, ".", "../cmd/roceotg")
	lab.Must(f.t, f.hosts[0].Join("mgmt", f.hosts[1], "mgmt"))
	for i, a := range []string{controllerAddr, agentAddr} {
		f.do(f.hosts[i], func() error {
			return errors.Join(namespace.SetUp("lo"), namespace.SetUp("mgmt"), namespace.AddAddr("mgmt", a+"/24"))
		})
	}
	f.places[0], f.places[1] = "eth0", "agent://"+agentEnd+"/eth0"
	start := func(host int, address string, words ...string) func() {
		c := exec.CommandContext(f.t.Context(), bin, words...)
		lab.Must(f.t, f.hosts[host].Start(c))
		lab.Eventually(f.t, soon, "the program listens", func() bool {
			conn, err := f.dial(host, address)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
		return func() {
			lab.Must(f.t, c.Process.Signal(syscall.SIGKILL))
			_ = c.Wait() // killed
		}
	}
	controller = func() (*client, func()) {
		const address = "127.0.0.1:40051"
		kill := start(0, address, "eth0", "agent://"+agentEnd+"/*", "agent://"+agentEnd+"/netns/*/*")
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return f.dial(0, address) }))
		lab.Must(f.t, err)
		f.t.Cleanup(func() { _ = conn.Close() })
		c := gosnappi.NewApi()
		c.NewGrpcTransport().SetClientConnection(conn).SetRequestTimeout(soon)
		return &client{f.t, c}, kill
	}
	agent = func() func() {
		return start(1, agentEnd, "agent", "-listen", agentEnd, "-allow", netip.MustParsePrefix(controllerAddr+"/32").String(), "eth0", "rg*")
	}
	return controller, agent
}

// dial connects to an address in the namespace of a port.
func (f *fabric) dial(host int, address string) (c net.Conn, err error) {
	doErr := f.hosts[host].Do(func() error {
		c, err = net.Dial("tcp", address)
		return err
	})
	return c, doErr
}

// TestAgent: the flows of a port of another machine, in both directions, with the counters of both ends, plain frames, a capture and
// echoes. Latency needs one clock.
func TestAgent(t *testing.T) {
	f := newFabric(t, 2)
	controller, agent := f.machines()
	agent()
	c, _ := controller()
	config := f.mesh(2)
	background(config.Flows().Add(), "plain", 20)
	config.Captures().Add().SetName("capture").SetPortNames([]string{"Port 1"})
	c.set(config)
	c.capture(gosnappi.StatePortCaptureState.START)
	c.protocols(gosnappi.StateProtocolAllState.START)
	c.await("queue pairs are up", func() bool { return c.peers()["Peer 0 1"].QpUp() == 3 && c.peers()["Peer 1 0"].QpUp() == 3 })
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.messages(10)
	flows := c.stop()
	for name, m := range flows {
		if m.MessageFail() != 0 || m.FrameDelta() != 0 || m.DataFramesTx() < 80 || m.DataFramesTx() != m.DataFramesRx() || m.AckTx() != m.AckRx() ||
			!strings.HasSuffix(name, "1") && m.AckTx() == 0 || m.HasAvgLatency() || m.SrcQp() == 0 || m.DestQp() == 0 || m.PortTx() == m.PortRx() {
			t.Errorf("%s: %v", name, m)
		}
	}
	if len(flows) != 3 {
		t.Errorf("%d flows", len(flows))
	}
	if m := c.plain()["plain"]; m.FramesTx() != 20 || m.FramesRx() != 20 || m.PortRx() != "Port 1" {
		t.Errorf("%v", m)
	}
	r := gosnappi.NewMetricsRequest()
	r.Rocev2Flow().PerQp().SetColumnNames([]gosnappi.Rocev2FlowColumnNamesColumnNamesEnum{"max_latency"})
	if _, err := c.GetMetrics(r); err == nil || !strings.Contains(err.Error(), "max_latency: the ports of flow") {
		t.Errorf("latency: %v", err)
	}
	c.capture(gosnappi.StatePortCaptureState.STOP)
	if b, err := c.GetCapture(gosnappi.NewCaptureRequest().SetPortName("Port 1")); err != nil || len(b) < 80*4096 {
		t.Errorf("a capture of %d bytes, %v", len(b), err)
	}
	if err := errors.Join(c.ping("IPv4 Port 0", addr(1)), c.ping("IPv4 Port 1", addr(0))); err != nil {
		t.Error(err)
	}
	config.Ports().Items()[1].SetLocation("agent://" + agentEnd + "/lo")
	if _, err := c.SetConfig(config); err == nil || !strings.Contains(err.Error(),
		"agent "+agentEnd+": port Port 1: location agent://"+agentEnd+"/lo: the agent was not started for this interface") {
		t.Errorf("an interface that the agent may not use: %v", err)
	}
	config.Ports().Items()[1].SetLocation("agent://198.18.100.3:40052/eth0")
	if _, err := c.SetConfig(config); err == nil || !strings.Contains(err.Error(), "ports[1].location") {
		t.Errorf("an agent that the controller may not use: %v", err)
	}
}

// TestAgentLost: a killed agent is one clear error of metrics and states, until a configuration with an agent that lives.
func TestAgentLost(t *testing.T) {
	f := newFabric(t, 2)
	controller, agent := f.machines()
	kill := agent()
	c, _ := controller()
	c.start(f.mesh(2))
	c.messages(1)
	kill()
	lost := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "agent "+agentEnd+": the session is lost") && strings.Count(err.Error(), "agent ") == 1
	}
	r := gosnappi.NewMetricsRequest()
	r.Port()
	lab.Eventually(t, soon, "an error of the metrics", func() bool { _, err := c.GetMetrics(r); return lost(err) })
	neighbors := gosnappi.NewStatesRequest()
	neighbors.Ipv4Neighbors()
	if _, err := c.GetStates(neighbors); !lost(err) {
		t.Errorf("states: %v", err)
	}
	stop := gosnappi.NewControlState()
	stop.Traffic().FlowTransmit().SetState(gosnappi.StateTrafficFlowTransmitState.STOP)
	if _, err := c.SetControlState(stop); !lost(err) {
		t.Errorf("stop: %v", err)
	}
	if _, err := c.SetConfig(f.mesh(2)); err == nil || !strings.Contains(err.Error(), "agent "+agentEnd+": ") {
		t.Errorf("a configuration without the agent: %v", err)
	}
	agent()
	c.start(f.mesh(2))
	c.messages(1)
}

// TestControllerLost: a killed controller leaves no interface on the agent's machine, and another one can use the agent.
func TestControllerLost(t *testing.T) {
	f := newFabric(t, 2)
	controller, agent := f.machines()
	agent()
	exists := func() bool {
		err := f.hosts[1].Do(func() error {
			_, err := netlink.LinkByName("rg0")
			return err
		})
		return !errors.As(err, &netlink.LinkNotFoundError{})
	}
	config := gosnappi.NewConfig()
	config.Ports().Add().SetName("tap").SetLocation(fmt.Sprintf("agent://%s/tap://rg0", agentEnd))
	for range 2 {
		c, kill := controller()
		c.set(config)
		if !exists() {
			t.Error("the agent has no TAP")
		}
		kill()
		lab.Eventually(t, soon, "the TAP is gone", func() bool { return !exists() })
	}
}
