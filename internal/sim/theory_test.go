package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// steady is a simulation of endless flows. It measures between two instants, after all flows have settled.
type steady struct {
	t        *testing.T
	s        *Simulation
	from, to engine.Time
	bytes    map[string]uint64 // bytes that entered each link between the two instants
	packets  map[string]uint64
	flows    []*nic.QP // senders, in order of creation
	windows  float64   // mean window of the first sender, in bytes
	queues   []int64   // as in Config.Queues
	marked   uint64
	markedAt map[string]float64
}

// run runs c and measures between from and to.
func (y *steady) run(c Config, queue string) {
	y.t.Helper()
	y.bytes, y.packets, y.markedAt = map[string]uint64{}, map[string]uint64{}, map[string]float64{}
	look := func(sign uint64) func(n *fabric.Network) {
		return func(n *fabric.Network) {
			for i := range n.Links() {
				l := &n.Links()[i]
				y.bytes[l.Name] += sign * l.Stats.Bytes
				y.packets[l.Name] += sign * l.Stats.Packets
			}
			for i := range n.Switches() {
				sw := &n.Switches()[i]
				for k := range sw.Ports() {
					st, out, _ := sw.Port(k)
					y.marked += sign * st.Marked
					y.markedAt[out.Name] += float64(int64(sign)) * float64(st.Marked)
				}
			}
		}
	}
	c.Events = append(c.Events, Event{y.from, look(math.MaxUint64)}, Event{y.to, look(1)})
	const looks = 1000
	for i := range looks {
		c.Events = append(c.Events, Event{y.from + (y.to-y.from)*engine.Time(i)/looks, func(*fabric.Network) {
			w, _ := y.flows[0].Limits()
			y.windows += float64(w) / looks
		}})
	}
	if queue != "" {
		c.Queues, c.Sample = []string{queue}, engine.Microsecond
	}
	c.Until, c.Check = y.to+1, true
	c.Opened = func(first, _ *nic.QP, _ *workload.Flow) { y.flows = append(y.flows, first) }
	var err error
	if y.s, err = New(c); err != nil {
		y.t.Fatal(err)
	}
	r, err := y.s.Run()
	if err != nil {
		y.t.Fatal(err)
	}
	for _, q := range r.Queues {
		if q.At >= y.from {
			y.queues = append(y.queues, q.Bytes)
		}
	}
}

// gbps returns the throughput of a link.
func (y *steady) gbps(link string) float64 {
	return float64(y.bytes[link]) * 8 / (y.to - y.from).Seconds() / 1e9
}

// queue returns the mean, the standard deviation and the maximum of the queue.
func (y *steady) queue() (mean, spread, most float64) {
	n := float64(len(y.queues))
	for _, q := range y.queues {
		mean += float64(q) / n
		most = max(most, float64(q))
	}
	for _, q := range y.queues {
		spread += (float64(q) - mean) * (float64(q) - mean) / n
	}
	return mean, math.Sqrt(spread), most
}

// marks returns the share of marked packets; all packets used one link.
func (y *steady) marks(link string) float64 { return float64(y.marked) / float64(y.packets[link]) }

// near reports an error if got differs from want by more than the share within.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if t.Logf("%s: %.4g, theory says %.4g", what, got, want); math.Abs(got-want) > within*want {
		t.Errorf("%s: %.4g, theory says %.4g", what, got, want)
	}
}

// TestMaxMin: four flows in separate classes get max-min fair shares. Ports serve the classes in turn, and flow control
// stops each separately. A crosses both bottlenecks: of 60 Gb/s A, C and D get 20 each, and B gets the rest of 100.
func TestMaxMin(t *testing.T) {
	g := &fabric.Graph{Hosts: 8, Switches: []string{"s0", "s1", "s2"}}
	cable := func(a, b fabric.Node, rate quantity.Rate) {
		g.Cables = append(g.Cables, fabric.Cable{A: a, B: b, Rate: rate * gig, Delay: engine.Microsecond})
	}
	for h, sw := range []int{0, 0, 1, 1, 2, 1, 2, 2} { // senders A, B, C, D and their destinations
		cable(fabric.Node(h), g.Switch(sw), 100)
	}
	cable(g.Switch(0), g.Switch(1), 100)
	cable(g.Switch(1), g.Switch(2), 60)
	var apps []workload.App
	for f := range 4 {
		apps = append(apps, &workload.OpenLoop{Class: uint8(f), Next: workload.List([]workload.Planned{{Src: f, Dst: 4 + f, Bytes: 1 << 30}})})
	}
	y := steady{t: t, from: engine.Millisecond / 2, to: 2 * engine.Millisecond}
	y.run(Config{Graph: g, Profile: "rc", Classes: nic.Classes{Ack: 7, CNP: 7}, Apps: apps, Switch: func(int, int) fabric.SwitchConfig {
		return fabric.SwitchConfig{Port: fabric.PortConfig{Strict: 1 << 7}, Buffer: fabric.BufferConfig{Bytes: 9 << 20}, PFC: fabric.PFCConfig{Lossless: 0xf, Headroom: 40_000, Reserve: 2096}}
	}}, "")
	for link, want := range map[string]float64{"s2-h4": 20, "s1-h5": 80, "s2-h6": 20, "s2-h7": 20} {
		near(t, link, y.gbps(link), want, 0.01)
	}
}

// allToLast makes n hosts send to another one without end.
func allToLast(n int) (apps []workload.App) {
	var ps []workload.Planned
	for h := range n {
		ps = append(ps, workload.Planned{Src: h, Dst: n, Bytes: 1 << 30})
	}
	return planned(ps...)
}

// TestDCTCPLimit: the windows of n flows rise and fall together, as Alizadeh et al. compute (SIGCOMM 2010, 3.3,
// equations 4 to 10). At the end of a marked round trip the queue holds K + n packets; then it shrinks by the computed
// swing. The share of marked packets is the one that alpha predicts.
func TestDCTCPLimit(t *testing.T) {
	const size = 1048.0
	for _, c := range []struct{ n, k, delay int }{{2, 65, 1}, {2, 150, 5}, {4, 150, 5}} {
		y := steady{t: t, from: 3 * engine.Millisecond, to: 9 * engine.Millisecond}
		step, link := quantity.Bytes(c.k)*size, fmt.Sprintf("s0-h%d", c.n)
		y.run(Config{Graph: fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Time(c.delay) * engine.Microsecond}, c.n+1),
			Profile: "rc", Spec: profile.Spec{Congestion: profile.Part{Name: "dctcp"}}, Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7},
			QP: nic.QPConfig{Tuning: everyPacket, MaxUnacked: 4096}, Apps: allToLast(c.n), Switch: func(int, int) fabric.SwitchConfig {
				return fabric.SwitchConfig{Port: fabric.PortConfig{Strict: 1 << 7}, ECN: fabric.ECNConfig{Min: step, Max: step, Probability: 1}, Buffer: fabric.BufferConfig{Bytes: 9 << 20}}
			}}, link)
		n, k := float64(c.n), float64(c.k)
		held := 100e9 / 8 / size * (4e-6*float64(c.delay) + 2*size*8e-11) // in an empty network
		swing := math.Sqrt(2*n*(held+k)) / 2
		mean, spread, most := y.queue()
		what := fmt.Sprintf("%d flows, K %d, %d us: ", c.n, c.k, c.delay)
		near(t, what+"longest queue", most/size, k+n, 0.05)
		near(t, what+"mean queue", mean/size, k+n-swing/2, 0.05)
		near(t, what+"swing", spread*math.Sqrt(12)/size, swing, 0.15) // a saw tooth spreads by swing/sqrt(12)
		near(t, what+"marks", y.marks(link), math.Sqrt(2*n/(held+k)), 0.15)
		near(t, what+"rate", y.gbps(link), 100, 0.001)
	}
}

// dcqcnModel is the fluid model of DCQCN (Zhu et al., SIGCOMM 2015, 5.1, equations 5 to 9), with the
// paper's parameters, for n flows.
type dcqcnModel struct{ c, n float64 }

const (
	cnpEvery   = 50e-6
	alphaEvery = 55e-6
	timerEvery = 55e-6
	recovery   = 5
)

// excess returns the change of a flow's rate at the fair share, if each packet is marked with probability p and the
// target is constant. Its root is the fixed point.
func (m dcqcnModel) excess(p, size float64) float64 {
	rate, rai, counter := m.c/m.n, 40e6/8/size, 10e6/size
	quiet := func(packets float64) float64 { return math.Pow(1-p, packets) } // probability of no mark among so many packets
	events := func(packets float64) float64 { return p / (math.Pow(1-p, -packets) - 1) }
	cut := (1 - quiet(cnpEvery*rate)) / cnpEvery
	alpha := 1 - quiet(alphaEvery*rate)
	b, t := events(counter), events(timerEvery*rate)
	gap := rai * rate * (quiet(recovery*counter)*b + quiet(recovery*timerEvery*rate)*t) / cut // R_T - R_C
	return gap/2*rate*(b+t) - rate*alpha/2*cut
}

// fixedPoint returns the marking probability at the fixed point.
func (m dcqcnModel) fixedPoint(size float64) float64 {
	low, high := 1e-9, 0.5
	for range 100 {
		if mid := math.Sqrt(low * high); m.excess(mid, size) > 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// TestDCQCNLimit: the marking rate and the queue match the fixed point. The model has no bursts and no randomness, so
// it is more accurate for few flows.
func TestDCQCNLimit(t *testing.T) {
	const size, kmin, kmax, pmax = 1048.0, 5e3, 200e3, 0.01
	for _, n := range []int{2, 4} {
		y := steady{t: t, from: 20 * engine.Millisecond, to: 60 * engine.Millisecond}
		link := fmt.Sprintf("s0-h%d", n)
		y.run(Config{Graph: fabric.Star(fabric.Wires{HostRate: 40 * gig, Delay: engine.Microsecond}, n+1), Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7},
			Profile: "rc", Spec: profile.Spec{Congestion: profile.Part{Name: "dcqcn"}}, Apps: allToLast(n),
			QP: nic.QPConfig{Tuning: qp.Tuning{LinkOverhead: -1}, MaxUnacked: 4096, CNPInterval: 50 * time.Microsecond},
			Switch: func(int, int) fabric.SwitchConfig {
				return fabric.SwitchConfig{Port: fabric.PortConfig{Strict: 1 << 7}, ECN: fabric.ECNConfig{Min: kmin, Max: kmax, Probability: pmax, At: "dequeue"}, Buffer: fabric.BufferConfig{Bytes: 12 << 20}}
			}}, link)
		p := dcqcnModel{40e9 / 8 / size, float64(n)}.fixedPoint(size)
		mean, _, _ := y.queue()
		what := fmt.Sprintf("%d flows: ", n)
		near(t, what+"marks", y.marks(link), p, 0.25)
		near(t, what+"queue", mean, kmin+p/pmax*(kmax-kmin), 0.25)
		near(t, what+"rate", y.gbps(link), 40, 0.01)
	}
}

// TestMPRDMALimit: a path's share of marked acknowledgements is 2/(cwnd + 2) at the fixed point (MP-RDMA 3.2.1,
// equation 6). That holds for any path, and all paths are full. The model has no NIC link, so here that link is faster
// than all paths together: a window that fills the NIC does not grow.
func TestMPRDMALimit(t *testing.T) {
	y := steady{t: t, from: 2 * engine.Millisecond, to: 20 * engine.Millisecond}
	g := fabric.ParallelPaths(fabric.Wires{HostRate: 50 * gig, CoreRate: 10 * gig, Delay: engine.Microsecond}, 1, 4)
	y.run(Config{Graph: g, Profile: "mp-rdma", Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, QP: nic.QPConfig{Tuning: everyPacket, MaxUnacked: 4096},
		Apps: planned(workload.Planned{Src: 0, Dst: 1, Bytes: 1 << 30}), Switch: func(int, int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Port: fabric.PortConfig{Strict: 1 << 7}, ECN: fabric.ECNConfig{Max: 40_000, Probability: 0.4}, Buffer: fabric.BufferConfig{Bytes: 12 << 20}}
		}}, "")
	near(t, "F", y.marks("h0-left"), 2/(y.windows/1000+2), 0.1)
	for _, path := range g.Switches[2:] {
		near(t, path, y.gbps(path+"-right"), 10, 0.01)
		near(t, path+" F", y.markedAt["left-"+path]/float64(y.packets["left-"+path]), 2/(y.windows/1000+2), 0.2)
	}
}
