package fabric

import (
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/engine"
)

// graphs returns one graph of each topology.
func graphs(t testing.TB) map[string]*Graph {
	must := func(g *Graph, err error) *Graph {
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	w := Wires{HostRate: 40 * gig, CoreRate: 100 * gig, Delay: mus}
	return map[string]*Graph{
		"pair": Pair(w, false), "star": Star(w, 5), "dumbbell": Dumbbell(w, 3, 2), "parallel": ParallelPaths(w, 2, 4),
		"leaf-spine": LeafSpine(w, 4, 3, 5, 2), "fat-tree": must(FatTree(w, 4)), "jellyfish": must(Jellyfish(w, 20, 4, 30, 1)),
		"rails": Rails(w, 2, 6, 2),
	}
}

// TestEveryoneReachesEveryone: every host reaches every other one with any load balancing, and each packet arrives
// once.
func TestEveryoneReachesEveryone(t *testing.T) {
	for name, g := range graphs(t) {
		for _, lb := range Balancers() {
			t.Run(name+" "+lb, func(t *testing.T) {
				f := newField(t, g, SwitchConfig{Balance: BalanceConfig{Name: lb}})
				for src := range f.guns {
					for dst := range f.guns {
						if src != dst {
							f.guns[src].load(2, Packet{Dst: uint32(dst), Bytes: size, Hash: FlowHash(uint32(src), uint32(dst), 7)})
						}
					}
				}
				f.run(t)
				for h := range f.guns {
					if n := f.guns[h].count; n != 2*(len(f.guns)-1) {
						t.Errorf("host %d got %d packets", h, n)
					}
				}
			})
		}
	}
}

func TestShapes(t *testing.T) {
	for name, want := range map[string][3]int{
		"pair": {2, 0, 1}, "star": {5, 1, 5}, "dumbbell": {5, 2, 6}, "parallel": {4, 6, 12},
		"leaf-spine": {20, 7, 44}, "fat-tree": {16, 20, 48}, "jellyfish": {30, 20, 70}, "rails": {12, 4, 16},
	} {
		g := graphs(t)[name]
		if got := [3]int{g.Hosts, len(g.Switches), len(g.Cables)}; got != want {
			t.Errorf("%s has %v hosts, switches and cables, want %v", name, got, want)
		}
	}
	if _, err := FatTree(w100, 3); err == nil {
		t.Error("a fat-tree with an odd k")
	}
	if _, err := Jellyfish(w100, 5, 3, 5, 1); err == nil {
		t.Error("a graph that cannot be")
	}
	g := Star(w100, 2)
	g.Cables = append(g.Cables, Cable{0, 1, gig, 0})
	if err := g.check(); err == nil {
		t.Error("a host with two cables")
	}
}

// spines returns the number of packets through each spine.
func spines(f *field) (counts []uint64) {
	for i := range f.net.links {
		if l := &f.net.links[i]; l.Name[:5] == "leaf0" && l.Name[6:] != "" && l.Name[6] == 's' {
			counts = append(counts, l.Stats.Packets)
		}
	}
	slices.Sort(counts)
	return counts
}

// TestBalance checks how 4000 packets of one flow spread over four spines.
func TestBalance(t *testing.T) {
	for lb, check := range map[string]func(n []uint64) bool{
		"ecmp":        func(n []uint64) bool { return n[3] == 4000 },
		"spray":       func(n []uint64) bool { return n[0] > 850 && n[3] < 1150 },
		"round-robin": func(n []uint64) bool { return n[0] == 1000 && n[3] == 1000 },
		"po2":         func(n []uint64) bool { return n[0] > 850 && n[3] < 1150 },
		"drill":       func(n []uint64) bool { return n[0] > 500 },
		"letflow":     func(n []uint64) bool { return n[3] == 4000 },
		"ksp":         func(n []uint64) bool { return n[3] == 4000 },
	} {
		f := newField(t, LeafSpine(w100, 2, 4, 1, 1), SwitchConfig{Balance: BalanceConfig{Name: lb}})
		f.guns[0].load(4000, Packet{Dst: 1, Bytes: size, Hash: 5})
		f.run(t)
		if n := spines(f); !check(n) {
			t.Errorf("%s: %v", lb, n)
		}
	}
}

// TestLetFlow: LetFlow moves a flow after an idle time.
func TestLetFlow(t *testing.T) {
	f := newField(t, LeafSpine(w100, 2, 4, 1, 1), SwitchConfig{Balance: BalanceConfig{Name: "letflow", Gap: 50 * mus}})
	for range 40 {
		f.guns[0].load(10, Packet{Dst: 1, Bytes: size, Hash: 5})
		f.run(t)
		f.eng.Run(f.eng.Now() + 100*mus)
	}
	for _, n := range spines(f) {
		if n == 0 || n%10 != 0 {
			t.Errorf("flowlets of 10 packets: %v", spines(f))
		}
	}
}

// TestDRILL: DRILL keeps queues shorter than random choice does.
func TestDRILL(t *testing.T) {
	peak := map[string]int64{}
	for _, lb := range []string{"spray", "drill"} {
		f := newField(t, LeafSpine(w100, 2, 8, 8, 1), SwitchConfig{Balance: BalanceConfig{Name: lb}})
		for h := range 8 {
			f.guns[h].load(2000, Packet{Dst: uint32(8 + h), Bytes: size})
		}
		f.run(t)
		for i := range f.net.switches[0].ports[8:] {
			peak[lb] = max(peak[lb], f.net.switches[0].ports[8+i].stats.Peak)
		}
	}
	if peak["drill"]*2 > peak["spray"] {
		t.Errorf("peaks of queues: %v", peak)
	}
}

// TestDRILLPerHost: with per_host each destination keeps its port while no sample has a shorter queue. Without it, other
// ports take packets although no queue is shorter.
func TestDRILLPerHost(t *testing.T) {
	for _, perHost := range []bool{false, true} {
		f := newField(t, LeafSpine(w100, 2, 8, 2, 1), SwitchConfig{Balance: BalanceConfig{Name: "drill", PerHost: perHost}})
		for range 50 {
			for dst := range uint32(2) {
				f.guns[0].load(1, Packet{Dst: 2 + dst, Bytes: size})
				f.run(t)
			}
		}
		used := slices.DeleteFunc(spines(f), func(n uint64) bool { return n == 0 })
		if perHost && (len(used) > 2 || used[0] < 50) || !perHost && len(used) < 5 {
			t.Errorf("per_host %v: packets by spine: %v", perHost, used)
		}
	}
}

// TestFailure: packets on a failing cable are lost. Routes avoid the cable until it is restored.
func TestFailure(t *testing.T) {
	f := newField(t, LeafSpine(w100, 2, 2, 1, 1), SwitchConfig{Balance: BalanceConfig{Name: "round-robin"}})
	ls, err := f.net.Named("leaf0-spine0")
	if err != nil {
		t.Fatal(err)
	}
	l := ls[0]
	shoot := func() (lost, through uint64) {
		before, sent := f.lost[LinkDown], l.Stats.Packets
		f.guns[0].load(1000, Packet{Dst: 1, Bytes: size})
		f.run(t)
		return uint64(f.lost[LinkDown] - before), l.Stats.Packets - sent
	}
	l.Fail(true)
	if lost, _ := shoot(); lost != 500 {
		t.Errorf("%d of 1000 packets lost before the routes change", lost)
	}
	f.net.Reroute()
	if lost, through := shoot(); lost != 0 || through != 0 {
		t.Errorf("%d lost, %d through the failed cable", lost, through)
	}
	f.guns[1].load(1000, Packet{Dst: 0, Bytes: size}) // the cable would be the second of three
	if f.run(t); f.guns[0].count != 1000 {
		t.Errorf("%d of 1000 arrive the other way round", f.guns[0].count)
	}
	l.Fail(false)
	f.net.Reroute()
	if lost, through := shoot(); lost != 0 || through != 500 {
		t.Errorf("restored: %d lost, %d through the cable", lost, through)
	}
	l.Lose(0.1)
	f.guns[0].load(10_000, Packet{Dst: 1, Bytes: size})
	if f.run(t); f.lost[LinkLoss] < 400 || f.lost[LinkLoss] > 600 {
		t.Errorf("%d of 5000 lost at 10 %%", f.lost[LinkLoss])
	}
	l.Lose(0)
	l.Degrade(10 * gig)
	at := f.eng.Now()
	f.guns[0].load(1000, Packet{Dst: 1, Bytes: size})
	f.run(t)
	if took := f.eng.Now() - at; took < 500*size*800 {
		t.Errorf("500 packets took %d us at a tenth of the rate", took/engine.Microsecond)
	}
	if _, err := f.net.Named("leaf0-spine9"); err == nil {
		t.Error("a link that is not there")
	}
}

// TestDivide: parts are whole pods. Only links between tiers above them, or between switches with hosts, lead to other
// parts.
func TestDivide(t *testing.T) {
	w := Wires{HostRate: 100e9, Delay: mus}
	tree, err := FatTree(w, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		g     *Graph
		pods  int
		cross string // beginnings of the names of links between parts
	}{
		{"fat-tree", tree, 4, "aggr0 aggr1 aggr2 aggr3 core0 core1 core2 core3"},
		{"leaf-spine", LeafSpine(w, 3, 2, 2, 1), 3, "leaf0 leaf1 leaf2 spine0 spine1"},
		{"dumbbell", Dumbbell(w, 3, 3), 2, "left right"},
		{"star", Star(w, 9), 1, ""},
		{"pair", Pair(w, false), 0, ""},
	} {
		if _, err := c.g.Divide(c.pods + 1); err == nil {
			t.Errorf("%s: more than %d parts", c.name, c.pods)
		}
		for n := 1; n <= c.pods; n++ {
			of, err := c.g.Divide(n)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			used := map[int]bool{}
			for _, part := range of {
				used[part] = true
			}
			if len(used) != n {
				t.Errorf("%s: %d parts instead of %d: %v", c.name, len(used), n, of)
			}
			for _, cable := range c.g.Cables {
				a, b := int(cable.A)-c.g.Hosts, int(cable.B)-c.g.Hosts
				if a < 0 || b < 0 || of[a] == of[b] {
					continue
				}
				for _, name := range []string{c.g.Switches[a], c.g.Switches[b]} {
					if !strings.Contains(c.cross, strings.Split(name, ".")[0]) {
						t.Errorf("%s: a link of %s leads to another of %d parts", c.name, name, n)
					}
				}
			}
		}
	}
}
