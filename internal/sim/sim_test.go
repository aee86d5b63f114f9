package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/retrans"
)

const gig = 1e9

var w100 = fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}

// ns3 is the framing of the ns-3 simulators: 48 bytes of headers, ACKs of 60 bytes.
var ns3 = nic.Framing{Header: 48, Control: 60}

// everyPacket requests an acknowledgement of each packet.
var everyPacket = qp.Tuning{AcksPerWindow: 1 << 20, LinkOverhead: -1}

func clos(t testing.TB) *fabric.Graph { return fabric.LeafSpine(w100, 2, 1, 3, 1) }

// losslessSwitch returns a switch with flow control and a separate class for acknowledgements.
func losslessSwitch(_, ports int) fabric.SwitchConfig {
	return fabric.SwitchConfig{
		Buffer: fabric.BufferConfig{Bytes: 9 << 20}, PFC: fabric.PFCConfig{Lossless: 1, Headroom: 30_000, Reserve: 2096},
		Port: fabric.PortConfig{Strict: 1 << 7},
	}
}

func run(t testing.TB, c Config) (*Simulation, map[string]engine.Time) {
	t.Helper()
	c.Check = true
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	fct := map[string]engine.Time{}
	for _, f := range r.Flows {
		fct[fmt.Sprintf("%d-%d", f.Src, f.Dst)] = f.FCT
	}
	return s, fct
}

func planned(ps ...workload.Planned) []workload.App {
	return []workload.App{&workload.OpenLoop{Next: workload.List(ps)}}
}

// wide are transports whose windows hold any of the flows below.
var wide = map[string]profile.Spec{
	"irn":  {Reorder: profile.Part{Name: "irn", Params: map[string]float64{"bdp_packets": 4096}}, Recovery: profile.Part{Name: "irn", Params: map[string]float64{"bdp_fc": 0, "bdp_packets": 4096}}},
	"melo": {Recovery: profile.Part{Name: "melo", Params: map[string]float64{"bdp_packets": 4096}}},
}

// TestClosedForm: a single flow takes exactly its transmission and propagation times, and so ns-3's time to within 1.5
// %. ns-3 truncates times to nanoseconds (times of ns-3 from its HPCC family: 100 Gb/s, 1 us, 1000 bytes of payload).
func TestClosedForm(t *testing.T) {
	for _, c := range []struct {
		bytes      uint32
		rack, core float64 // ns, by ns-3
	}{
		{1, 4014, 8028}, {1000, 4174, 8348}, {10_000, 4921, 9095}, {104_000, 12_723, 16_897}, {1_000_000, 87_091, 91_265}, {2_000_000, 170_091, 174_265},
	} {
		for _, name := range profile.Names() {
			if name == "mp-rdma" && c.bytes > 64_000 {
				continue // L = 64 packets may be in flight; the longer path holds 103
			}
			for dst, want := range map[int]float64{1: c.rack, 3: c.core} {
				s, fct := run(t, Config{Graph: clos(t), Switch: losslessSwitch, Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, Profile: name, Spec: wide[name],
					QP: nic.QPConfig{Tuning: everyPacket, MaxUnacked: 1 << 14}, Apps: planned(workload.Planned{Src: 0, Dst: dst, Bytes: c.bytes})})
				got := fct[fmt.Sprintf("0-%d", dst)]
				if ideal := s.result.Flows[0].Ideal; got != ideal {
					t.Errorf("%s, %d bytes to host %d: %d ps, exactly it is %d", name, c.bytes, dst, got, ideal)
				}
				if ns := float64(got) / 1000; math.Abs(ns-want)/want > 0.015 {
					t.Errorf("%s, %d bytes to host %d: %.0f ns, ns-3 says %.0f", name, c.bytes, dst, ns, want)
				}
			}
		}
	}
}

// TestPacedAtLineRate: pacing at the link's rate costs no throughput, whatever headers the transport adds. Packets and
// pacing count the same bytes, defined by the framing.
func TestPacedAtLineRate(t *testing.T) {
	for _, name := range []string{"rc", "irn", "melo", "eunomia"} {
		spec := wide[name]
		spec.Congestion = profile.Part{Name: "dcqcn"}
		s, fct := run(t, Config{Graph: clos(t), Switch: losslessSwitch, Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, Profile: name, Spec: spec,
			QP: nic.QPConfig{Tuning: everyPacket, MaxUnacked: 1 << 14, CNPInterval: 50 * time.Microsecond}, Apps: planned(workload.Planned{Src: 0, Dst: 3, Bytes: 2_000_000})})
		if got, ideal := fct["0-3"], s.result.Flows[0].Ideal; float64(got) > 1.0005*float64(ideal) {
			t.Errorf("%s: %d ps, in an empty network it is %d", name, got, ideal)
		}
	}
}

// TestBDP: IRN's cap is the capacity of the longest path: a round trip of four links of 100 Gb/s, 1 us and a packet
// each. An explicit setting overrides it.
func TestBDP(t *testing.T) {
	given := profile.Spec{Recovery: profile.Part{Name: "irn", Params: map[string]float64{"bdp_packets": 30}}}
	for want, spec := range map[uint32]profile.Spec{105: {}, 30: given} {
		s, err := New(Config{Graph: clos(t), Switch: losslessSwitch, Framing: ns3, Profile: "irn", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.cfg.QP.Profile(0)
		if err != nil || p.Recovery.(retrans.Capped).Cap() != want {
			t.Errorf("%+v, %v, want a cap of %d", p.Recovery, err, want)
		}
	}
}

// TestOneByte: the ideal time of a flow of one byte within a rack, computed by hand: four times 1 us, twice 49 bytes
// and twice 60.
func TestOneByte(t *testing.T) {
	_, fct := run(t, Config{Graph: clos(t), Switch: losslessSwitch, Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, Profile: "rc",
		QP: nic.QPConfig{Tuning: everyPacket}, Apps: planned(workload.Planned{Src: 0, Dst: 1, Bytes: 1})})
	if got := fct["0-1"]; got != 4_017_440 {
		t.Errorf("%d ps", got)
	}
}

// TestTwoFlows: two flows of 1 MB into one host, without congestion control, share a link. They take the time of their
// packets and one acknowledgement on it.
func TestTwoFlows(t *testing.T) {
	for _, name := range []string{"rc", "irn"} {
		_, fct := run(t, Config{Graph: clos(t), Switch: losslessSwitch, Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, Profile: name, Spec: wide[name],
			QP:   nic.QPConfig{Tuning: everyPacket, MaxUnacked: 1 << 14},
			Apps: planned(workload.Planned{Src: 0, Dst: 2, Bytes: 1_000_000}, workload.Planned{Src: 1, Dst: 2, Bytes: 1_000_000})})
		last := max(fct["0-2"], fct["1-2"])
		// The bottleneck never idles: 2000 packets behind the first link and one more delay.
		if want := engine.Time(1048*80*2001+60*80*2) + 4*engine.Microsecond; last != want {
			t.Errorf("%s: the last one ends after %d ps, exactly it is %d", name, last, want)
		}
		if d := max(fct["0-2"]-fct["1-2"], fct["1-2"]-fct["0-2"]); d > last/50 {
			t.Errorf("%s: shares differ: %v", name, fct)
		}
	}
}
