package path_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// evs is a selector under test, with a clock.
type evs struct {
	*path.MRC
	now mono.Time
}

func newEVs(tb fataler, p path.Params) *evs {
	s, err := path.New("mrc", p)
	if err != nil {
		tb.Fatal(err)
	}
	s.Reset(path.Start{Seed: 3})
	return &evs{MRC: s.(*path.MRC)}
}

// send sends n packets and returns their EVs.
func (e *evs) send(n int) (out []int) {
	for range n {
		vp, _ := e.Next(e.now, path.Window{})
		if again, _ := e.Next(e.now, path.Window{}); again != vp {
			panic("the result of Next has changed")
		}
		e.OnSent(e.now, path.Window{})
		port, label := bth.SplitEntropy(vp)
		if label != uint32(port) {
			panic("flow label")
		}
		out = append(out, int(port)-0xc000)
	}
	return out
}

// uses returns how often n packets use each EV.
func (e *evs) uses(n int) map[int]int {
	m := map[int]int{}
	for _, i := range e.send(n) {
		m[i]++
	}
	return m
}

// sack reports a packet of EV i. Receivers of IPv4 echo the source port only.
func (e *evs) sack(i int, f reorder.Feedback) {
	f.VP = uint32(0xc000 + i)
	e.OnAck(e.now, &f, 0, path.Window{})
}

// lose loses a packet of each EV of the list.
func (e *evs) lose(list ...int) {
	for _, i := range list {
		e.Lost(e.now, uint16(0xc000+i))
	}
}

// round runs a round of probes, of which the EVs of the list are answered. It returns the EVs probed.
func (e *evs) round(answered ...int) (probed []int) {
	if e.ProbesDue() == mono.Never {
		return nil
	}
	e.now = max(e.now, e.ProbesDue())
	e.BeginProbes(e.now)
	for e.ProbeWaits() {
		ev, id, ok := e.NextProbe()
		i := int(ev&0xffff) - 0xc000
		if !ok || id>>15 != 0 {
			panic("NextProbe")
		}
		probed = append(probed, i)
		for _, a := range answered {
			if a == i {
				e.Answered(id)
			}
		}
	}
	if _, _, ok := e.NextProbe(); ok {
		panic("NextProbe without a probe")
	}
	return probed
}

func (e *evs) want(t *testing.T, what string, i int, s path.EVState, active bool) {
	t.Helper()
	if got, in := e.State(i); got != s || in != active {
		t.Errorf("%s: EV %d is in state %d, active %v, want %d, %v", what, i, got, in, s, active)
	}
}

// TestMRCRotation: each rotation uses each active EV once, in another order. Batches take turns.
func TestMRCRotation(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 16, "ev_active": 12})
	var last string
	for range 5 {
		round := e.send(12)
		order := fmt.Sprint(round)
		seen := map[int]bool{}
		for _, i := range round {
			seen[i] = true
		}
		if len(seen) != 12 || order == last {
			t.Errorf("rotation %v after %v", order, last)
		}
		last = order
	}
	e = newEVs(t, path.Params{"ev_count": 4, "ev_active": 4, "batch": 3})
	sent := e.send(12)
	for i := 0; i < 12; i += 3 {
		if sent[i] != sent[i+1] || sent[i] != sent[i+2] || i > 0 && sent[i] == sent[i-1] {
			t.Errorf("batches of 3: %v", sent)
		}
	}
	e.send(1)
	cur := e.send(1)[0]
	e.sack(cur, reorder.Feedback{ECE: true})
	if next := e.send(1)[0]; next == cur {
		t.Error("a batch continues on an EV that is to be skipped")
	}
}

// TestMRCSkip: a marked EV misses one turn. Each packet passes at most one EV in state SKIP. If all are in that state, they are
// used all the same.
func TestMRCSkip(t *testing.T) {
	const n = 8
	e := newEVs(t, path.Params{"ev_count": n, "ev_active": n, "ev_min_active": 1})
	e.send(n)
	e.sack(3, reorder.Feedback{ECE: true})
	e.want(t, "marked", 3, path.EVSkip, true)
	if u := e.uses(n - 1); u[3] != 0 || len(u) != n-1 {
		t.Errorf("the rotation after the mark: %v", u)
	}
	e.want(t, "after a rotation", 3, path.EVGood, true)
	if u := e.uses(n); u[3] != 1 {
		t.Errorf("the next rotation: %v", u)
	}
	e.sack(4, reorder.Feedback{Refused: true, Receiver: ccalgo.Receiver{Reason: uint8(bth.MRCTrimmed)}})
	e.want(t, "trimmed", 4, path.EVSkip, true)
	for _, r := range []bth.MRCReason{bth.MRCTrimmedLastHop, bth.MRCNoResource, bth.MRCNoBitmap} {
		e.sack(5, reorder.Feedback{Refused: true, Receiver: ccalgo.Receiver{Reason: uint8(r)}})
		e.want(t, r.String(), 5, path.EVGood, true)
	}
	for i := range n {
		e.sack(i, reorder.Feedback{ECE: true})
	}
	skips := func() (k int) {
		for i := range n {
			if s, _ := e.State(i); s == path.EVSkip {
				k++
			}
		}
		return k
	}
	for k := n; k > 0; k-- {
		if got := skips(); got != k {
			t.Fatalf("%d EVs in state SKIP, want %d", got, k)
		}
		e.send(1)
	}
	e.send(2 * n)
	e.sack(77, reorder.Feedback{ECE: true})
	e.OnAck(e.now, &reorder.Feedback{ECE: true, VP: 7}, 0, path.Window{})
	if skips() != 0 {
		t.Error("an EV of another sender counts")
	}
}

// TestMRCBad: lost packets and the receiver's request make an EV ASSUMED_BAD. A backup EV of the same plane replaces it. At
// least ev_min_active remain.
func TestMRCBad(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 12, "ev_active": 8, "planes": 2, "ev_min_active": 3})
	e.lose(0)
	e.sack(1, reorder.Feedback{Remove: true})
	e.want(t, "lost", 0, path.EVAssumedBad, false)
	e.want(t, "removed", 1, path.EVAssumedBad, false)
	e.want(t, "backup of plane 0", 8, path.EVGood, true)
	e.want(t, "backup of plane 1", 9, path.EVGood, true)
	if u := e.uses(80); u[0]+u[1] != 0 || len(u) != 8 {
		t.Errorf("uses %v", u)
	}
	e.lose(2, 4, 6, 8, 10)
	e.want(t, "plane 0 has no other", 10, path.EVAssumedBad, false)
	if u := e.uses(80); len(u) != 4 {
		t.Errorf("EVs of plane 1 %v", u)
	}
	e.lose(3, 5, 7, 9, 11)
	if u := e.uses(60); len(u) != 3 {
		t.Errorf("%v, want ev_min_active", u)
	}
	e.sack(0, reorder.Feedback{ECE: true})
	e.want(t, "marked late", 0, path.EVAssumedBad, false)
}

// TestMRCProbes: consecutive answers make an EV GOOD again; a missing one begins anew. It returns to the active EVs.
func TestMRCProbes(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 4, "ev_active": 4, "ev_min_active": 1, "ev_probe_answers": 3, "ev_probe_interval_us": 50})
	if e.ProbesDue() != mono.Never || e.ProbeWaits() {
		t.Error("probes of good EVs")
	}
	e.now = 1000
	e.lose(1, 2)
	if e.ProbesDue() != e.now.Add(50*time.Microsecond) {
		t.Errorf("probes are due at %v", e.ProbesDue())
	}
	e.BeginProbes(e.now)
	if e.ProbeWaits() {
		t.Error("early probes")
	}
	for _, answered := range [][]int{{1, 2}, {1, 2}, {2}, {1, 2}, {1}} {
		e.round(answered...)
	}
	e.want(t, "an answer is missing", 1, path.EVAssumedBad, false)
	e.want(t, "three answers", 2, path.EVGood, true)
	if p := e.round(1); len(p) != 1 || p[0] != 1 {
		t.Errorf("probed %v", p)
	}
	e.want(t, "three answers at last", 1, path.EVGood, true)
	if e.ProbesDue() != mono.Never {
		t.Error("probes without a bad EV")
	}
	if u := e.uses(8); len(u) != 4 {
		t.Errorf("uses %v", u)
	}
	e.lose(3)
	e.now = e.ProbesDue()
	e.BeginProbes(e.now)
	_, id, _ := e.NextProbe()
	for _, bad := range []uint16{id ^ 1, id ^ 1<<8, id | 9, 0x7fff} {
		e.Answered(bad)
	}
	for range 3 {
		e.Answered(id) // the copies of an answer count once
	}
	e.want(t, "forged answers and copies", 3, path.EVAssumedBad, false)
	e = newEVs(t, path.Params{"ev_count": 4, "ev_active": 4, "ev_min_active": 1, "ev_probe_answers": 1})
	e.lose(3)
	e.now = e.ProbesDue()
	e.BeginProbes(e.now)
	_, id, _ = e.NextProbe()
	e.Answered(id ^ 1<<8)
	e.want(t, "an answer of another round", 3, path.EVAssumedBad, false)
	e.Answered(id)
	e.want(t, "an answer", 3, path.EVGood, true)
}

// TestMRCLateProbes: answers that come after later rounds have begun count, and rounds become as long as the round trip.
func TestMRCLateProbes(t *testing.T) {
	const answers = 8
	for _, trip := range []time.Duration{100 * time.Microsecond, 900 * time.Microsecond, 5500 * time.Microsecond, 60 * time.Millisecond} {
		e := newEVs(t, path.Params{"ev_count": 4, "ev_active": 4, "ev_min_active": 1, "ev_probe_answers": answers, "ev_probe_interval_us": 1000})
		e.lose(1)
		type sent struct {
			at mono.Time
			id uint16
		}
		var flying []sent
		probes, begun := 0, e.now
		for state, _ := e.State(1); state == path.EVAssumedBad && probes < 1000; state, _ = e.State(1) {
			e.now = e.ProbesDue()
			if len(flying) > 0 && flying[0].at.Add(trip) <= e.now {
				e.now = flying[0].at.Add(trip)
				e.Answered(flying[0].id)
				flying = flying[1:]
				continue
			}
			e.BeginProbes(e.now)
			if _, id, ok := e.NextProbe(); ok {
				flying = append(flying, sent{e.now, id})
				probes++
			}
		}
		took := e.now.Sub(begun)
		t.Logf("round trip %v: %d probes in %v", trip, probes, took)
		// The first round trip sends at most one probe in each interval, the others one or two.
		if most := answers + int(min(trip/time.Millisecond, 64)) + 4; probes > most {
			t.Errorf("round trip %v: %d probes, want at most %d", trip, probes, most)
		}
		e.lose(1)
		if wait := e.ProbesDue().Sub(e.now); wait < trip/4 {
			t.Errorf("round trip %v: the next round waits %v", trip, wait)
		}
	}
}

// TestMRCDenied: EVs that are DENIED are never used, marked, or probed.
func TestMRCDenied(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 6, "ev_active": 4, "ev_denied": 0b100010, "ev_min_active": 1, "ev_probe_answers": 1})
	for range 3 {
		e.lose(0, 1, 5)
		e.sack(1, reorder.Feedback{ECE: true, Remove: true})
		e.SetPorts(e.now, 0)
		for _, i := range e.round(0, 1, 2, 3, 4, 5) {
			if i == 1 || i == 5 {
				t.Errorf("EV %d is probed", i)
			}
		}
		e.want(t, "denied", 1, path.EVDenied, false)
		if u := e.uses(50); u[1]+u[5] != 0 {
			t.Errorf("uses %v", u)
		}
	}
	for _, p := range []path.Params{{"ev_count": 2, "ev_active": 2, "ev_denied": 3}, {"ev_count": 2, "planes": 3}, {"ev_active": 200}, {"ev_denied": 0.5}} {
		if _, err := path.New("mrc", p); err == nil {
			t.Errorf("%v: no error", p)
		}
	}
}

// TestMRCPorts: a failed port removes its plane, and no EV of another plane takes its place. The last EV remains.
func TestMRCPorts(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 16, "ev_active": 8, "planes": 4, "ev_probe_answers": 1})
	e.SetPorts(e.now, 0b1101)
	u := e.uses(60)
	for i := range u {
		if i%4 == 1 {
			t.Errorf("EV %d of the failed plane is used", i)
		}
	}
	if len(u) != 6 {
		t.Errorf("%d EVs are active, want 6: %v", len(u), u)
	}
	e.round(1, 5, 9, 13)
	u = e.uses(80)
	if n := u[1] + u[5] + u[9] + u[13]; len(u) != 8 || n < 20-2 || n > 20+2 {
		t.Errorf("after the answers: %v", u)
	}
	e.SetPorts(e.now, 0)
	if u := e.uses(10); len(u) != 1 {
		t.Errorf("without ports: %v", u)
	}
	for ev, plane := range map[uint32]int{0xc000: 0, 0xc001c001: 1, 0xc007: 3} {
		if got := path.EVPlane(ev, 4); got != plane {
			t.Errorf("plane of %#x is %d, want %d", ev, got, plane)
		}
	}
	for n := 1; n <= path.MaxPlanes; n++ { // EV i belongs to plane i modulo n, whatever divides the first port
		for i := range uint32(path.MaxEVs) {
			if got := path.EVPlane(0xc000+i, n); got != int(i)%n {
				t.Fatalf("EV %d of %d planes is in plane %d", i, n, got)
			}
			if got := path.EVPath(0xc000+i, n); got != i/uint32(n) {
				t.Fatalf("EV %d of %d planes names path %d", i, n, got)
			}
		}
	}
}

// TestMRCAvoid: a retransmission leaves on another EV than the packet before.
func TestMRCAvoid(t *testing.T) {
	e := newEVs(t, path.Params{"ev_count": 3, "ev_active": 3})
	for range 100 {
		last := e.send(1)[0]
		e.Avoid(uint16(0xc000 + last))
		if e.send(1)[0] == last {
			t.Fatalf("EV %d is used again", last)
		}
	}
	e = newEVs(t, path.Params{"ev_count": 1, "ev_active": 1, "ev_min_active": 1})
	e.Avoid(0xc000)
	if e.send(1)[0] != 0 {
		t.Error("the only EV")
	}
}

// TestMRCModel does anything, and checks that the active EVs are usable and balanced.
func TestMRCModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		planes := rapid.IntRange(1, 4).Draw(t, "planes")
		n := rapid.IntRange(planes, 20).Draw(t, "EVs")
		active := rapid.IntRange(planes, n).Draw(t, "active")
		least := rapid.IntRange(1, active).Draw(t, "least")
		e := newEVs(t, path.Params{"ev_count": float64(n), "ev_active": float64(active), "ev_min_active": float64(least), "planes": float64(planes),
			"batch": float64(rapid.IntRange(1, 3).Draw(t, "batch")), "ev_probe_answers": 2})
		ev := rapid.IntRange(0, n-1)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				e.lose(ev.Draw(t, "EV"))
			case 1:
				e.sack(ev.Draw(t, "EV"), reorder.Feedback{ECE: true})
			case 2:
				e.sack(ev.Draw(t, "EV"), reorder.Feedback{Remove: true})
			case 3:
				e.Avoid(uint16(0xc000 + ev.Draw(t, "EV")))
			case 4:
				e.SetPorts(e.now, uint32(rapid.IntRange(0, 15).Draw(t, "mask")))
			case 5:
				e.round(rapid.SliceOf(ev).Draw(t, "answered")...)
			default:
				for _, i := range e.send(rapid.IntRange(1, 30).Draw(t, "packets")) {
					if s, in := e.State(i); !in || s > path.EVSkip {
						t.Fatalf("EV %d in state %d is used", i, s)
					}
				}
			}
			bad, in := 0, make([]int, planes)
			for i := range n {
				s, a := e.State(i)
				if s == path.EVAssumedBad {
					bad++
				}
				if a {
					in[i%planes]++
				}
			}
			if (e.ProbesDue() != mono.Never) != (bad > 0) {
				t.Fatalf("%d bad EVs, probes are due at %v", bad, e.ProbesDue())
			}
			for _, k := range in {
				if k > (active+planes-1)/planes {
					t.Fatalf("active EVs by plane: %v of %d", in, active)
				}
			}
		}
	})
}

// TestMRCSharedProbes: queue pairs to one peer share a rate of probes. Rounds of one alone have the interval.
func TestMRCSharedProbes(t *testing.T) {
	const interval, gap = 100 * time.Microsecond, 5 * time.Microsecond
	e := newEVs(t, path.Params{"ev_count": 4, "ev_active": 4, "ev_min_active": 1, "ev_probe_interval_us": 100})
	pairs := 1
	e.ShareProbes(&pairs)
	e.lose(1, 2)
	for _, c := range []struct {
		pairs int
		want  time.Duration
	}{{1, interval}, {2, interval}, {50, 2 * 50 * gap}, {1000, 2 * 1000 * gap}, {1, interval}} {
		pairs = c.pairs
		e.now = e.ProbesDue()
		e.BeginProbes(e.now)
		if d := e.ProbesDue().Sub(e.now); d != c.want {
			t.Errorf("%d queue pairs: the next round waits %v, want %v", c.pairs, d, c.want)
		}
	}
	pairs = 1000
	e.ShareProbes(nil)
	e.now = e.ProbesDue()
	if e.BeginProbes(e.now); e.ProbesDue().Sub(e.now) != interval {
		t.Errorf("not connected: the next round waits %v", e.ProbesDue().Sub(e.now))
	}
}
