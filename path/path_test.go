package path_test

import (
	"math"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

const rtt = 16 * time.Microsecond

// ack returns the acknowledgement of psn, which used path vp.
func ack(psn uint32, vp uint32) *reorder.Feedback {
	return &reorder.Feedback{HasSACK: true, SACK: bth.MakePSN(psn), VP: vp}
}

// script drives a selector by hand.
type script struct {
	*testing.T
	sel path.Selector
	now mono.Time
	w   path.Window
}

func newScript(t *testing.T, p path.Params) *script {
	sel, err := path.New("mp-rdma", p)
	if err != nil {
		t.Fatal(err)
	}
	sel.Reset(path.Start{PSN: bth.MakePSN(0), Seed: 1})
	return &script{T: t, sel: sel, now: 1000, w: path.Window{Packets: 8}}
}

// send sends at most n packets, as the window permits, and returns their paths.
func (s *script) send(n int) (vps []uint32) {
	for len(vps) < n && s.w.Room() > 0 {
		vp, ok := s.sel.Next(s.now, s.w)
		if again, _ := s.sel.Next(s.now, s.w); again != vp {
			s.Fatal("Next is not stable")
		}
		if !ok {
			break
		}
		s.sel.OnSent(s.now, s.w)
		s.w.InFlight++
		vps = append(vps, vp)
	}
	return vps
}

// ack passes the acknowledgement of a packet that has left the network.
func (s *script) ack(psn uint32, vp uint32) int {
	s.w.InFlight--
	return s.sel.OnAck(s.now, ack(psn, vp), rtt, s.w)
}

func (s *script) want(what string, got []uint32, want ...uint32) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			s.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

// quiet disables probing, which would mix in random paths.
var quiet = path.Params{"probe_probability": 0}

// TestMPRDMAClock: IW packets take random paths, then each acknowledgement clocks out packets on its own path (3.2).
func TestMPRDMAClock(t *testing.T) {
	s := newScript(t, quiet)
	start := s.send(100)
	if len(start) != 8 {
		t.Fatalf("%d packets at the start, want a window", len(start))
	}
	seen := map[uint32]bool{}
	for _, vp := range start {
		if seen[vp] = true; vp < 0xc000 {
			t.Fatalf("port %#x", vp)
		}
	}
	if len(seen) < 7 {
		t.Errorf("only %d paths: %v", len(seen), start)
	}
	s.want("before an acknowledgement", s.send(100))
	s.ack(0, 0xc007)
	s.ack(1, 0xc009)
	s.want("two acknowledgements", s.send(100), 0xc007, 0xc009)
	s.w.Packets++ // the window has grown
	s.ack(2, 0xc005)
	s.want("a grown window", s.send(100), 0xc005, 0xc005)
	s.w.Packets-- // and shrinks
	s.ack(3, 0xc004)
	s.want("a window that is full", s.send(100))
}

// TestMPRDMAClockKeeps: acknowledgements that arrive while sending is blocked, for example by PFC, each clock out a
// packet afterwards. The ring size limits the number of remembered paths (3.2).
func TestMPRDMAClockKeeps(t *testing.T) {
	for _, n := range []int{65, 3000, 6000} {
		s := newScript(t, quiet)
		s.w.Packets = uint32(n)
		if len(s.send(n)) != n {
			t.Fatal("not all of the first window leaves")
		}
		for i := range uint32(n) {
			s.ack(i, 0xc000+uint32(i%7))
		}
		vps := s.send(n + 1)
		if len(vps) != n {
			t.Fatalf("%d acknowledgements clock out %d packets", n, len(vps))
		}
		for i, vp := range vps[:min(n, 4096)] {
			if vp != 0xc000+uint32(i%7) {
				t.Fatalf("packet %d of %d leaves by %#x", i, n, vp)
			}
		}
		if shrink := s.sel.Unused(); shrink != 0 {
			t.Errorf("%d are left", shrink)
		}
	}
}

// TestMPRDMABurst: one acknowledgement clocks out at most two packets. The rest waits for other acknowledgements or
// for half an RTT, and takes random paths (3.5, "Burst control").
func TestMPRDMABurst(t *testing.T) {
	s := newScript(t, quiet)
	s.send(100)
	s.w.Packets = 12
	s.ack(0, 0xc001)
	s.want("burst", s.send(100), 0xc001, 0xc001)
	s.ack(1, 0xc002)
	s.want("next", s.send(100), 0xc002, 0xc002)
	if d := s.sel.Deadline(); d != s.now.Add(rtt/2) {
		t.Fatalf("burst timer at %d, want half an RTT after %d", d, s.now)
	}
	s.now = s.sel.Deadline()
	s.sel.OnTimeout(s.now, s.w)
	if s.sel.Deadline() != mono.Never {
		t.Fatal("the timer fires once")
	}
	if rest := s.send(100); len(rest) != 2 || s.w.Room() != 0 {
		t.Fatalf("the timer let %d packets go, %d are left", len(rest), s.w.Room())
	}
	s.ack(2, 0xc003)
	if s.sel.Deadline() != mono.Never {
		t.Fatal("nothing is left over, the timer runs")
	}
}

// TestMPRDMAPruning: snd_ool = snd_ooh - D (3.3).
func TestMPRDMAPruning(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      *reorder.Feedback
		shrink int
	}{
		{"just within D", ack(68, 0xc001), 0},
		{"below snd_ool", ack(67, 0xc001), 1},
		{"a retransmission", &reorder.Feedback{HasSACK: true, SACK: bth.MakePSN(3), ReTx: true, VP: 0xc001}, 0},
		{"ahead", ack(101, 0xc001), 0},
		{"refused", &reorder.Feedback{HasSACK: true, SACK: bth.MakePSN(200), Refused: true, VP: 0xc001}, 0},
		{"a READ response", &reorder.Feedback{Expected: bth.MakePSN(9)}, 0},
	} {
		s := newScript(t, quiet)
		s.send(100)
		s.ack(100, 0xc00a)
		s.send(100)
		s.w.InFlight--
		if n := s.sel.OnAck(s.now, c.f, 0, s.w); n != c.shrink {
			t.Errorf("%s: the window shrinks by %d, want %d", c.name, n, c.shrink)
		}
		got := s.send(100)
		if want := 1 - c.shrink; len(got) != want {
			t.Errorf("%s: %d packets clocked out, want %d", c.name, len(got), want)
		}
		if c.f.VP != 0 && len(got) > 0 && got[0] != c.f.VP {
			t.Errorf("%s: by path %#x, want %#x", c.name, got[0], c.f.VP)
		}
		// An accepted packet that is ahead moves snd_ooh; a refused one does not.
		moved := s.sel.OnAck(s.now, ack(68, 0xc001), 0, s.w) == 1
		if want := c.name == "ahead"; moved != want {
			t.Errorf("%s: snd_ooh moved: %v", c.name, moved)
		}
	}
}

// TestMPRDMAPruningWraps moves the fast path across the wrap of the PSNs.
func TestMPRDMAPruningWraps(t *testing.T) {
	sel, _ := path.New("mp-rdma", quiet)
	sel.Reset(path.Start{PSN: bth.MakePSN(0xfffff0)})
	w := path.Window{Packets: 8}
	for _, c := range []struct {
		psn    uint32
		shrink int
	}{{0xfffff5, 0}, {20, 0}, {0xfffff4, 0}, {0xfffff3, 1}} {
		if n := sel.OnAck(1, ack(c.psn, 0xc001), 0, w); n != c.shrink {
			t.Errorf("%#x: %d, want %d", c.psn, n, c.shrink)
		}
	}
}

// TestMPRDMAUseItOrLoseIt: an acknowledgement that finds no packet to send costs one packet of the window. The
// selector forgets its path (3.5, "Path window reduction").
func TestMPRDMAUseItOrLoseIt(t *testing.T) {
	s := newScript(t, quiet)
	s.send(100)
	s.ack(0, 0xc001)
	s.ack(1, 0xc002)
	s.ack(2, 0xc003)
	s.want("one packet", s.send(1), 0xc001)
	if n := s.sel.Unused(); n != 2 {
		t.Fatalf("the window shrinks by %d, want 2", n)
	}
	if n := s.sel.Unused(); n != 0 {
		t.Fatalf("... and again by %d", n)
	}
	s.want("afterwards", s.send(1))
	// One acknowledgement may clock out two packets; sending one is enough.
	s.ack(3, 0xc004)
	s.want("one of two", s.send(1), 0xc004)
	if n := s.sel.Unused(); n != 0 {
		t.Fatalf("an acknowledgement that was used costs %d", n)
	}
}

// TestMPRDMARestart: with nothing in flight no acknowledgement arrives. After three idle RTTs, and after a timeout,
// the selector spreads a window of packets again (3.5).
func TestMPRDMARestart(t *testing.T) {
	s := newScript(t, quiet)
	s.send(100)
	s.ack(0, 0xc001)
	s.send(1)
	s.w.InFlight = 0
	s.now = s.now.Add(3 * rtt)
	if n := len(s.send(100)); n != 1 {
		t.Fatalf("after three RTTs %d packets leave, want one", n)
	}
	s.w.InFlight = 0
	s.now = s.now.Add(3*rtt + 1)
	if n := len(s.send(100)); n != 8 {
		t.Fatalf("after more than three RTTs %d packets leave, want a window", n)
	}
	s.sel.Restart()
	s.w.InFlight = 0
	if n := len(s.send(100)); n != 8 {
		t.Fatalf("after a timeout %d packets leave, want a window", n)
	}
}

// TestMPRDMAProbing: in each RTT one packet takes a new path with probability p (3.5).
func TestMPRDMAProbing(t *testing.T) {
	for _, p := range []float64{0, 0.01, 0.5, 1} {
		s := newScript(t, path.Params{"probe_probability": p})
		s.send(100)
		const rounds, perRTT = 4000, 4
		probes := 0
		for i := range uint32(rounds * perRTT) {
			s.now = s.now.Add(rtt / perRTT)
			s.ack(i, 0xc001)
			if vps := s.send(100); len(vps) != 1 {
				t.Fatalf("%v", vps)
			} else if vps[0] != 0xc001 {
				probes++
			}
		}
		want, sigma := p*rounds, math.Sqrt(p*(1-p)*rounds)
		if d := math.Abs(float64(probes) - want); d > 5*sigma+2 {
			t.Errorf("p = %v: %d probes in %d RTTs", p, probes, rounds)
		}
	}
}

// TestMPRDMASync: dt = alpha * D / (cwnd / RTT) (3.4).
func TestMPRDMASync(t *testing.T) {
	for _, c := range []struct {
		p    path.Params
		w    path.Window
		want time.Duration
	}{
		{nil, path.Window{Packets: 64, InFlight: 1}, rtt / 2},
		{nil, path.Window{Packets: 32, InFlight: 9}, rtt},
		{path.Params{"sync_alpha": 2, "delta_packets": 8}, path.Window{Packets: 32, InFlight: 9}, rtt / 2},
		{nil, path.Window{Packets: 64}, 0},
	} {
		sel, err := path.New("mp-rdma", c.p)
		if err != nil {
			t.Fatal(err)
		}
		sel.OnSent(5000, c.w)
		if at := sel.(*path.MPRDMA).SyncAt(c.w); at != mono.Time(5000).Add(c.want) {
			t.Errorf("%v %+v: %v after the last packet, want %v", c.p, c.w, at.Sub(5000), c.want)
		}
	}
}

// TestMPRDMAHostile acknowledges unused paths, and sends any number of duplicates.
func TestMPRDMAHostile(t *testing.T) {
	s := newScript(t, path.Params{"virtual_paths": 4})
	s.send(100)
	for i := range uint32(1000) {
		s.sel.OnAck(s.now, ack(i*7919, uint32(uint16(i*31))), 0, path.Window{Packets: 1 << 20})
		if vp, ok := s.sel.Next(s.now, path.Window{Packets: 1 << 20, InFlight: 1}); ok && (vp < 0xc000 || vp > 0xc003) {
			t.Fatalf("path %#x", vp)
		}
	}
	n := 0
	for w := (path.Window{Packets: 1, InFlight: 1}); n < 10_000; n++ {
		if _, ok := s.sel.Next(s.now, w); !ok {
			break
		}
		s.sel.OnSent(s.now, w)
	}
	if n == 0 || n > 2000 {
		t.Errorf("%d packets are let go by acknowledgements, want 2 for each at most", n)
	}
}

// TestMPRDMAStateIsConstant: the state is 66 bytes a connection for any number of paths (table 1).
func TestMPRDMAStateIsConstant(t *testing.T) {
	for _, n := range []float64{1, 4, 1000, 1 << 14} {
		s := newScript(t, path.Params{"virtual_paths": n})
		for i := range uint32(5000) {
			s.now = s.now.Add(rtt / 8)
			s.send(100)
			s.ack(i, 0xc000+i%uint32(n))
		}
		if f := s.sel.Footprint(); f != 26 {
			t.Errorf("%v paths: %d bytes", n, f)
		}
	}
}

func TestSingle(t *testing.T) {
	sel, err := path.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	sel.Reset(path.Start{})
	for range 3 {
		if vp, ok := sel.Next(1, path.Window{}); vp != 0 || !ok {
			t.Fatalf("%#x %v", vp, ok)
		}
		sel.OnSent(1, path.Window{})
	}
	if sel.Footprint() != 0 || sel.Deadline() != mono.Never || sel.Unused() != 0 {
		t.Error("one path needs nothing")
	}
}

func TestSpray(t *testing.T) {
	for _, random := range []float64{0, 1} {
		sel, err := path.New("spray", path.Params{"paths": 5, "random": random})
		if err != nil {
			t.Fatal(err)
		}
		sel.Reset(path.Start{Seed: 3})
		count, repeats, last := map[uint32]int{}, 0, uint32(0)
		for range 5000 {
			vp, ok := sel.Next(1, path.Window{})
			if !ok {
				t.Fatal("the clock is the window's")
			}
			if count[vp]++; vp == last {
				repeats++
			}
			last = vp
			sel.OnSent(1, path.Window{})
		}
		if len(count) != 5 {
			t.Errorf("random %v: %d paths", random, len(count))
		}
		for vp, n := range count {
			if vp < 0xc000 || vp > 0xc004 || n < 900 || n > 1100 {
				t.Errorf("random %v: %d packets by %#x", random, n, vp)
			}
		}
		if (repeats > 0) != (random == 1) {
			t.Errorf("random %v: %d repeats", random, repeats)
		}
	}
}

// TestSprayBatch: a path has batch consecutive packets, also after a reset amid a batch.
func TestSprayBatch(t *testing.T) {
	sel, err := path.New("spray", path.Params{"paths": 3, "batch": 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, packets := range []int{10, 24} {
		sel.Reset(path.Start{Seed: 3})
		var first uint32
		for i := range packets {
			vp, _ := sel.Next(1, path.Window{})
			if i == 0 {
				first = vp - 0xc000
			}
			if want := 0xc000 + (first+uint32(i/4))%3; vp != want {
				t.Errorf("packet %d has path %#x, want %#x", i, vp, want)
			}
			sel.OnSent(1, path.Window{})
		}
	}
}

func TestFactories(t *testing.T) {
	for _, name := range path.Names() {
		sel, err := path.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := path.New(name, path.Params{"no such parameter": 1}); err == nil {
			t.Errorf("%s takes any parameter", name)
		}
		sel.Reset(path.Start{Seed: 9})
		now, w := mono.Time(0), path.Window{Packets: 16, InFlight: 4}
		psn, f := bth.MakePSN(0), new(reorder.Feedback)
		if n := testing.AllocsPerRun(1000, func() {
			now = now.Add(time.Microsecond)
			*f = reorder.Feedback{HasSACK: true, SACK: psn, VP: 0xc001}
			sel.OnAck(now, f, rtt, w)
			if _, ok := sel.Next(now, w); ok {
				sel.OnSent(now, w)
			}
			sel.OnTimeout(now, w)
			sel.Unused()
			psn = psn.Next()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for _, p := range []path.Params{{"delta_packets": 0}, {"burst_packets": 300}, {"virtual_paths": 0.5}, {"probe_probability": 2}} {
		if _, err := path.New("mp-rdma", p); err == nil {
			t.Errorf("%v is possible", p)
		}
	}
	if _, err := path.New("spray", path.Params{"paths": 0}); err == nil {
		t.Error("no paths are possible")
	}
	if _, err := path.New("ecmp", nil); err == nil {
		t.Error("an unknown selector is possible")
	}
}

// TestSameSeedSamePaths: the same seed reproduces the choices, another seed changes them.
func TestSameSeedSamePaths(t *testing.T) {
	run := func(seed uint64) (vps []uint32) {
		sel, _ := path.New("mp-rdma", nil)
		sel.Reset(path.Start{Seed: seed})
		for range 50 {
			w := path.Window{Packets: 64, InFlight: uint32(len(vps))}
			vp, _ := sel.Next(1, w)
			sel.OnSent(1, w)
			vps = append(vps, vp)
		}
		return vps
	}
	same, other := 0, run(2)
	for i, vp := range run(1) {
		if run(1)[i] != vp {
			t.Fatal("another path with the same seed")
		}
		if other[i] == vp {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 50 paths are the same with another seed", same)
	}
}
