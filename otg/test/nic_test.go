package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
)

// daemon starts roced with a NIC at each of the first n ports: rxe0 and so on, with the ports' addresses. They become the locations.
func (f *fabric) daemon(n int) *namespace.Daemon {
	f.t.Helper()
	dir := lab.Dir(f.t)
	config := fmt.Sprintf("run_dir: %q\nnics:\n", dir+"/run")
	for i := range n {
		f.do(f.hosts[i], func() error { return namespace.AddAddr("eth0", addr(i)+"/24") })
		config += fmt.Sprintf("  - {name: rxe%d, port: {type: packet, interface: eth0, netns: %q}}\n", i, f.hosts[i].Path())
		f.places[i] = fmt.Sprintf("nic://rxe%d", i)
	}
	path := filepath.Join(dir, "roced.yaml")
	lab.Must(f.t, os.WriteFile(path, []byte(config), 0o600))
	d, err := f.middle.StartDaemon(exec.Command(program(f.t, "../..", "./cmd/roced"), "run", "--config", path), dir+"/run", dir+"/log")
	lab.Must(f.t, err)
	f.t.Cleanup(func() { _ = d.Stop(syscall.SIGTERM, soon) }) // an error is that of the signal
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := d.Ready(ctx); err != nil {
		text, _ := os.ReadFile(d.LogFile)
		f.t.Fatalf("%v\n%s", err, text)
	}
	f.t.Setenv("ROCED_RUN_DIR", d.RunDir)
	return d
}

// mesh configures ports whose first one has a queue pair to each other port, and back. Flows are a WRITE from the first port and a READ to
// it for each other port, and a SEND back. QPs of a NIC keep the defaults that it decides on.
func (f *fabric) mesh(ports int) gosnappi.Config {
	c := gosnappi.NewConfig()
	var all []int
	for i := range ports {
		all = append(all, i)
		c.Options().PerPortOptions().Add().SetPortName(fmt.Sprintf("Port %d", i)).Protocols().Add().Rocev2().ConnectionType().ReliableConnection().
			SetRetransmissionTimeoutValue(500).SetRetransmissionRetryCount(7)
		r := f.addPort(c, i).Rocev2().Ipv4Interfaces().Add().SetIpv4Name(fmt.Sprintf("IPv4 Port %d", i)).SetIbMtu(4096)
		tx := c.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName(fmt.Sprintf("Port %d", i))
		tx.TransmitType().TargetLineRate().SetValue(20)
		for k := range ports {
			if k == i || i > 0 && k > 0 {
				continue
			}
			p := r.Peers().Add().SetName(fmt.Sprintf("Peer %d %d", i, k)).SetDestinationIpAddress(addr(k))
			for n, verb := range []func(gosnappi.Rocev2Verb){func(v gosnappi.Rocev2Verb) { v.Write() }, func(v gosnappi.Rocev2Verb) { v.Read() },
				func(v gosnappi.Rocev2Verb) { v.Send() }} {
				name := fmt.Sprintf("QP %d %d %d", i, k, n)
				q := p.Qps().Add().SetQpName(name).ConnectionType().ReliableConnection().SetDscp(uint32(3 + n)).SetInitialPsn(0xfffff0)
				if f.places[i] == "" || !strings.HasPrefix(f.places[i], "nic:") {
					q.SetSourceQpNumber(uint32(100 + 10*k + n)).SetRemoteKey("7").SetUdpSourcePort(1000)
				}
				if (i == 0) == (n < 2) {
					verb(tx.TransmitType().TargetLineRate().Flows().Add().SetName(name).SetTxEndpoint(name).
						SetRxEndpoint(fmt.Sprintf("QP %d %d %d", k, i, n)).SetMessageSize(32).SetMessageSizeUnit(gosnappi.Rocev2FlowMessageSizeUnit.KB).Rocev2Verb())
				}
			}
		}
	}
	speed(c, gosnappi.Layer1Speed.SPEED_100_FD_MBPS, all...)
	c.Options().ProtocolOptions().SetAutoStartAll(false)
	return c
}

// settled waits until no message is in progress.
func (c *client) settled() map[string]gosnappi.Rocev2FlowMetricPerQP {
	c.t.Helper()
	c.traffic(gosnappi.StateTrafficFlowTransmitState.STOP)
	c.await("messages are complete", func() bool {
		for _, m := range c.flows() {
			if m.MessageTx() != m.MessageCompleteRx()+m.MessageFail() {
				return false
			}
		}
		return true
	})
	return c.flows()
}

// TestNIC: flows between two NICs of a daemon, and between them and an interface, both ways. Columns of ends without frames are absent.
func TestNIC(t *testing.T) {
	f := newFabric(t, 3)
	d := f.daemon(2)
	c := f.newClient()
	warnings := strings.Join(c.set(f.mesh(3)), "\n")
	for _, want := range []string{"devices[0].ethernets[0].mac: 02:00:00:00:01:00: not used", "gateway 198.18.0.254 and prefix: not used",
		"port Port 1: the NIC rxe1 decides on numbers and keys"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning has %q: %s", want, warnings)
		}
	}
	c.protocols(gosnappi.StateProtocolAllState.START)
	c.await("queue pairs are up", func() bool {
		for _, p := range c.peers() {
			if p.QpUp() != 3 {
				return false
			}
		}
		return true
	})
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.messages(5)
	for name, m := range c.settled() {
		own, remote := strings.HasPrefix(name, "QP 2"), strings.HasPrefix(name, "QP 0 2")
		read := strings.HasSuffix(name, "1")
		if m.MessageFail() != 0 || m.FlowCompletionTime() == 0 && !m.HasFlowCompletionTime() || m.HasAckRx() != own || m.HasAckTx() != remote ||
			m.HasDataFramesTx() != (own && !read || remote && read) || m.HasDataFramesRx() != (remote && !read || own && read) || m.HasFrameDelta() ||
			m.PortRx() == "" || m.SrcQp() < 2 || m.DestQp() < 2 || remote && !read && m.MessageCompleteRx()*8 > m.DataFramesRx() {
			t.Errorf("%s: %v", name, m)
		}
	}
	r := gosnappi.NewMetricsRequest()
	r.Port()
	if m, err := c.GetMetrics(r); err != nil || m.PortMetrics().Items()[0].FramesTx() == 0 || m.PortMetrics().Items()[0].Location() != "nic://rxe0" {
		t.Errorf("%v, %v", m, err)
	}
	if p := c.peers(); p["Peer 0 1"].HasConnectRequestTx() || p["Peer 2 0"].ConnectRequestRx() != 3 {
		t.Errorf("%v", p)
	}
	s := gosnappi.NewControlState()
	s.Port().Link().SetState(gosnappi.StatePortLinkState.DOWN)
	if _, err := c.SetControlState(s); err == nil || !strings.Contains(err.Error(), "roceotg does not set the link of a NIC") {
		t.Errorf("link: %v", err)
	}
	if err := c.ping("IPv4 Port 0", addr(1)); err == nil || !strings.Contains(err.Error(), "is on a NIC of a daemon") {
		t.Errorf("ping: %v", err)
	}
	_ = d.Stop(syscall.SIGKILL, soon)
	c.await("the loss of the daemon", func() bool {
		_, err := c.GetMetrics(r)
		return err != nil && strings.Contains(err.Error(), `port Port 0: NIC rxe0 is lost`) && strings.Contains(err.Error(), "port Port 1")
	})
	if _, err := c.SetConfig(f.mesh(3)); err == nil || !strings.Contains(err.Error(), "port Port 0: NIC rxe0: ") {
		t.Errorf("a configuration without the daemon: %v", err)
	}
}

// TestNICRefused: settings that verbs do not have are refused by name, all at once.
func TestNICRefused(t *testing.T) {
	f := newFabric(t, 2)
	f.places[0] = "nic://rxe0"
	c := f.newClient()
	config := f.mesh(2)
	config.Captures().Add().SetName("capture").SetPortNames([]string{"Port 0"})
	background(config.Flows().Add(), "plain", 1)
	e := config.Devices().Items()[0].Ethernets().Items()[0]
	e.Vlans().Add().SetName("vlan").SetId(7)
	e.Ipv4Addresses().Items()[0].GatewayMac().SetValue("02:00:00:00:00:01")
	q := config.Devices().Items()[0].Rocev2().Ipv4Interfaces().Items()[0].Peers().Items()[0].Qps().Items()[0].ConnectionType().ReliableConnection()
	q.SetSourceQpNumber(5).SetVirtualAddress("10").SetRemoteKey("7").SetEcn(gosnappi.Rocev2QPParametersEcn.CE).SetUdpSourcePort(7)
	o := config.Options().PerPortOptions().Items()[0].Protocols().Items()[0].Rocev2()
	o.Cnp().SetCnpDelayTimer(1).IpDscp().SetValue(1)
	o.DcqcnSettings().SetEnableDcqcn(false).SetMinimumRateLimmit(1)
	o.ConnectionType().ReliableConnection().SetRetransmissionRetryCount(3).Ack().IpDscp().SetValue(2)
	_, err := c.SetConfig(config)
	refused, ok := err.(gosnappi.Error)
	if !ok {
		t.Fatalf("%v", err)
	}
	text := strings.Join(refused.Errors(), "\n")
	for _, want := range []string{"captures[0].port_names", "flows[0].tx_rx.port", ".vlans", ".gateway_mac", ".source_qp_number: 5", ".virtual_address: 10",
		".remote_key: 7", ".ecn: ce", ".udp_source_port: 7", ".cnp.cnp_delay_timer: 1", ".cnp.ip_dscp.value: 1", ".dcqcn_settings.enable_dcqcn: false",
		".dcqcn_settings.minimum_rate_limmit: 1", ".ack.ip_dscp.value: 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no error has %s: %s", want, text)
		}
	}
	if len(refused.Errors()) != 14 || strings.Contains(text, "retry_count") {
		t.Errorf("%d errors: %s", len(refused.Errors()), text)
	}
}

// ping sends an echo request and returns an error unless it succeeds.
func (c *client) ping(source, destination string) error {
	a := gosnappi.NewControlAction()
	a.Protocol().Ipv4().Ping().Requests().Add().SetSrcName(source).SetDstIp(destination)
	r, err := c.SetControlAction(a)
	if err != nil {
		return err
	}
	p := r.Response().Protocol().Ipv4().Ping().Responses().Items()
	if len(p) != 1 || p[0].SrcName() != source || p[0].DstIp() != destination ||
		p[0].Result() != gosnappi.ActionResponseProtocolIpv4PingResponseResult.SUCCEEDED {
		return fmt.Errorf("ping from %s to %s: %v", source, destination, p)
	}
	return nil
}
