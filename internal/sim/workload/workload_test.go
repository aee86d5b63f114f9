package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// runnerOn returns a runner with hosts on one switch.
func runnerOn(t testing.TB, hosts int, persistent bool, ended func(*Flow)) *Runner {
	t.Helper()
	e := new(engine.Engine)
	k, err := nic.NewCluster(e, nic.Config{MTU: 1000, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(e, fabric.Config{Graph: fabric.Star(fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}, hosts), Owner: o,
			Switch: func(int, int) fabric.SwitchConfig {
				return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 64 << 20}}
			}})
	}})
	if err != nil {
		t.Fatal(err)
	}
	makers := profile.NewMaker(profile.Link{})
	return NewRunner(k, Config{Persistent: persistent, Ended: ended, QP: nic.QPConfig{
		Profile: func(int) (qp.Profile, error) { return makers.New("rc", profile.Spec{}) }}})
}

func drain(t testing.TB, r *Runner) {
	t.Helper()
	r.Start()
	r.Engine().Drain()
	if r.Err() != nil || r.Running() != 0 || r.Failed() != 0 || r.k.InFlight() != 0 {
		t.Fatalf("%v, %d running, %d failed, %d packets left", r.Err(), r.Running(), r.Failed(), r.k.InFlight())
	}
}

// TestVerbs: each message ends once, with each verb, on separate and on shared connections.
func TestVerbs(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		for _, verb := range []Verb{Write, Send, Read} {
			ended := map[int]int{}
			r := runnerOn(t, 4, persistent, func(f *Flow) {
				if ended[f.ID]++; f.End <= f.Start {
					t.Errorf("message %d ends before it begins", f.ID)
				}
			})
			var ps []Planned
			for i := range 50 {
				ps = append(ps, Planned{At: engine.Time(i%7) * engine.Microsecond, Src: i % 4, Dst: (i + 1 + i%3) % 4, Bytes: uint32(i * 997)})
			}
			r.Add(&OpenLoop{Verb: verb, Next: List(ps)})
			drain(t, r)
			if len(ended) != 50 {
				t.Errorf("verb %d, persistent %v: %d of 50 ended", verb, persistent, len(ended))
			}
		}
	}
}

// TestLoops: the durations that loops report are those of the links.
func TestLoops(t *testing.T) {
	rpc := &RPC{Client: 0, Server: 1, Request: 100, Response: 20_000, Calls: 30, Outstanding: 3}
	r := runnerOn(t, 2, true, nil)
	r.Add(rpc)
	if drain(t, r); len(rpc.Times) != 30 {
		t.Fatalf("%d of 30 calls answered", len(rpc.Times))
	}
	for _, took := range rpc.Times {
		if took < 4*engine.Microsecond || took > 20*engine.Microsecond {
			t.Errorf("a call took %d ns", took/engine.Nanosecond)
		}
	}

	const n, bytes = 8, 1_000_000
	line := func(b float64) float64 { return b * 8 / 100e9 * 1e6 } // us at line rate
	between := func(name string, took engine.Time, least float64) {
		t.Helper()
		if us := float64(took) / float64(engine.Microsecond); us < least || us > 1.5*least+50 {
			t.Errorf("%s took %.1f us, at least %.1f are needed", name, us, least)
		}
	}
	all := &AllToAll{Bytes: bytes}
	r = runnerOn(t, n, false, nil)
	r.Add(all)
	drain(t, r)
	between("all-to-all", all.Ended[0].Took, line((n-1)*bytes))

	ring := &RingAllReduce{Bytes: bytes}
	r = runnerOn(t, n, true, nil)
	r.Add(ring)
	drain(t, r)
	between("ring all-reduce", ring.Ended[0].Took, line(2*(n-1)*bytes/n))

	tree := &TreeAllReduce{Bytes: bytes}
	r = runnerOn(t, n, true, nil)
	r.Add(tree)
	drain(t, r)
	between("tree all-reduce", tree.Ended[0].Took, line(6*bytes+2*bytes))
}

func TestFlowList(t *testing.T) {
	ps, err := ReadFlows("2\n0 1 3 100 40870 2.000000123456\n\n3 2 3 7 0.5\n", Nodes{Hosts: 4})
	if err != nil || len(ps) != 2 || ps[0] != (Planned{2*engine.Second + 123_456, 0, 1, 40870, 100}) || ps[1].At != engine.Second/2 {
		t.Fatalf("%+v, %v", ps, err)
	}
	for text, want := range map[string]string{
		"":                            "line 1",
		"x\n":                         "line 1",
		"2\n0 1 3 100 5 1\n":          "1 flows, but the first line announces 2",
		"1\n0 1 3 5\n":                "line 2: 4 fields",
		"1\n0 9 3 100 5 1\n":          "line 2: the destination 9 is no node; hosts are 0 to 3",
		"1\n1 1 3 100 5 1\n":          "line 2: host 1 sends to itself; source and destination must differ",
		"1\n0 1 3 100 5 -1\n":         "seconds",
		"1\n0 1 3 100 x 1\n":          `"x" is not a number`,
		"1\n0 1 3 100 4294967295 1":   "more than a message",
		"1\n0 1 3 65536 5 1":          "line 2: port 65536",
		"1\n0 1 3 5 1.0000000000001x": `"1.0000000000001x" is not a number`,
	} {
		if _, err := ReadFlows(text, Nodes{Hosts: 4}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestFlowListIDs: hosts in a list may have IDs other than their numbers.
func TestFlowListIDs(t *testing.T) {
	ids := []int{1, 2, 40}
	ps, err := ReadFlows("2\n40 2 3 100 5 1\n1 40 3 6 1\n", Nodes{Hosts: 3, IDs: ids})
	if err != nil || len(ps) != 2 || ps[0] != (Planned{engine.Second, 2, 1, 5, 100}) || ps[1] != (Planned{engine.Second, 0, 2, 6, 0}) {
		t.Fatalf("%+v, %v", ps, err)
	}
	nodes := Nodes{Hosts: 4, IDs: append(ids, 41), Switches: []string{"s0", "nv5"}, Joined: func(a, b int) bool { return a+b < 4 }}
	for flow, want := range map[string]string{
		"0 2":   "line 2: the source 0 is the switch s0; hosts are 1 to 2, 40 to 41",
		"2 5":   "line 2: the destination 5 is the switch nv5; hosts are 1 to 2, 40 to 41",
		"2 6":   "line 2: the destination 6 is no node; hosts are 1 to 2, 40 to 41",
		"40 41": "line 2: from host 40 to host 41: there is no path",
	} {
		if _, err := ReadFlows("1\n"+flow+" 3 100 5 1\n", nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flow, err, want)
		}
	}
}

// FuzzFlowList: flows without error fit the simulator.
func FuzzFlowList(f *testing.F) {
	f.Add("2\n0 1 3 100 40870 2.000000123456\n\n3 2 3 7 0.5\n")
	f.Add("1\n1 0 3 65535 2147483648 9223372.\nrest")
	f.Fuzz(func(t *testing.T, text string) {
		for _, ids := range [][]int{nil, {0, 2, 3, 70}} {
			ps, err := ReadFlows(text, Nodes{Hosts: 4, IDs: ids})
			if err != nil {
				continue
			}
			for _, p := range ps {
				if p.Src == p.Dst || p.Src < 0 || p.Src > 3 || p.Dst < 0 || p.Dst > 3 || p.At < 0 || p.Bytes > MaxMessage {
					t.Fatalf("%+v", p)
				}
			}
		}
	})
}

// TestPoisson: sizes and instants have the configured distributions.
func TestPoisson(t *testing.T) {
	c, err := ReadCDF("0 0\n1000 50\n# comment\n9000 100\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Mean(); got != 250+2500 {
		t.Errorf("mean %g", got)
	}
	p := &Poisson{Hosts: 16, Rate: 100e9, Load: 0.8, Sizes: c, Until: 2 * engine.Millisecond, Seed: 1, CrossRack: 4}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	next, bytes, last := p.Source(), 0.0, engine.Time(0)
	for f, ok := next(); ok; f, ok = next() {
		bytes += float64(f.Bytes)
		if f.At < last || f.Src/4 == f.Dst/4 {
			t.Fatalf("%+v after %d", f, last)
		}
		last = f.At
	}
	if got := bytes * 8 / 0.002 / 16 / 100e9; math.Abs(got-0.8) > 0.02 {
		t.Errorf("load %.3f", got)
	}
	for _, bad := range []string{"", "5 50\n", "5 50\n4 100\n", "x\n", "5 200\n"} {
		if _, err := ReadCDF(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	if got := Fixed(77).Draw(rng); got != 77 {
		t.Errorf("fixed: %d", got)
	}
}

func TestPermutationAndIncast(t *testing.T) {
	to := map[int]bool{}
	for _, p := range Permutation(20, 5, 3) {
		if p.Src == p.Dst || to[p.Dst] {
			t.Errorf("%+v", p)
		}
		to[p.Dst] = true
	}
	if in := Incast(8, 6, 7, 5, 0); len(in) != 7 || in[6].Src != 5 {
		t.Errorf("%+v", in)
	}
}

// TestHalves: the first half of the hosts sends and has a load; the second half receives.
func TestHalves(t *testing.T) {
	to := map[int]bool{}
	for _, p := range Halves(20, 5, 3) {
		if p.Src >= 10 || p.Dst < 10 || to[p.Dst] {
			t.Errorf("%+v", p)
		}
		to[p.Dst] = true
	}
	p := &Poisson{Hosts: 16, Rate: 100e9, Load: 0.5, Sizes: Fixed(1000), Until: engine.Millisecond, Seed: 1, Halves: true}
	n := 0
	next := p.Source()
	for f, ok := next(); ok; f, ok = next() {
		if n++; f.Src >= 8 || f.Dst < 8 {
			t.Fatalf("%+v", f)
		}
	}
	if load := float64(n) * 8000 / 0.001 / 8 / 100e9; math.Abs(load-0.5) > 0.02 {
		t.Errorf("load %.3f", load)
	}
}

// TestStopWait: a share of the messages are synchronise operations. With StopWait these are ordinary messages that wait
// for all messages before them, so fewer messages end in the same time.
func TestStopWait(t *testing.T) {
	all := map[bool]int{}
	for _, wait := range []bool{false, true} {
		fenced := 0
		r := runnerOn(t, 2, true, func(f *Flow) {
			if all[wait]++; f.Fence {
				fenced++
			}
		})
		r.Add(&Stream{From: 0, To: 1, Size: 1000, Outstanding: 4, Fence: 0.3, StopWait: wait, Until: 200 * engine.Microsecond, Seed: 1})
		drain(t, r)
		if share := float64(fenced) / float64(all[wait]); all[wait] < 50 || !wait && (share < 0.2 || share > 0.4) || wait && fenced > 0 {
			t.Errorf("wait %v: %d messages, %d synchronise", wait, all[wait], fenced)
		}
	}
	if all[true] > all[false]*9/10 {
		t.Errorf("%v: nothing waits", all)
	}
}

// TestTinyLoad: the first message of a load that the clock cannot represent comes after the end.
func TestTinyLoad(t *testing.T) {
	for _, load := range []float64{1e-9, 1e-15, 1e-30, math.SmallestNonzeroFloat64} {
		p := &Poisson{Hosts: 4, Rate: 100e9, Load: load, Sizes: Fixed(1e6), Until: engine.Millisecond, Seed: 1}
		if m, ok := p.Source()(); ok {
			t.Errorf("load %g: a message at %v", load, m.At)
		}
		if q := Queries(4, 2, 1_000_000, load*100e9, engine.Millisecond, 1); len(q) > 0 {
			t.Errorf("load %g: %d messages of queries", load, len(q))
		}
	}
}

// TestQueries: a configured number of random hosts send to a random host at once, and hosts receive the load.
func TestQueries(t *testing.T) {
	bytes, senders, hosts := 0.0, map[[2]int64]map[int]bool{}, map[int]bool{}
	for _, p := range Queries(20, 5, 10_000, 40e9, 10*engine.Millisecond, 1) {
		q := [2]int64{int64(p.At), int64(p.Dst)}
		if senders[q] == nil {
			senders[q] = map[int]bool{}
		}
		if p.Src == p.Dst || senders[q][p.Src] {
			t.Fatalf("%+v", p)
		}
		senders[q][p.Src], hosts[p.Dst] = true, true
		bytes += float64(p.Bytes)
	}
	for q, s := range senders {
		if len(s) != 5 {
			t.Errorf("%v: %d senders", q, len(s))
		}
	}
	if got := bytes * 8 / 0.01 / 20 / 40e9; math.Abs(got-1) > 0.1 || len(hosts) < 20 {
		t.Errorf("load %.3f, %d hosts", got, len(hosts))
	}
}

func TestAckTimeout(t *testing.T) {
	for d, want := range map[int64]uint8{1: 1, 8192: 1, 8193: 2, 4_000_000: 10} {
		if got := AckTimeout(engine.Time(d * 1000).Duration()); got != want {
			t.Errorf("%d ns: code %d, want %d", d, got, want)
		}
	}
}

// TestEndingsInOrder: endings of all parts are sorted by time, then by the number of the message.
func TestEndingsInOrder(t *testing.T) {
	all := []ending{{f: &Flow{End: 5, ID: 3}}, {f: &Flow{End: 5, ID: 1}}, {f: &Flow{End: 4, ID: 2}}}
	slices.SortFunc(all, ending.compare)
	for i, want := range []int{2, 1, 3} {
		if got := all[i].f.ID; int(got) != want {
			t.Errorf("ending %d is of message %d, want %d", i, got, want)
		}
	}
}
