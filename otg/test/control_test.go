package test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/open-traffic-generator/snappi/gosnappi"
)

// post sends JSON to a path of HTTPS, and returns the status and the answer.
func post(t *testing.T, web, path, body string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	r, err := c.Post("https://"+web+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// peerState sets the state of a peer. gosnappi cannot: OTG's model has no choice for it.
func peerState(t *testing.T, web, peer, state string) {
	t.Helper()
	code, answer := post(t, web, "/control/state",
		fmt.Sprintf(`{"protocol": {"rocev2": {"peers": {"peer_names": [%q], "state": %q}}}}`, peer, state))
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
}

// TestReject: a peer that is down rejects; after it is up, the other one connects, and flows continue.
func TestReject(t *testing.T) {
	f := newFabric(t, 2)
	rpc, web := f.serve(local)
	c := grpcClient(t, rpc)
	c.set(f.pair(1))
	peerState(t, web, "Peer 0", "up")
	c.await("the request is rejected", func() bool { return c.peers()["Peer 1"].RejectTx() > 0 })
	if p := c.peers()["Peer 0"]; p.QpUp() != 0 || p.QpDown() != 1 || p.ConnectRequestTx() == 0 {
		t.Errorf("%v", p)
	}
	peerState(t, web, "Peer 1", "up")
	peerState(t, web, "Peer 0", "up")
	c.await("queue pairs are up", func() bool { return c.peers()["Peer 0"].QpUp() == 1 && c.peers()["Peer 1"].QpUp() == 1 })
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.messages(3)
	peerState(t, web, "Peer 1", "down")
	c.await("queue pairs are down", func() bool { return c.peers()["Peer 0"].QpUp() == 0 && c.peers()["Peer 1"].DisconnectRequestTx() == 1 })
	c.traffic(gosnappi.StateTrafficFlowTransmitState.STOP)
	c.protocols(gosnappi.StateProtocolAllState.START)
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.messages(3)
	if m := c.stop()["QP0_0"]; m.MessageFail() != 0 || m.FrameDelta() != 0 {
		t.Errorf("%v", m)
	}
}

// TestLosses: a bottleneck that drops costs retransmissions, not messages.
func TestLosses(t *testing.T) {
	f := newFabric(t, 2)
	b := f.bottleneck(1, "rate=20mbit", "limit=60k", "kmin=60k", "kmax=60k")
	c := f.newClient()
	config := f.pair(1)
	config.StatefulFlows().Rocev2().Items()[0].TxPorts().Items()[0].TransmitType().TargetLineRate().SetValue(90)
	o := config.Options().PerPortOptions().Items()[0].Protocols().Items()[0].Rocev2()
	o.DcqcnSettings().SetEnableDcqcn(false)
	o.ConnectionType().ReliableConnection().SetRetransmissionTimeoutValue(17).SetRetransmissionRetryCount(7)
	c.start(config)
	c.await("a loss and ten messages", func() bool { // a busy machine also reorders frames
		m := c.flows()["QP0_0"]
		s, err := b.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Dropped+s.Overflowed > 0 && m.MessageCompleteRx() >= 10 && m.DataFramesRetransmitted() > 0 && m.NakRx() > 0
	})
	m := c.stop()["QP0_0"]
	if m.MessageFail() != 0 || m.FrameSequenceError() == 0 || m.FrameDelta() == 0 || m.NakTx() == 0 {
		t.Errorf("%v", m)
	}
}

// TestPause: a paused flow keeps its counters and continues.
func TestPause(t *testing.T) {
	f := newFabric(t, 2)
	c := f.newClient()
	c.start(f.pair(2))
	c.messages(3)
	c.traffic(gosnappi.StateTrafficFlowTransmitState.PAUSE, "QP0_0")
	c.await("the flow rests", func() bool {
		m := c.flows()["QP0_0"]
		last, err := time.Parse(time.RFC3339Nano, m.LastTimestamp())
		return err == nil && time.Since(last) > rest && m.MessageTx() == m.MessageCompleteRx()
	})
	paused, other := c.flows()["QP0_0"].MessageTx(), c.flows()["QP0_1"].MessageTx()
	c.await("the other flow continues", func() bool { return c.flows()["QP0_1"].MessageTx() >= other+3 })
	if n := c.flows()["QP0_0"].MessageTx(); n != paused {
		t.Errorf("a paused flow has sent %d messages", n-paused)
	}
	c.traffic(gosnappi.StateTrafficFlowTransmitState.RESUME, "QP0_0")
	c.await("the flow continues", func() bool { return c.flows()["QP0_0"].MessageTx() >= paused+3 })
	if m := c.stop()["QP0_0"]; m.MessageFail() != 0 || m.FrameDelta() != 0 {
		t.Errorf("%v", m)
	}
}

// TestTwoServers: a flow to a port of another server. Columns of the receiver are absent.
func TestTwoServers(t *testing.T) {
	f := newFabric(t, 2)
	clients := [2]*client{f.newClient(), f.newClient()}
	for i, destination := range []string{addr(1), "0.0.0.0"} {
		config := gosnappi.NewConfig()
		p := f.addPort(config, i).Rocev2().Ipv4Interfaces().Add().SetIpv4Name(fmt.Sprintf("IPv4 Port %d", i)).Peers().Add()
		p.SetName("Peer").SetDestinationIpAddress(destination).Qps().Add().SetQpName("QP").ConnectionType().ReliableConnection().
			SetSourceQpNumber(uint32(100 + i))
		if i == 0 {
			tx := config.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName("Port 0").TransmitType().TargetLineRate().SetValue(1)
			tx.Flows().Add().SetName("QP").SetTxEndpoint("QP").SetMessageSizeUnit(gosnappi.Rocev2FlowMessageSizeUnit.KB)
		}
		config.Options().ProtocolOptions().SetAutoStartAll(i == 1)
		clients[i].set(config)
	}
	clients[0].protocols(gosnappi.StateProtocolAllState.START)
	for _, c := range clients {
		c.await("the queue pair is up", func() bool { return c.peers()["Peer"].QpUp() == 1 })
	}
	c := clients[0]
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	c.await("acknowledged messages", func() bool { return c.flows()["QP"].MessageTx() >= 10 && c.flows()["QP"].AckRx() > 0 })
	if m := c.flows()["QP"]; m.DestQp() != 101 || m.HasDataFramesRx() || m.HasAvgLatency() || m.MessageFail() != 0 {
		t.Errorf("%v", m)
	}
	r := gosnappi.NewMetricsRequest()
	r.Rocev2Flow().PerQp().SetColumnNames([]gosnappi.Rocev2FlowColumnNamesColumnNamesEnum{"avg_latency"})
	if _, err := c.GetMetrics(r); err == nil || !strings.Contains(err.Error(), "have no common clock") {
		t.Errorf("latency without a common clock: %v", err)
	}
}

// background returns a flow of plain frames from port 0 to port 1.
func background(flows gosnappi.Flow, name string, packets uint32) {
	flows.SetName(name).TxRx().Port().SetTxName("Port 0").SetRxNames([]string{"Port 1"})
	flows.Size().SetFixed(256)
	flows.Rate().SetPps(500)
	flows.Duration().FixedPackets().SetPackets(packets)
	flows.Metrics().SetEnable(true)
	eth := flows.Packet().Add().Ethernet()
	eth.Src().SetValue("02:00:00:00:01:00")
	eth.Dst().SetValue("02:00:00:00:01:01")
	ip := flows.Packet().Add().Ipv4()
	ip.Src().SetValue(addr(0))
	ip.Dst().SetValue(addr(1))
	ip.Priority().Dscp().Phb().SetValue(24)
	udp := flows.Packet().Add().Udp()
	udp.SrcPort().SetValue(1000)
	udp.DstPort().SetValue(2000)
}

// plain returns the metrics of flows of plain frames by name.
func (c *client) plain() map[string]gosnappi.FlowMetric {
	c.t.Helper()
	r := gosnappi.NewMetricsRequest()
	r.Flow()
	m, err := c.GetMetrics(r)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]gosnappi.FlowMetric{}
	for _, f := range m.FlowMetrics().Items() {
		out[f.Name()] = f
	}
	return out
}

// TestPlainFlows: flows of plain frames beside RoCEv2, which are appended, updated and deleted.
func TestPlainFlows(t *testing.T) {
	f := newFabric(t, 2)
	c := f.newClient()
	config := f.pair(1)
	background(config.Flows().Add(), "first", 50)
	c.start(config)
	c.await("the flow has ended", func() bool {
		m := c.plain()["first"]
		return m.FramesRx() == 50 && m.Transmit() == gosnappi.FlowMetricTransmit.STOPPED
	})
	if m := c.plain()["first"]; m.FramesTx() != 50 || m.BytesRx() != 50*256 || m.Loss() != 0 {
		t.Errorf("%v", m)
	}
	c.messages(1)
	a := gosnappi.NewConfigAppend()
	background(a.ConfigAppendList().Add().Flows().Add(), "second", 100)
	if _, err := c.AppendConfig(a); err != nil {
		t.Fatal(err)
	}
	u := gosnappi.NewConfigUpdate()
	second := u.Flows().SetPropertyNames([]gosnappi.FlowsUpdatePropertyNamesEnum{"size"}).Flows().Add()
	background(second, "second", 100)
	second.Size().SetFixed(512)
	if _, err := c.UpdateConfig(u); err != nil {
		t.Fatal(err)
	}
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START, "second")
	c.await("100 frames", func() bool { return c.plain()["second"].FramesRx() == 100 })
	if m := c.plain()["second"]; m.BytesRx() != 100*512 {
		t.Errorf("%v", m)
	}
	d := gosnappi.NewConfigDelete()
	d.ConfigDeleteList().Add().SetFlows([]string{"first"})
	if _, err := c.DeleteConfig(d); err != nil {
		t.Fatal(err)
	}
	if m := c.plain(); len(m) != 1 || c.flows()["QP0_0"].MessageFail() != 0 {
		t.Errorf("%v", m)
	}
	if _, err := c.DeleteConfig(d); err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("a flow was deleted twice: %v", err)
	}
}

// TestTutorial: the page shows the program as it is, and Python accepts it.
func TestTutorial(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorials/otg.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../examples/incast.py")
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	for line := range strings.Lines(string(program)) {
		if strings.TrimSpace(line) != "" {
			indented.WriteString("    ")
		}
		indented.WriteString(line)
	}
	if !bytes.Contains(page, indented.Bytes()) {
		t.Error("docs/tutorials/otg.md does not show otg/examples/incast.py as it is")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	c := exec.Command("python3", "-m", "py_compile", "../examples/incast.py")
	c.Env = append(os.Environ(), "PYTHONPYCACHEPREFIX="+t.TempDir())
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
