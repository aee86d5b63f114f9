package fabric

import (
	"fmt"
	"testing"

	"roced.io/roced/internal/sim/engine"
)

// woven builds a network of two leaves and two spines, with load balancing lb and the lossless classes of a bit mask.
func woven(t *testing.T, lb string, lossless uint8) *field {
	f := newField(t, LeafSpine(w100, 2, 2, 4, 1), SwitchConfig{Balance: BalanceConfig{Name: lb},
		ECN: ECNConfig{Min: 20_000, Max: 40_000, Probability: 1}, Port: PortConfig{Strict: 1 << 7},
		Buffer: BufferConfig{Bytes: 9 << 20}, PFC: PFCConfig{Lossless: lossless, Headroom: 30_000, Reserve: 2000}})
	return f
}

// overtaken returns the number of packets of a queue pair that arrived after one with a higher reference.
func overtaken(g *gun, qp uint32) (n int) {
	next := uint32(0)
	for i := range g.arrived {
		p := &g.arrived[i]
		switch {
		case p.QP != qp:
		case p.Ref < next:
			n++
		default:
			next = p.Ref + 1
		}
	}
	return n
}

// TestConWeave: flows on the same path separate and stay in order, with and without flow control. Spraying, which
// reroutes as much, does not keep the order.
func TestConWeave(t *testing.T) {
	for _, lossless := range []uint8{0, 1} {
		took := map[string]engine.Time{}
		for _, lb := range []string{"ecmp", "conweave"} {
			f := woven(t, lb, lossless)
			for h := range 2 { // with the same hash: on the same path at first
				f.guns[h].load(4000, Packet{Dst: uint32(4 + h), QP: uint32(h), Bytes: size, Hash: 5, ECN: ECT})
			}
			f.run(t)
			for h := range 2 {
				if n := overtaken(&f.guns[4+h], uint32(h)); n > 0 {
					t.Errorf("%s, lossless %b: %d packets of flow %d overtaken", lb, lossless, n, h)
				}
				if at := f.guns[4+h].at; len(at) > 0 {
					took[lb] = max(took[lb], at[len(at)-1])
				}
			}
			if w := f.net.switches[1].weave; w != nil && (w.bytes != 0 || len(w.held) != 0) {
				t.Errorf("%d bytes are kept back in the end", w.bytes)
			}
		}
		// Two spines carry twice as much as one.
		if took["conweave"]*10 > took["ecmp"]*8 {
			t.Errorf("rerouted flows took %d us, the others %d us", took["conweave"]/mus, took["ecmp"]/mus)
		}
	}
}

// atLast makes a packet of a flow arrive at its last switch from a spine.
func (f *field) atLast(ref uint32, what flags, left engine.Time) {
	p := f.net.parts[0].NewPacket()
	*p = Packet{Dst: 4, Src: 0, QP: 9, Bytes: size, Ref: ref, in: 4, flags: what, sent: uint32(left / engine.Nanosecond)}
	f.eng.Sync()
	f.net.switches[1].Arrive(f.eng.Now(), 4, p)
}

// order returns the references in order of arrival at a host.
func (g *gun) order() (refs string) {
	for _, p := range g.arrived {
		refs += fmt.Sprint(p.Ref)
	}
	return refs
}

// TestConWeaveWithoutTail: overtaking packets wait for the TAIL. If the TAIL is lost, they wait no longer than its
// expected delay.
func TestConWeaveWithoutTail(t *testing.T) {
	for _, loses := range []bool{false, true} {
		f := woven(t, "conweave", 0)
		w := f.net.switches[1].weave
		o := &f.net.switches[1].ports[0]
		f.eng.Run(2 * mus)
		f.atLast(1, request, 0)
		f.eng.Run(5 * mus)
		f.atLast(3, rerouted, 4*mus)
		f.eng.Run(6 * mus)
		if len(w.held) != 1 || o.queued != 0 || f.guns[4].count != 1 {
			t.Fatalf("%d flows are kept back, %d have arrived", len(w.held), f.guns[4].count)
		}
		if err := f.net.Check(0); err != nil {
			t.Fatal(err)
		}
		if !loses {
			f.atLast(2, tail, 4*mus)
		}
		f.eng.Drain()
		got := f.guns[4].order()
		last := f.guns[4].at[len(f.guns[4].at)-1]
		if !loses && (got != "123" || last > 10*mus) || loses && (got != "13" || last < 20*mus || last > 30*mus) {
			t.Errorf("TAIL lost %v: %s arrived, the last at %d us", loses, got, last/mus)
		}
	}
}

// TestConWeaveSlowTail: a queue grows on the old path, so each of its packets is later than the one before. Overtaking
// packets wait longer than first estimated.
func TestConWeaveSlowTail(t *testing.T) {
	f := woven(t, "conweave", 0)
	f.eng.Run(2 * mus)
	f.atLast(1, request, 0)
	f.eng.Run(5 * mus)
	f.atLast(9, rerouted, 4*mus) // the wait ends at 4 + 2 + 16 us
	for i := range uint32(4) {
		f.eng.Run(engine.Time(12*(i+1)) * mus)
		f.atLast(2+i, 0, 3*mus)
	}
	f.eng.Run(60 * mus) // the last packet took 45 us
	f.atLast(6, tail, 4*mus)
	f.eng.Drain()
	if got := f.guns[4].order(); got != "1234569" {
		t.Errorf("%s arrived", got)
	}
}

// TestFlowHash: both halves of an entropy value choose the path.
func TestFlowHash(t *testing.T) {
	seen := map[uint32]bool{}
	for _, ev := range []uint32{0xc000, 0xc001, 0x1c000, 0x8000c000} {
		seen[FlowHash(0, 7, ev)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d hashes of 4 entropy values", len(seen))
	}
}

// TestKShortestPaths: flows use different paths of the k shortest, also longer ones. Each flow keeps its path and stays
// in order.
func TestKShortestPaths(t *testing.T) {
	g, err := Jellyfish(w100, 20, 4, 20, 1)
	if err != nil {
		t.Fatal(err)
	}
	hops := map[string][2]int{}
	for _, lb := range []string{"ecmp", "ksp"} {
		f := newField(t, g, SwitchConfig{Balance: BalanceConfig{Name: lb, Paths: 6}})
		for qp := range uint32(64) {
			f.guns[0].load(5, Packet{Dst: 7, QP: qp, Bytes: size, Hash: FlowHash(0, 7, uint32(uint16(qp)))})
		}
		f.run(t)
		least, most := 99, 0
		for i := range f.guns[7].arrived {
			least, most = min(least, int(f.guns[7].arrived[i].Hops)), max(most, int(f.guns[7].arrived[i].Hops))
		}
		for qp := range uint32(64) {
			if n := overtaken(&f.guns[7], qp); n > 0 {
				t.Errorf("%s: flow %d has %d packets overtaken", lb, qp, n)
			}
		}
		hops[lb] = [2]int{least, most}
	}
	if e := hops["ecmp"]; e[0] != e[1] {
		t.Errorf("ECMP takes ways of %v switches", e)
	}
	if k := hops["ksp"]; k[0] != hops["ecmp"][0] || k[1] <= k[0] {
		t.Errorf("ways of %v switches, the shortest have %v", k, hops["ecmp"])
	}
	f := newField(t, g, SwitchConfig{Balance: BalanceConfig{Name: "ksp", Paths: 6}})
	w := &f.net.ways
	seen := map[string]bool{}
	for i, p := range w.find(f.net.homes[0], f.net.homes[7]) {
		once := map[int32]bool{}
		for _, n := range p.nodes {
			if once[n] {
				t.Errorf("path %d has a loop: %v", i, p.nodes)
			}
			once[n] = true
		}
		seen[fmt.Sprint(p.nodes)] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d paths instead of 6", len(seen))
	}
}

// TestTrimming: without room a packet loses only its payload; its header overtakes others.
func TestTrimming(t *testing.T) {
	for _, trims := range []bool{false, true} {
		c := SwitchConfig{Buffer: BufferConfig{Bytes: 100_000}, Port: PortConfig{Strict: 1 << 7}}
		if trims {
			c.Trim.Bytes, c.Trim.Class = 84, 7
		}
		f := newField(t, Star(w100, 9), c)
		for h := range 8 {
			f.guns[h].load(100, Packet{Dst: 8, Bytes: size})
		}
		f.run(t)
		whole, pieces := 0, 0
		for i := range f.guns[8].arrived {
			if f.guns[8].arrived[i].Cut() {
				pieces++
			} else {
				whole++
			}
		}
		if lost := f.lost[Overflow]; trims && (lost != 0 || pieces == 0 || whole+pieces != 800) || !trims && (lost == 0 || pieces != 0) {
			t.Errorf("trims %v: %d lost, %d arrive, %d in part", trims, lost, whole, pieces)
		}
		if n := f.net.switches[0].ports[8].stats.Trimmed; n != uint64(pieces) {
			t.Errorf("%d trimmed, %d arrived", n, pieces)
		}
	}
}

// TestTrimmingPlaces: packets that the last switch has trimmed differ from others. One that returns is neither.
func TestTrimmingPlaces(t *testing.T) {
	for _, c := range []struct {
		name    string
		g       *Graph
		to      uint32
		lastHop bool
	}{
		{"between switches", Dumbbell(Wires{HostRate: 100 * gig, CoreRate: 10 * gig}, 4, 4), 4, false},
		{"to the host", Star(w100, 5), 4, true},
	} {
		sc := SwitchConfig{Buffer: BufferConfig{Bytes: 50_000}, Port: PortConfig{Strict: 1 << 7}}
		sc.Trim.Bytes, sc.Trim.Class = 84, 7
		f := newField(t, c.g, sc)
		for h := range 4 {
			f.guns[h].load(100, Packet{Dst: c.to, Bytes: size})
		}
		f.run(t)
		pieces := 0
		for i := range f.guns[c.to].arrived {
			p := &f.guns[c.to].arrived[i]
			if !p.Cut() {
				if p.LastHop() || p.Bytes != size {
					t.Fatalf("%s: a whole packet: %+v", c.name, p)
				}
				continue
			}
			pieces++
			if p.LastHop() != c.lastHop || p.Back() || p.Bytes != 84 || p.Class != 7 {
				t.Fatalf("%s: %+v, last hop %v", c.name, p, p.LastHop())
			}
			if p.Return(); !p.Cut() || !p.Back() || p.LastHop() {
				t.Errorf("%s: a returning packet: %+v", c.name, p)
			}
			if p.Again(size, 0); p.Cut() || p.Back() || p.LastHop() {
				t.Errorf("%s: a packet that is sent again: %+v", c.name, p)
			}
		}
		if pieces == 0 {
			t.Errorf("%s: no packet was trimmed", c.name)
		}
	}
}

// TestTrimmableClasses: switches trim packets of the selected classes and drop those of others.
func TestTrimmableClasses(t *testing.T) {
	for _, c := range []struct {
		classes      uint8
		trims, drops [3]bool
	}{
		{0, [3]bool{true, true, true}, [3]bool{}},
		{1 << 1, [3]bool{1: true}, [3]bool{0: true, 2: true}},
		{1<<0 | 1<<2, [3]bool{0: true, 2: true}, [3]bool{1: true}},
	} {
		sc := SwitchConfig{Buffer: BufferConfig{Bytes: 100_000}, Port: PortConfig{Strict: 1 << 7}}
		sc.Trim.Bytes, sc.Trim.Class, sc.Trim.Classes = 84, 7, c.classes
		f := newField(t, Star(w100, 7), sc)
		for h := range 6 {
			f.guns[h].load(100, Packet{Dst: 6, Bytes: size, Class: uint8(h % 3), QP: uint32(h % 3)})
		}
		f.run(t)
		var whole, cut [3]int
		for _, p := range f.guns[6].arrived {
			if p.Cut() {
				cut[p.QP]++
			} else {
				whole[p.QP]++
			}
		}
		for i := range 3 {
			if (cut[i] > 0) != c.trims[i] || (whole[i]+cut[i] < 200) != c.drops[i] {
				t.Errorf("classes %#x: class %d: %d whole, %d cut of 200", c.classes, i, whole[i], cut[i])
			}
		}
	}
}
