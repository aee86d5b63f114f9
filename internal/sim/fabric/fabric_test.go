package fabric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"roced.io/roced/internal/sim/engine"
)

// TestLines: the fields that each packet touches occupy as few cache lines as possible.
func TestLines(t *testing.T) {
	if n := unsafe.Sizeof(Packet{}); n != 64 {
		t.Errorf("a packet's descriptor has %d bytes", n)
	}
}

// TestStoreAndForward: each link delays a packet by its transmission time and the propagation delay.
func TestStoreAndForward(t *testing.T) {
	for name, c := range map[string]struct {
		graph *Graph
		links int
	}{
		"back to back": {Pair(w100, false), 1},
		"one switch":   {Pair(w100, true), 2},
		"leaf-spine":   {LeafSpine(w100, 2, 1, 1, 1), 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t, c.graph, SwitchConfig{})
			f.guns[0].load(100, Packet{Dst: 1, Bytes: size})
			f.run(t)
			for i, at := range f.guns[1].at {
				want := engine.Time(c.links)*(mus+size*80) + engine.Time(i)*size*80
				if at != want || f.guns[1].arrived[i].Ref != uint32(i) {
					t.Fatalf("packet %d: %d arrives at %d, want %d", i, f.guns[1].arrived[i].Ref, at, want)
				}
			}
		})
	}
}

// TestRateIsExact: any link rate is exact in the long run.
func TestRateIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1e6, 800e9).Draw(t, "rate")
		var l Link
		l.setRate(rate)
		var bytes uint64
		var took engine.Time
		for range 100 {
			n := rapid.Uint32Range(1, 9000).Draw(t, "bytes")
			bytes += uint64(n)
			took += l.takes(n)
		}
		want := float64(bytes) * 8e12 / float64(rate)
		if math.Abs(float64(took)-want) > 1.5 {
			t.Fatalf("%d bytes at %d b/s took %d ps, want %f", bytes, rate, took, want)
		}
	})
}

// poisson sends packets to host 1 as a Poisson process.
type poisson struct {
	f    *field
	t    engine.Timer
	rng  *rand.Rand
	mean float64
	left int
}

func (p *poisson) Handle(now engine.Time, _ int32) {
	p.f.put(Packet{Dst: 1, Bytes: size, Ref: uint32(now / engine.Nanosecond)})
	if p.left--; p.left > 0 {
		p.f.eng.Set(&p.t, now+engine.Time(p.rng.ExpFloat64()*p.mean))
	}
}

// TestMD1: random arrivals at a port wait as queueing theory predicts: rho/(2(1-rho)) of a packet's transmission time
// (Pollaczek-Khinchine).
func TestMD1(t *testing.T) {
	for _, rho := range []float64{0.5, 0.8, 0.9} {
		f := newField(t, Star(Wires{HostRate: 100 * gig}, 2), SwitchConfig{})
		const service = size * 80
		p := &poisson{f: f, rng: rand.New(rand.NewPCG(7, 7)), mean: service / rho, left: 400_000}
		p.t.Init(p, 0)
		f.eng.Set(&p.t, 0)
		f.eng.Drain()
		sum := 0.0
		for i, at := range f.guns[1].at {
			sum += float64(at-service) - float64(f.guns[1].arrived[i].Ref)*1000
		}
		got := sum / float64(len(f.guns[1].at)) / service
		want := rho / (2 * (1 - rho))
		if math.Abs(got-want)/want > 0.05 {
			t.Errorf("load %.1f: packets wait %.3f services, theory says %.3f", rho, got, want)
		}
	}
}

// pfc returns a configuration with the buffer of a small switch.
func pfc(lossless uint8) SwitchConfig {
	return SwitchConfig{Buffer: BufferConfig{Bytes: 1 << 20}, PFC: PFCConfig{Lossless: lossless, Headroom: 30_000, Reserve: 2096}}
}

// TestPFC: eight senders at line rate send to one receiver over two switches. With flow control no packet is lost;
// without it packets are lost.
func TestPFC(t *testing.T) {
	for _, lossless := range []uint8{0, 1} {
		f := newField(t, Dumbbell(w100, 8, 1), pfc(lossless))
		for h := range 8 {
			f.guns[h].load(4000, Packet{Dst: 8, Bytes: size})
		}
		f.run(t)
		lost := f.lost[Overflow] + f.lost[NoHeadroom]
		var pauses uint64
		for i := range f.net.links {
			pauses += f.net.links[i].Stats.Pauses
		}
		if lossless != 0 && (lost > 0 || pauses == 0) || lossless == 0 && (lost == 0 || pauses > 0) {
			t.Errorf("lossless %b: %d lost, %d pauses", lossless, lost, pauses)
		}
		if lossless != 0 { // the bottleneck never idles
			last := f.guns[8].at[len(f.guns[8].at)-1]
			if ideal := engine.Time(32_000*size*80 + 3*(mus+size*80)); last > ideal+ideal/100 {
				t.Errorf("takes %d us, without idling %d us", last/mus, ideal/mus)
			}
		}
	}
}

// TestInput: an ingress port uses at most its part of the buffer, however much is free.
func TestInput(t *testing.T) {
	for _, senders := range []int{1, 2, 4} {
		f := newField(t, Dumbbell(Wires{HostRate: 100 * gig, CoreRate: gig, Delay: mus}, senders, 1), SwitchConfig{Buffer: BufferConfig{Bytes: 1 << 20, EgressAlpha: 64, Input: 50 * size}})
		for h := range senders {
			f.guns[h].load(200, Packet{Dst: uint32(senders), Bytes: size})
		}
		for h := range senders {
			f.guns[h].out.Wake(0)
		}
		f.eng.Run(30 * mus) // the bottleneck has sent two packets
		f.eng.Sync()
		if got := f.net.switches[0].Queued(); got < int64(senders*50-3)*size || got > int64(senders*50)*size {
			t.Errorf("%d senders: %d packets are queued", senders, got/size)
		}
		f.eng.Drain()
		if err := f.net.Check(0); err != nil || f.lost[Overflow] < 140*senders {
			t.Errorf("%v, %d lost", err, f.lost[Overflow])
		}
	}
}

// TestPauseEnds: a pause expires, and a renewed pause lasts.
func TestPauseEnds(t *testing.T) {
	f := newField(t, Pair(w100, false), SwitchConfig{})
	f.guns[0].load(1, Packet{Dst: 1, Bytes: size, Class: 3})
	f.guns[1].out.sendPause(0, f.net.parts[0], 3, 10*mus)
	f.eng.Run(2 * mus)
	f.guns[1].out.sendPause(f.eng.Now(), f.net.parts[0], 3, 10*mus)
	f.guns[0].out.Wake(f.eng.Now())
	f.eng.Drain()
	told := 2*mus + 84*80 + mus
	if want := told + 10*mus + size*80 + mus; f.guns[1].count != 1 || f.guns[1].at[0] != want {
		t.Fatalf("%d packets, at %v, want at %d", f.guns[1].count, f.guns[1].at, want)
	}
	if got, want := f.guns[0].out.PausedAt(f.eng.Now()), 12*mus; got != want {
		t.Errorf("paused for %d ps, want %d", got, want)
	}
}

// TestMark: a port of a switch can have its own ECN configuration.
func TestMark(t *testing.T) {
	f := newField(t, Star(w100, 4), SwitchConfig{Buffer: BufferConfig{Bytes: 1 << 20}, ECN: ECNConfig{Min: 1, Max: 1, Probability: 1}})
	ls, err := f.net.Named("s0-h3")
	if err != nil {
		t.Fatal(err)
	}
	ls[0].Mark(ECNConfig{Min: 1 << 20, Max: 1 << 20, Probability: 1})
	for h, dst := range []uint32{2, 2, 3, 3} {
		f.guns[h].load(10, Packet{Dst: dst, Bytes: size, ECN: ECT})
	}
	f.run(t)
	marked := map[string]uint64{}
	for i := range f.net.switches[0].Ports() {
		st, out, _ := f.net.switches[0].Port(i)
		marked[out.Name] = st.Marked
	}
	if marked["s0-h2"] == 0 || marked["s0-h3"] != 0 {
		t.Errorf("%v", marked)
	}
}

// TestECN: no packet is marked below Min, all are above Max, and the probability is linear in between.
func TestECN(t *testing.T) {
	var m marker
	m.init(ECNConfig{Min: 100, Max: 400, Probability: 0.2})
	var rng rand.PCG
	for _, c := range []struct {
		queued int64
		want   float64
	}{{0, 0}, {100, 0}, {250, 0.1}, {399, 0.2}, {400, 1}, {10_000, 1}} {
		marked := 0
		for range 20_000 {
			p := Packet{ECN: ECT}
			if m.mark(&p, c.queued, &rng) != (p.ECN == CE) {
				t.Fatal("says what it has not done")
			}
			if p.ECN == CE {
				marked++
			}
		}
		if got := float64(marked) / 20_000; math.Abs(got-c.want) > 0.01 {
			t.Errorf("queue of %d: %.3f marked, want %.3f", c.queued, got, c.want)
		}
	}
	p := Packet{ECN: NotECT}
	if m.mark(&p, 10_000, &rng) || p.ECN != NotECT {
		t.Error("marks what is not capable of it")
	}
}

// TestTurns: ingress ports take turns, regardless of arrival order; packets of one port stay in order.
func TestTurns(t *testing.T) {
	f := newField(t, Star(Wires{HostRate: 100 * gig, Delay: mus}, 4), SwitchConfig{Port: PortConfig{Turns: true}})
	for i, in := range []int32{0, 0, 0, 0, 1, 1, 2} {
		p := f.net.parts[0].NewPacket()
		*p = Packet{Dst: 3, Bytes: size, Ref: uint32(i), Class: 1}
		f.net.switches[0].Arrive(f.eng.Now(), in, p)
	}
	f.eng.Drain()
	got := ""
	for _, p := range f.guns[3].arrived {
		got += fmt.Sprint(p.Ref)
	}
	if got != "0146253" {
		t.Errorf("%s, not 0146253", got)
	}
}

// TestClasses: a strict class leaves first and the others share the rest; with SRPT the shortest message leaves first.
func TestClasses(t *testing.T) {
	order := func(c PortConfig, ps ...Packet) string {
		f := newField(t, Star(Wires{HostRate: 100 * gig, Delay: mus}, 2), SwitchConfig{Port: c})
		f.put(Packet{Dst: 1, Bytes: size, Ref: 99}) // keeps the port busy
		for i := range ps {
			ps[i].Dst, ps[i].Bytes = 1, size
			f.put(ps[i])
		}
		f.eng.Drain()
		out := ""
		for _, p := range f.guns[1].arrived[1:] {
			out += fmt.Sprint(p.Ref)
		}
		return out
	}
	if got := order(PortConfig{Strict: 1 << 7}, Packet{Ref: 1}, Packet{Ref: 2}, Packet{Ref: 3, Class: 7}, Packet{Ref: 4, Class: 7},
		Packet{Ref: 5, Class: 7}, Packet{Ref: 6, Class: 7}); got != "345612" {
		t.Errorf("strict: %s", got)
	}
	if got := order(PortConfig{Strict: 3 << 6}, Packet{Ref: 1}, Packet{Ref: 2, Class: 6}, Packet{Ref: 3, Class: 7}); got != "321" {
		t.Errorf("two strict classes: %s", got)
	}
	if got := order(PortConfig{SRPT: true}, Packet{Ref: 1, Rank: 9}, Packet{Ref: 2, Rank: 5}, Packet{Ref: 3, Rank: 9}, Packet{Ref: 4, Rank: 1}); got != "4213" {
		t.Errorf("SRPT: %s", got)
	}
}

// TestShares: classes share by deficit round robin in proportion to their weights. A class has no debt for packets that
// it sent alone.
func TestShares(t *testing.T) {
	for _, weights := range [][Classes]uint8{{}, {3, 1}} {
		f := newField(t, Star(w100, 2), SwitchConfig{Port: PortConfig{Weights: weights}})
		for range 1000 {
			f.put(Packet{Dst: 1, Bytes: size})
		}
		f.eng.Run(500 * 80 * size)
		for range 400 {
			f.put(Packet{Dst: 1, Bytes: size / 2, Class: 1})
		}
		before := f.guns[1].count
		f.eng.Run(700 * 80 * size)
		got := [2]float64{}
		for _, p := range f.guns[1].arrived[before:] {
			got[p.Class] += float64(p.Bytes)
		}
		want := 1.0
		if weights[0] > 0 {
			want = float64(weights[0]) / float64(weights[1])
		}
		if ratio := got[0] / got[1]; math.Abs(ratio-want) > want/5 {
			t.Errorf("weights %v: bytes %v", weights, got)
		}
	}
}

// TestLinkFaults: links corrupt and delay packets as configured, and keep the order.
func TestLinkFaults(t *testing.T) {
	f := newField(t, Pair(w100, false), SwitchConfig{})
	l := f.guns[0].out
	l.Corrupt(0.1)
	l.Jitter(5 * mus)
	f.guns[0].load(10_000, Packet{Dst: 1, Bytes: size})
	f.run(t)
	if n := f.lost[Corrupted]; n < 900 || n > 1100 {
		t.Errorf("%d of 10000 corrupted at 10 %%", n)
	}
	g, late := &f.guns[1], 0
	for i, at := range g.at {
		least := engine.Time(g.arrived[i].Ref+1)*size*80 + mus
		if i > 0 && (at < g.at[i-1] || g.arrived[i].Ref < g.arrived[i-1].Ref) || at < least || at > least+5*mus {
			t.Fatalf("packet %d arrives at %d, without jitter at %d", g.arrived[i].Ref, at, least)
		}
		if at > least+mus {
			late++
		}
	}
	if late < len(g.at)/2 {
		t.Errorf("%d of %d packets are late", late, len(g.at))
	}
}

// TestDetour: packets without room go to other switches and return (DIBS).
func TestDetour(t *testing.T) {
	lost := [2]int{}
	for i, detour := range []bool{false, true} {
		tree, err := FatTree(w100, 4)
		if err != nil {
			t.Fatal(err)
		}
		f := newField(t, tree, SwitchConfig{Detour: detour, Buffer: BufferConfig{Bytes: 200_000}})
		for h := 1; h < 16; h++ {
			f.guns[h].load(40, Packet{Dst: 0, Bytes: size, Hash: uint32(h) * 77777})
		}
		f.run(t)
		for _, n := range f.lost {
			lost[i] += n
		}
	}
	if lost[0] == 0 || lost[1] > lost[0]/4 {
		t.Errorf("lost %d without and %d with detours", lost[0], lost[1])
	}
}

// TestNoAllocations: packets allocate nothing once queues have grown.
func TestNoAllocations(t *testing.T) {
	f := newField(t, Dumbbell(w100, 4, 4), pfc(1))
	for h := range f.guns {
		f.guns[h].forget = true
	}
	shot := Packet{Bytes: size, ECN: ECT}
	fire := func() {
		for h := range 4 {
			g := &f.guns[h]
			g.magazine = g.magazine[:0]
			for i := range 500 {
				shot.Dst, shot.Hash = uint32(4+(h+i)%4), uint32(i)
				g.magazine = append(g.magazine, shot)
			}
			keep := g.magazine
			g.out.Wake(f.eng.Now())
			f.eng.Drain()
			g.magazine = keep
		}
	}
	fire()
	if n := testing.AllocsPerRun(5, fire); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestThreshold: a queue of a lossy class has at most EgressAlpha times the free bytes of the buffer.
func TestThreshold(t *testing.T) {
	const bytes = 200_000
	for _, alpha := range []float64{1, 0.25} {
		f := newField(t, Star(w100, 3), SwitchConfig{Buffer: BufferConfig{Bytes: bytes, EgressAlpha: alpha}})
		for h := range 2 {
			f.guns[h].load(1000, Packet{Dst: 2, Bytes: size})
		}
		f.run(t)
		want := bytes * alpha / (1 + alpha)
		if peak := float64(f.net.switches[0].ports[2].stats.Peak); math.Abs(peak-want) > 2*size || f.lost[Overflow] == 0 {
			t.Errorf("alpha %v: %.0f bytes were queued, want %.0f; %d lost", alpha, peak, want, f.lost[Overflow])
		}
	}
}

// TestHeadroom: packets that find no shared bytes use the headroom while it lasts. The headroom is released first.
func TestHeadroom(t *testing.T) {
	var b buffer
	b.init(BufferConfig{Bytes: 100_000}, PFCConfig{Lossless: 1, Headroom: 3000, Reserve: 1000, Shared: 2000}, 2)
	var s stock
	for i, want := range []bool{true, true, true, true, true, true, false} {
		if b.admitIngress(&s, 1000) != want {
			t.Fatalf("packet %d is admitted: %v", i, !want)
		}
	}
	if s.bytes != 3000 || s.headroom != 3000 || b.shared != 2000 || !b.stops(&s) {
		t.Errorf("%+v, %d shared", s, b.shared)
	}
	s.stopped = true
	b.leaveIngress(&s, 2500)
	if s.headroom != 500 || s.bytes != 3000 || b.resumes(&s) {
		t.Errorf("%+v after 2500 bytes", s)
	}
	b.leaveIngress(&s, 3500)
	if s != (stock{stopped: true}) || b.shared != 0 || b.bytes != 0 || !b.resumes(&s) {
		t.Errorf("%+v in the end", s)
	}
}

// TestSideBySide: lossy classes fill the shared buffer, and lossless ones still have their reserve and their headroom.
func TestSideBySide(t *testing.T) {
	var b buffer
	b.init(BufferConfig{Bytes: 100_000, EgressAlpha: 128}, PFCConfig{Lossless: 1 << 3, Apart: true, Headroom: 5000, Reserve: 1000}, 4)
	var lossy, lossless stock
	for n := int64(0); b.admitEgress(&lossy, 1000, n); n += 1000 {
	}
	if lossy.bytes != 76_000 {
		t.Errorf("lossy classes have %d bytes of 100000, of which 4 ports keep 24000", lossy.bytes)
	}
	admitted := 0
	for b.admitIngress(&lossless, 1000) {
		admitted++
	}
	if admitted != 6 || !b.stops(&lossless) {
		t.Errorf("%d packets of the lossless class, want its reserve and headroom: %+v", admitted, lossless)
	}
	b.leaveEgress(&lossy, 2000)
	if !b.admitIngress(&lossless, 1000) || b.shared != 1000 || b.admitEgress(&lossy, 2000, 0) {
		t.Errorf("the classes do not share what is free: %+v, %+v", lossless, b)
	}
}

// TestExplicit: a packet takes the path that it names. Consecutive numbers are different paths, over several tiers.
func TestExplicit(t *testing.T) {
	g, err := FatTree(w100, 4)
	if err != nil {
		t.Fatal(err)
	}
	f := newField(t, g, SwitchConfig{Balance: BalanceConfig{Name: Explicit}})
	from, to := 0, g.Hosts-1
	through := map[string][]uint32{} // by switch: paths
	for k := range uint32(8) {
		for i := range f.net.switches {
			if s := f.net.switches[i].Name; f.net.Passes(from, to, k, s) {
				through[s] = append(through[s], k%4)
			}
		}
		f.guns[from].load(1, Packet{Dst: uint32(to), Hash: k, Bytes: size})
	}
	f.run(t)
	for i := range f.net.switches {
		s := &f.net.switches[i]
		packets := uint64(0)
		for k := range s.Ports() {
			_, out, _ := s.Port(k)
			packets += out.Stats.Packets
		}
		if packets != uint64(len(through[s.Name])) {
			t.Errorf("%s sent %d packets, and has the paths %v", s.Name, packets, through[s.Name])
		}
	}
	cores := 0
	for name, paths := range through {
		if len(paths) == 2 { // 0 and 4 are the same path
			if cores++; paths[0] != paths[1] {
				t.Errorf("%s: paths %v", name, paths)
			}
		}
	}
	if cores != 4 {
		t.Errorf("%d of 4 switches have one path: %v", cores, through)
	}
}
