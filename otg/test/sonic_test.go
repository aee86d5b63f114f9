package test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab"
)

// SONiC's tests of RoCEv2 (sonic-net/sonic-mgmt, tests/snappi_tests/rocev2) with the values of their configurations. The
// fabric has no PFC and no queues for each priority; docs/reference/otg.md lists which checks hold here.

// dscps are the DSCPs of SONiC's queues: 0 and 1 lossy, 3 and 4 lossless, 5 for CNPs, 6 for acknowledgements.
var dscps = map[int]uint32{0: 8, 1: 0, 3: 3, 4: 4, 5: 46, 6: 48}

// rank is the configuration of one port.
type rank struct {
	peer    int // -1: receives only
	mtu     uint32
	queues  []int // a queue pair for each
	size    uint32
	unit    gosnappi.Rocev2FlowMessageSizeUnitEnum
	ecn     string
	ack     int // queue of acknowledgements
	timeout uint32
	dcqcn   bool
}

// configure builds the configuration of all ranks.
func (f *fabric) configure(ranks []rank) gosnappi.Config {
	c := gosnappi.NewConfig()
	var ports []int
	for i, r := range ranks {
		ports = append(ports, i)
		in := f.addPort(c, i).Rocev2().Ipv4Interfaces().Add().SetIpv4Name(fmt.Sprintf("IPv4 Port %d", i)).SetIbMtu(r.mtu)
		destination := "0.0.0.0"
		if r.peer >= 0 {
			destination = addr(r.peer)
		}
		p := in.Peers().Add().SetName(fmt.Sprintf("RoCEv2 %d", i)).SetDestinationIpAddress(destination)
		tx := c.StatefulFlows().Rocev2().Add().TxPorts().Add().SetPortName(fmt.Sprintf("Port %d", i))
		tx.TransmitType().TargetLineRate().SetValue(100)
		for k, q := range r.queues {
			name := fmt.Sprintf("QP%d_%d", i, k)
			p.Qps().Add().SetQpName(name).ConnectionType().ReliableConnection().SetSourceQpNumber(uint32(33 + k)).SetDscp(dscps[q]).
				SetEcn(gosnappi.Rocev2QPParametersEcnEnum(r.ecn))
			flow := tx.TransmitType().TargetLineRate().Flows().Add().SetName(name).SetTxEndpoint(name).SetMessageSize(r.size).SetMessageSizeUnit(r.unit)
			flow.Rocev2Verb().SendWithImmediate().SetImmediateData("bb")
		}
		o := c.Options().PerPortOptions().Add().SetPortName(fmt.Sprintf("Port %d", i)).Protocols().Add().Rocev2()
		o.Cnp().SetEcnValue(gosnappi.Rocev2CNPEcnValueEnum(r.ecn)).SetCnpDelayTimer(111).IpDscp().SetValue(dscps[5])
		rc := o.ConnectionType().ReliableConnection().SetRetransmissionTimeoutValue(r.timeout).SetRetransmissionRetryCount(254)
		rc.Ack().SetEcnValue(gosnappi.Rocev2ACKEcnValueEnum(r.ecn)).IpDscp().SetValue(dscps[r.ack])
		rc.Nak().SetEcnValue(gosnappi.Rocev2NAKEcnValueEnum(r.ecn)).IpDscp().SetValue(dscps[r.ack])
		o.DcqcnSettings().SetEnableDcqcn(r.dcqcn).SetAlphaG(1020).SetInitialAlpha(1000).SetMaximumRateDecrementAtTime(12)
	}
	speed(c, gosnappi.Layer1Speed.SPEED_100_FD_MBPS, ports...)
	return c
}

// incast returns ranks that all send to the last one. queues are those of each sender.
func incast(like rank, queues ...[]int) []rank {
	var out []rank
	for _, q := range queues {
		like.peer, like.queues = len(queues), q
		out = append(out, like)
	}
	like.peer, like.queues = -1, queues[0]
	return append(out, like)
}

// start applies a configuration, connects all queue pairs and starts all flows.
func (c *client) start(config gosnappi.Config) (warnings []string) {
	c.t.Helper()
	warnings = c.set(config)
	c.protocols(gosnappi.StateProtocolAllState.START)
	c.await("queue pairs are up", func() bool {
		for _, p := range c.peers() {
			if p.ConnectRequestTx() > 0 && p.QpDown() > 0 {
				return false
			}
		}
		return len(c.flows()) > 0
	})
	c.traffic(gosnappi.StateTrafficFlowTransmitState.START)
	return warnings
}

// messages waits until each flow has completed n messages.
func (c *client) messages(n uint64) {
	c.t.Helper()
	c.await(fmt.Sprintf("%d messages of each flow", n), func() bool {
		for _, f := range c.flows() {
			if f.MessageCompleteRx() < n {
				return false
			}
		}
		return true
	})
}

// marked waits until each flow has had marks and CNPs.
func (c *client) marked() {
	c.t.Helper()
	c.await("marks and CNPs of each flow", func() bool {
		for _, f := range c.flows() {
			if f.EcnCeRx() == 0 || f.CnpTx() == 0 || f.CnpRx() == 0 {
				return false
			}
		}
		return true
	})
}

// stop stops all flows and returns the metrics after the last message.
func (c *client) stop() map[string]gosnappi.Rocev2FlowMetricPerQP {
	c.t.Helper()
	c.traffic(gosnappi.StateTrafficFlowTransmitState.STOP)
	return c.drained()
}

// TestSonicNoCongestion: two pairs of ports in both directions, of which the last one drives the lossy queues.
func TestSonicNoCongestion(t *testing.T) {
	f := newFabric(t, 4)
	c := f.newClient()
	lossless := rank{mtu: 9100, queues: []int{3}, size: 1, unit: gosnappi.Rocev2FlowMessageSizeUnit.MB, ecn: "non_ect", ack: 6, timeout: 5000}
	lossy := lossless
	lossy.queues = []int{0, 1}
	ranks := []rank{lossless, lossy, lossless, lossy}
	for i := range ranks {
		ranks[i].peer = (i + 2) % 4
	}
	warnings := c.start(f.configure(ranks))
	for _, want := range []string{"ib_mtu: 9100: using 4096", "retransmission_timeout_value: 5000 ms: using 8.589934592s",
		"retransmission_retry_count: 254: using 7"} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("no warning has %q: %q", want, warnings)
		}
	}
	c.messages(3)
	flows := c.stop()
	if len(flows) != 6 {
		t.Errorf("%d flows", len(flows))
	}
	for _, m := range flows {
		if m.MessageFail() != 0 || m.FrameDelta() != 0 || m.NakTx()+m.NakRx()+m.FrameSequenceError() != 0 || m.AckTx() == 0 || m.AckRx() != m.AckTx() ||
			m.EcnCeRx() != 0 || m.CnpTx()+m.CnpRx() != 0 {
			t.Errorf("%v", m)
		}
		if m.AvgLatency() == 0 || m.MinLatency() > m.AvgLatency() || m.AvgLatency() > m.MaxLatency() {
			t.Errorf("latency of %s: %d, %d, %d", m.FlowName(), m.MinLatency(), m.AvgLatency(), m.MaxLatency())
		}
	}
}

// TestSonicCongestionWithoutControl: incast without DCQCN. Without PFC, all flows lose packets and recover.
func TestSonicCongestionWithoutControl(t *testing.T) {
	lab.Long(t)
	for _, s := range []struct {
		name string
		last int    // queue of the second lossless rank
		size uint32 // of its messages in KB
	}{{"q3_single", 3, 128}, {"q3q4_same", 4, 128}, {"q3q4_mixed", 4, 4}} {
		t.Run(s.name, func(t *testing.T) {
			f := newFabric(t, 4)
			f.bottleneck(3, "rate=100mbit", "limit=300k")
			c := f.newClient()
			like := rank{mtu: 5000, size: 128, unit: gosnappi.Rocev2FlowMessageSizeUnit.KB, ecn: "non_ect", ack: 6, timeout: 5000}
			ranks := incast(like, []int{3}, []int{s.last}, []int{0, 1})
			ranks[1].size = s.size
			c.start(f.configure(ranks))
			c.await("a loss", func() bool {
				lost := uint64(0)
				for _, m := range c.flows() {
					lost += m.DataFramesRetransmitted()
				}
				return lost > 0
			})
			c.messages(1)
			for _, m := range c.flows() {
				if m.EcnCeRx() != 0 || m.CnpTx()+m.CnpRx() != 0 || m.AckTx() == 0 {
					t.Errorf("%v", m)
				}
			}
		})
	}
}

// lossless limits the switch's end of a port, marks, and drops nothing, as SONiC's queues with PFC. On a quiet machine, the first
// rates of three flows build a queue of 6 MB: at 100 Mb/s the CNPs of a flow come 1 ms apart, and its rate recovers each 250 us.
// After a loss, the flows without lost packets would get more CNPs than the others, and smaller shares.
func (f *fabric) lossless(port int) {
	f.t.Helper()
	oneProcessor(f.t)
	f.bottleneck(port, "rate=100mbit", "kmin=20k", "kmax=100k", "limit=16m")
}

// oneProcessor runs the process on one processor until the test ends. Linux delivers a frame of a veth on the processor that sends
// it, or whose timer ends its wait in a queue. A frame on another processor may overtake it, and such a disorder is a loss of all
// frames in the queue for a receiver of RC.
func oneProcessor(t *testing.T) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !all.IsSet(first) {
		first++
	}
	one.Set(first)
	bind(t, &one)
	t.Cleanup(func() { bind(t, &all) })
}

// bind sets the processors of all threads, twice because of threads that begin in between.
func bind(t *testing.T, to *unix.CPUSet) {
	t.Helper()
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range threads {
			id, _ := strconv.Atoi(d.Name())
			if err := unix.SchedSetaffinity(id, to); err != nil && err != unix.ESRCH {
				t.Fatal(err)
			}
		}
	}
}

// TestSonicDCQCN: incast with DCQCN; the bottleneck marks.
func TestSonicDCQCN(t *testing.T) {
	for _, s := range []struct {
		ecn  string
		last int // queue of the second lossless rank
	}{{"ect_0", 4}, {"ect_1", 4}, {"ce", 4}, {"ect_0", 3}, {"ect_1", 3}, {"ce", 3}} {
		ecn := s.ecn
		t.Run(fmt.Sprintf("%s/q%d", ecn, s.last), func(t *testing.T) {
			if ecn != "ect_0" {
				lab.Long(t)
			}
			f := newFabric(t, 4)
			f.lossless(3)
			c := f.newClient()
			like := rank{mtu: 5000, size: 128, unit: gosnappi.Rocev2FlowMessageSizeUnit.KB, ecn: ecn, ack: 6, timeout: 5000, dcqcn: true}
			c.start(f.configure(incast(like, []int{3}, []int{s.last}, []int{0, 1})))
			c.messages(5)
			c.marked()
			for _, m := range c.stop() {
				if m.MessageFail() != 0 || m.FrameDelta() != 0 || m.NakTx()+m.NakRx()+m.FrameSequenceError() != 0 || m.AckTx() == 0 ||
					m.EcnCeRx() == 0 || m.CnpTx() == 0 || m.CnpRx() != m.CnpTx() {
					t.Errorf("%v", m)
				}
				if ecn == "ce" && m.EcnCeRx() != m.DataFramesRx() {
					t.Errorf("%d of %d frames have CE, which the sender sets", m.EcnCeRx(), m.DataFramesRx())
				}
			}
		})
	}
}

// TestSonicStorage: incast of 1 MB messages with ECT; DCQCN off, the senders ignore CNPs.
func TestSonicStorage(t *testing.T) {
	lab.Long(t)
	for _, dcqcn := range []bool{false, true} {
		t.Run(fmt.Sprintf("dcqcn=%v", dcqcn), func(t *testing.T) {
			f := newFabric(t, 4)
			f.lossless(3)
			c := f.newClient()
			like := rank{mtu: 5000, size: 1, unit: gosnappi.Rocev2FlowMessageSizeUnit.MB, ecn: "ect_1", ack: 6, timeout: 5000, dcqcn: dcqcn}
			c.start(f.configure(incast(like, []int{3}, []int{4}, []int{0, 1})))
			c.messages(1)
			c.marked()
			for _, m := range c.flows() {
				if m.AckTx() == 0 {
					t.Errorf("%v", m)
				}
			}
		})
	}
}

// TestSonicFairness: queue pairs share the bottleneck by DCQCN, in one queue and in two.
func TestSonicFairness(t *testing.T) {
	lab.Long(t)
	for _, s := range []struct {
		ecn  string
		last int
	}{{"ect_1", 3}, {"ect_0", 4}} {
		t.Run(fmt.Sprintf("%s/q%d", s.ecn, s.last), func(t *testing.T) {
			f := newFabric(t, 4)
			f.lossless(3)
			c := f.newClient()
			like := rank{mtu: 5000, size: 1, unit: gosnappi.Rocev2FlowMessageSizeUnit.MB, ecn: s.ecn, ack: 3, timeout: 40, dcqcn: true}
			c.start(f.configure(incast(like, []int{3}, []int{s.last}, []int{3})))
			c.messages(10)
			var rx []uint64
			for _, m := range c.flows() {
				rx = append(rx, m.RxBytes())
				if m.MessageFail() != 0 || m.EcnCeRx() == 0 || m.CnpRx() == 0 || 100*m.FrameSequenceError() > m.DataFramesRx() {
					t.Errorf("%v", m)
				}
			}
			if slices.Min(rx)*2 < slices.Max(rx) {
				t.Errorf("unfair: %d bytes", rx)
			}
		})
	}
}
