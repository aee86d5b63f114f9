package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// wireOp is a request of the scenario, which runs on frames and in the simulator.
type wireOp struct {
	op    qp.WROpcode
	bytes uint32
}

var wireOps = []wireOp{{qp.WRWrite, 30_000}, {qp.WRSend, 3000}, {qp.WRWrite, 1}, {qp.WRRead, 20_000}, {qp.WRWriteImm, 60_000}, {qp.WRSend, 0}}

const (
	wirePSN  = 1<<24 - 20
	wireRate = 8_000_000_000 // a byte takes a nanosecond
	// With a round microsecond a packet would arrive at the instant at which another one has left, and their order
	// would be undefined.
	wireDelay = 1013 // ns
)

// said describes a packet in words.
func said(from string, p *bth.Packet) string {
	s := fmt.Sprintf("%s %v psn %v, %d bytes", from, p.Opcode, p.PSN, len(p.Payload))
	if p.Opcode.IsResponse() && !p.Opcode.IsReadResponse() {
		s += fmt.Sprintf(", syndrome %#x", uint8(p.AETH.Syndrome))
	}
	if p.Opcode.IsExt() && p.Ext.Flags&bth.XHasSACK != 0 {
		s += fmt.Sprintf(", SACK %v", p.Ext.SACK)
	}
	return s
}

// onFrames returns the packets that two NICs exchange in frames, with ICRC, on an ideal link with the rules.
func onFrames(t *testing.T, name string, rules []fault.Rule) (lines []string) {
	var ends [2]fault.Engine
	for i := range ends {
		if err := ends[i].SetRules(rules); err != nil {
			t.Fatal(err)
		}
	}
	p := nictest.New(t, nictest.Options{Rate: wireRate, Delay: wireDelay, Busy: true, Config: func(c *rocev2.Config) { c.MaxUnacked = 256 }})
	p.SetHook(func(f *nictest.Flight) nictest.Fate {
		var pkt bth.Packet
		if !f.RoCE(&pkt) {
			return nictest.Fate{}
		}
		end := 0
		if f.From == p.B {
			end = 1
		}
		lines = append(lines, said(f.From.Name, &pkt))
		return nictest.Fate{Drop: ends[end].Process(f.At, fault.Tx, f.Frame).Copies == 0}
	})
	a, b := p.RC(func(o *nictest.QPOptions) { o.Profile, o.PSN, o.SigAll = name, wirePSN, true })
	src, dst := p.A.Buffer(1<<17), p.B.Buffer(1<<17)
	p.Run(10_000_000) // addresses are resolved by then
	for i, o := range wireOps {
		if o.op != qp.WRWrite && o.op != qp.WRRead {
			b.PostRecv(uint64(i), dst.SGE())
		}
	}
	var ws []qp.SendWQE
	for i, o := range wireOps {
		w := nictest.Write(uint64(i), dst.At(0), src.Part(0, int(o.bytes)))
		w.Opcode = o.op
		ws = append(ws, w)
	}
	a.Post(ws...)
	for i := range wireOps {
		a.WaitSend(uint64(i))
	}
	p.RunIdle()
	return lines
}

// teller records the packets that enter links.
type teller struct {
	k     *nic.Cluster
	lines []string
}

func (w *teller) Sent(_ engine.Time, _ *fabric.Link, d *fabric.Packet) {
	p, src, _ := w.k.Packet(d)
	w.lines = append(w.lines, said("ab"[src:src+1], p))
}

// simulated runs onFrames in the simulator.
func simulated(t *testing.T, name string, rules []string) []string {
	var e engine.Engine
	k, err := nic.NewCluster(&e, nic.Config{MTU: 1024, Framing: nic.Framing{Bare: true}, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(&e, fabric.Config{Graph: fabric.Pair(fabric.Wires{HostRate: wireRate, Delay: wireDelay * engine.Nanosecond}, false), Owner: o})
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &teller{k: k}
	links := k.Network().Links()
	for i := range links {
		j, err := newJudge(k, nil, rules)
		if err != nil {
			t.Fatal(err)
		}
		links[i].Judge, links[i].Tap = j, w
	}
	makers := []*profile.Maker{profile.NewMaker(profile.Link{}), profile.NewMaker(profile.Link{})}
	x, y, err := k.Connect(0, 1, nic.QPConfig{User: w, MTU: 1024, MaxUnacked: 256, Timeout: 8, ReadDepth: 8, FirstPSN: wirePSN, Tuning: qp.Software,
		Memory:  [2][]byte{make([]byte, 1<<17), make([]byte, 1<<17)},
		Profile: func(host int) (qp.Profile, error) { return makers[host].New(name, profile.Spec{}) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range wireOps {
		if o.op != qp.WRWrite && o.op != qp.WRRead {
			y.PostRecv(nic.RecvWR{Length: 1 << 17})
		}
	}
	for _, o := range wireOps {
		x.Post(qp.SendWQE{Opcode: o.op, Length: o.bytes})
	}
	e.Drain()
	return w.lines
}

// Completed implements nic.User.
func (w *teller) Completed(engine.Time, *nic.QP, qp.CQE, bool) {}

// TestWireAgainstSimulator: with the same exact faults, each transport sends the same packets in the simulator as two
// whole NICs in frames. Packets, retransmissions and acknowledgements have the same PSNs and the same order in each
// direction.
func TestWireAgainstSimulator(t *testing.T) {
	for _, name := range profile.Complete() {
		for _, rules := range [][]string{
			nil,
			{"tx drop op=write psn=+3 n=1"},
			{"tx drop op=write psn=+5..9 n=1", "tx drop op=write psn=+7 n=1,2"},
			{"tx drop psn=+20..40 n=1"},
			{"tx drop op=ack n=1 psn=+2..30"},
			{"tx drop op=readresp n=1 psn=+4..6"},
			{"tx drop op=read n=1"},
		} {
			t.Run(name+" "+strings.Join(rules, "; "), func(t *testing.T) {
				var parsed []fault.Rule
				for _, text := range rules {
					r, err := fault.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					parsed = append(parsed, r)
				}
				frames, sim := onFrames(t, name, parsed), simulated(t, name, rules)
				for _, from := range []string{"a", "b"} {
					compare(t, only(from, frames), only(from, sim))
				}
			})
		}
	}
}

// only returns the lines of one end.
func only(from string, lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.HasPrefix(s, from) })
}

func compare(t *testing.T, frames, sim []string) {
	t.Helper()
	for i := range max(len(frames), len(sim)) {
		var f, s string
		if i < len(frames) {
			f = frames[i]
		}
		if i < len(sim) {
			s = sim[i]
		}
		if f != s {
			t.Errorf("packet %d of %d and %d:\nframes:    %s\nsimulator: %s", i, len(frames), len(sim), f, s)
			return
		}
	}
	if len(frames) < 5 {
		t.Errorf("only %d packets", len(frames))
	}
}
