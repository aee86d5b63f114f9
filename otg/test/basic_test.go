package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
)

// pair configures two ports with queue pairs to each other, and a flow of small messages on each queue pair of the first port.
func (f *fabric) pair(pairs int) gosnappi.Config {
	c := gosnappi.NewConfig()
	for i := range 2 {
		r := f.addPort(c, i).Rocev2().Ipv4Interfaces().Add().SetIpv4Name(fmt.Sprintf("IPv4 Port %d", i))
		p := r.Peers().Add().SetName(fmt.Sprintf("Peer %d", i)).SetDestinationIpAddress(addr(1 - i))
		for k := range pairs {
			q := p.Qps().Add().SetQpName(fmt.Sprintf("QP%d_%d", i, k))
			q.ConnectionType().ReliableConnection().SetSourceQpNumber(uint32(33 + k)).SetDscp(uint32(3 + k))
		}
	}
	speed(c, gosnappi.Layer1Speed.SPEED_100_FD_MBPS, 0, 1)
	tx := c.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName("Port 0")
	tx.TransmitType().TargetLineRate().SetValue(20)
	for k := range pairs {
		name := fmt.Sprintf("QP0_%d", k)
		tx.TransmitType().TargetLineRate().Flows().Add().SetName(name).SetTxEndpoint(name).SetMessageSize(64).
			SetMessageSizeUnit(gosnappi.Rocev2FlowMessageSizeUnit.KB)
	}
	for i := range 2 { // the default, 1 ms, is short for a busy machine
		o := c.Options().PerPortOptions().Add().SetPortName(fmt.Sprintf("Port %d", i)).Protocols().Add().Rocev2()
		o.ConnectionType().ReliableConnection().SetRetransmissionTimeoutValue(500)
	}
	c.Options().ProtocolOptions().SetAutoStartAll(false)
	return c
}

func speed(c gosnappi.Config, s gosnappi.Layer1SpeedEnum, ports ...int) {
	l := c.Layer1().Add().SetName("speed").SetSpeed(s)
	var names []string
	for _, p := range ports {
		names = append(names, fmt.Sprintf("Port %d", p))
	}
	l.SetPortNames(names)
}

// TestPair: the same test by gRPC, by gRPC's streaming forms and by HTTPS.
func TestPair(t *testing.T) {
	for _, transport := range []string{"gRPC", "streams", "HTTPS"} {
		t.Run(transport, func(t *testing.T) {
			f := newFabric(t, 2)
			rpc, web := f.serve(local)
			c := grpcClient(t, rpc)
			if transport == "HTTPS" {
				c = httpsClient(t, web)
			} else if transport == "streams" {
				c.Api = gosnappi.NewApi()
				c.NewGrpcTransport().SetLocation(rpc).SetRequestTimeout(soon).EnableGrpcStreaming()
			}
			v, err := c.GetVersion()
			if err != nil || v.ApiSpecVersion() != c.GetLocalVersion().ApiSpecVersion() {
				t.Fatalf("version %v, %v", v, err)
			}
			config := f.pair(1)
			config.Captures().Add().SetName("capture").SetPortNames([]string{"Port 1"})
			c.set(config)
			if got, err := c.GetConfig(); err != nil || got.Ports().Items()[1].Location() != f.location(1) {
				t.Fatalf("configuration %v, %v", got, err)
			}
			c.protocols(gosnappi.StateProtocolAllState.START)
			c.await("queue pairs are up", func() bool { return c.peers()["Peer 0"].QpUp() == 1 && c.peers()["Peer 1"].QpUp() == 1 })
			c.capture(gosnappi.StatePortCaptureState.START)
			c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
			c.await("ten messages", func() bool { return c.flows()["QP0_0"].MessageCompleteRx() >= 10 })
			c.traffic(gosnappi.StateTrafficFlowTransmitState.STOP)
			m := c.drained()["QP0_0"]
			if m.MessageFail() != 0 || m.FrameDelta() != 0 || m.DataFramesTx() < 640 || m.SrcQp() != 33 || m.DestQp() != 33 || m.NakTx() != 0 ||
				m.AckTx() == 0 || m.AckTx() != m.AckRx() || m.SrcIpv4() != addr(0) || m.PortRx() != "Port 1" || m.FirstTimestamp() == "" {
				t.Errorf("%v", m)
			}
			c.capture(gosnappi.StatePortCaptureState.STOP)
			b, err := c.GetCapture(gosnappi.NewCaptureRequest().SetPortName("Port 1"))
			if err != nil || uint64(len(b)) < m.DataFramesRx()*1024 {
				t.Errorf("a capture of %d bytes, %v", len(b), err)
			}
			c.protocols(gosnappi.StateProtocolAllState.STOP)
			c.await("queue pairs are down", func() bool { return c.peers()["Peer 0"].QpUp() == 0 && c.peers()["Peer 0"].DisconnectReplyRx() == 1 })
			neighbors := gosnappi.NewStatesRequest()
			neighbors.Ipv4Neighbors()
			s, err := c.GetStates(neighbors)
			if err != nil || !strings.Contains(s.String(), "02:00:00:00:01:01") {
				t.Errorf("neighbors %v, %v", s, err)
			}
		})
	}
}

func (c *client) capture(state gosnappi.StatePortCaptureStateEnum) {
	c.t.Helper()
	s := gosnappi.NewControlState()
	s.Port().Capture().SetState(state)
	if _, err := c.SetControlState(s); err != nil {
		c.t.Fatal(err)
	}
}

// TestRefused: a wrong configuration has all its errors in OTG's form.
func TestRefused(t *testing.T) {
	f := newFabric(t, 2)
	rpc, web := f.serve(local)
	for _, c := range []*client{grpcClient(t, rpc), httpsClient(t, web)} {
		config := f.pair(1)
		config.Ports().Items()[0].SetLocation("lo")
		config.Devices().Items()[0].Bgp().SetRouterId("192.0.2.1")
		config.Layer1().Items()[0].FlowControl().Ieee8021Qbb()
		_, err := c.SetConfig(config)
		e, ok := err.(gosnappi.Error)
		if !ok || e.Kind() != gosnappi.ErrorKind.VALIDATION || len(e.Errors()) != 3 {
			t.Fatalf("%v", err)
		}
		for i, want := range []string{"layer1[0].flow_control", "devices[0].bgp", "ports[0].location: lo: roceotg was not started"} {
			if !strings.Contains(e.Errors()[i], want) {
				t.Errorf("error %d is %q, want %s", i, e.Errors()[i], want)
			}
		}
		config = f.pair(1)
		config.Ports().Items()[0].SetLocation("lo")
		if _, err := c.SetConfig(config); err == nil || !strings.Contains(err.Error(), "was not started for this interface") {
			t.Errorf("%v", err)
		}
		s := gosnappi.NewControlState()
		s.Traffic().FlowTransmit().SetState(gosnappi.StateTrafficFlowTransmitState.START).SetFlowNames([]string{"nothing"})
		if _, err := c.SetControlState(s); err == nil || !strings.Contains(err.Error(), `nothing\": is not configured`) {
			t.Errorf("%v", err)
		}
		a := gosnappi.NewControlAction()
		a.Protocol().Bgp().Notification()
		if _, err := c.SetControlAction(a); err == nil || !strings.Contains(err.Error(), "does not support") {
			t.Errorf("%v", err)
		}
	}
}
