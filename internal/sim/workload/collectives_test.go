package workload

import (
	"slices"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// collect runs an application on hosts of a switch and returns its messages in the order in which they ended.
func collect(t *testing.T, hosts int, a App) (flows []Flow) {
	t.Helper()
	r := runnerOn(t, hosts, true, func(f *Flow) { flows = append(flows, *f) })
	r.Add(a)
	drain(t, r)
	return flows
}

// TestRanks: only the ranks of a collective send, each to its neighbour in the order of ranks.
func TestRanks(t *testing.T) {
	ring := &RingAllReduce{Collective: Collective{Ranks: []int{5, 1, 6}}, Bytes: 30_000}
	got := map[[2]int]int{}
	for _, f := range collect(t, 8, ring) {
		if got[[2]int{f.Src, f.Dst}]++; f.Bytes != 10_000 {
			t.Errorf("%+v", f)
		}
	}
	if len(got) != 3 || got[[2]int{5, 1}] != 4 || got[[2]int{1, 6}] != 4 || got[[2]int{6, 5}] != 4 {
		t.Errorf("ring: %v", got)
	}
	if rep := ring.Report(); rep.Ranks != 3 || rep.Sent != 40_000 || len(rep.Ended) != 1 {
		t.Errorf("ring: %+v", rep)
	}

	all := &AllToAll{Collective: Collective{Ranks: []int{5, 1, 6}}, Bytes: 10_000, Outstanding: 2}
	pairs := map[[2]int]int{}
	for _, f := range collect(t, 8, all) {
		pairs[[2]int{f.Src, f.Dst}]++
	}
	if len(pairs) != 6 || pairs[[2]int{6, 1}] != 1 {
		t.Errorf("all-to-all: %v", pairs)
	}
	if rep := all.Report(); rep.Sent != 20_000 || rep.Bytes != 30_000 || len(rep.Ended) != 1 {
		t.Errorf("all-to-all: %+v", rep)
	}

	tree := &TreeAllReduce{Collective: Collective{Ranks: []int{5, 1, 6, 2}}, Bytes: 1000}
	edges := map[[2]int]bool{}
	for _, f := range collect(t, 8, tree) {
		edges[[2]int{f.Src, f.Dst}] = true
	}
	if len(edges) != 6 || !edges[[2]int{2, 1}] || !edges[[2]int{5, 6}] {
		t.Errorf("tree: %v", edges)
	}
	if rep := tree.Report(); rep.Sent != 1500 || len(rep.Ended) != 1 {
		t.Errorf("tree: %+v", rep)
	}
}

// TestShared: several connections share each message, and a step waits for all its parts.
func TestShared(t *testing.T) {
	for _, a := range []App{
		&RingAllReduce{Collective: Collective{QPs: 3}, Bytes: 40_000}, &AllToAll{Collective: Collective{QPs: 3}, Bytes: 10_000},
		&TreeAllReduce{Collective: Collective{QPs: 3}, Bytes: 10_000},
	} {
		sizes := map[int]map[uint32]bool{}
		sum := uint64(0)
		var first engine.Time
		for _, f := range collect(t, 4, a) {
			if sizes[f.Lane] == nil {
				sizes[f.Lane] = map[uint32]bool{}
			}
			sizes[f.Lane][f.Bytes] = true
			sum += uint64(f.Bytes)
			first = max(first, f.Start)
		}
		if len(sizes) != 3 || !sizes[0][3333] || !sizes[1][3333] || !sizes[2][3334] || first == 0 {
			t.Errorf("%T: %v, the last began at %d", a, sizes, first)
		}
		if rep := a.(Reporter).Report(); len(rep.Ended) != 1 {
			t.Errorf("%+v", rep)
		}
	}
	if got := collect(t, 4, &RingAllReduce{Collective: Collective{QPs: 9}, Bytes: 8}); len(got) != 4*6*2 || got[0].Bytes != 1 {
		t.Errorf("%d messages of %d bytes", len(got), got[0].Bytes)
	}
}

// TestStepsInOrder: a part of a later step that arrives early is passed on only after its predecessors.
func TestStepsInOrder(t *testing.T) {
	a := &RingAllReduce{Collective: Collective{QPs: 2}, Bytes: 40_000}
	var begun []Flow
	r := runnerOn(t, 4, true, nil)
	a.start(0, r)
	r.cfg.Opened = func(_, _ *nic.QP, f *Flow) { begun = append(begun, *f) }
	a.round(r)
	begun = nil
	r.cfg.Persistent, r.conns = false, map[pair]carrier{}
	deliver := func(step uint64) { a.Delivered(0, r, &Flow{Dst: 2, Tag: step}) }
	for _, c := range []struct {
		step  uint64
		steps []uint64 // passed on
	}{{1, nil}, {1, nil}, {0, nil}, {0, []uint64{1, 1, 2, 2}}, {2, nil}, {2, []uint64{3, 3}}} {
		begun = nil
		deliver(c.step)
		var got []uint64
		for _, f := range begun {
			got = append(got, f.Tag)
		}
		if !slices.Equal(got, c.steps) {
			t.Errorf("after a part of step %d, steps %v begin, not %v", c.step, got, c.steps)
		}
	}
}

// TestRounds: operations follow each other, each of them complete.
func TestRounds(t *testing.T) {
	for _, a := range []App{
		&RingAllReduce{Collective: Collective{Rounds: 3}, Bytes: 40_000}, &AllToAll{Collective: Collective{Rounds: 3}, Bytes: 10_000, Outstanding: 3},
		&TreeAllReduce{Collective: Collective{Rounds: 3}, Bytes: 10_000},
	} {
		flows := collect(t, 4, a)
		rounds := a.(Reporter).Report().Ended
		if len(rounds) != 3 || len(flows)%3 != 0 {
			t.Fatalf("%T: %d messages, %+v", a, len(flows), rounds)
		}
		for i, x := range rounds[1:] {
			if before := rounds[i]; x.Start != before.Start+before.Took || x.Took <= 0 {
				t.Errorf("%T: %+v after %+v", a, x, before)
			}
		}
		n := 0
		for _, f := range flows {
			if f.Start >= rounds[2].Start {
				n++
			}
		}
		if n != len(flows)/3 {
			t.Errorf("%T: %d of %d messages in the last of 3 operations", a, n, len(flows))
		}
	}
}

// TestFailedCollective: an operation with a failed message does not end.
func TestFailedCollective(t *testing.T) {
	a := &AllToAll{Bytes: 1000, Outstanding: 2}
	r := runnerOn(t, 3, true, nil)
	a.start(0, r)
	a.round(r)
	a.Done(0, r, &Flow{Src: 0, Tag: 1, Failed: true})
	for _, tag := range []uint64{2, 3, 5, 6, 7} {
		a.Done(0, r, &Flow{Src: int(tag / 3), Tag: tag})
	}
	if len(a.Ended) != 0 {
		t.Errorf("%+v", a.Ended)
	}
}

// TestNotifying: where the transport has no SEND, collectives and RPCs use WRITEs with immediate data.
func TestNotifying(t *testing.T) {
	for name, want := range map[string]Verb{"irn": Send, "mrc": WriteImm} {
		for _, a := range []App{
			&RPC{Client: 0, Server: 1, Request: 100, Response: 5000, Calls: 5}, &RingAllReduce{Bytes: 9000, Collective: Collective{QPs: 2}}, &TreeAllReduce{Bytes: 9000},
		} {
			n := 0
			r := runnerOn(t, 3, true, func(f *Flow) {
				if n++; f.Verb != want {
					t.Errorf("%s: %T uses verb %d, not %d", name, a, f.Verb, want)
				}
			})
			makers := profile.NewMaker(profile.Link{Rate: 100e9, RTT: 5000, MTU: 1000})
			r.cfg.QP.Profile = func(int) (qp.Profile, error) { return makers.New(name, profile.Spec{}) }
			r.cfg.QP.MaxUnacked = 256
			r.cfg.Supports = func(op qp.WROpcode) bool { return profile.Supports(name, op) }
			r.Add(a)
			if drain(t, r); n < 4 {
				t.Errorf("%s: %T has %d messages", name, a, n)
			}
		}
	}
	if r := runnerOn(t, 2, true, nil); r.Notifying() != Send {
		t.Error("without restrictions, SEND is the verb")
	}
}
