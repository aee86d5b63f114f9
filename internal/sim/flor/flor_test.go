package flor

import (
	"testing"

	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// The two hosts of the paper's 7.3, with 100 Gb/s and a base round trip of 50 us. The links contribute 48 us.
var (
	wires = fabric.Wires{HostRate: 100e9, Delay: 12 * engine.Microsecond}
	bdp   = 625_000.0
	store = fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 64 << 20}}
)

const (
	messageBytes = 1 << 20
	messages     = 60
	depth        = 8
)

func lose(n *fabric.Network, p float64) {
	for i := range n.Links() {
		if l := &n.Links()[i]; l.Name == "s0-h1" {
			l.Lose(p)
		}
	}
}

// cluster returns the hosts of a graph.
func cluster(t testing.TB, g *fabric.Graph, loss float64) (*engine.Engine, *nic.Cluster) {
	t.Helper()
	eng := &engine.Engine{}
	k, err := nic.NewCluster(eng, nic.Config{MTU: 1000, Classes: nic.Classes{Ack: 6, CNP: 6}, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(eng, fabric.Config{Graph: g, Seed: 1, Owner: o, Switch: func(int, int) fabric.SwitchConfig { return store }})
	}})
	if err != nil {
		t.Fatal(err)
	}
	lose(k.Network(), loss)
	return eng, k
}

// fabricOf creates engines on the NICs.
func fabricOf(t testing.TB, k *nic.Cluster, c flor.Config, user func(*Host) flor.User) *Fabric {
	t.Helper()
	maker := profile.NewMaker(profile.Link{Rate: 100e9, RTT: 50_000})
	f, err := New(k, Config{Engine: c, Memory: 64 << 20, AckTraffic: 6, User: user,
		QP: nic.QPConfig{Timeout: 8, MaxUnacked: 4096, Profile: func(int) (qp.Profile, error) { return maker.New("rc", profile.Spec{}) }}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// begin makes one of two hosts send messages to the other.
func begin(t testing.TB, loss float64, s *Stream, c flor.Config) (*engine.Engine, *nic.Cluster, *Fabric) {
	t.Helper()
	eng, k := cluster(t, fabric.Star(wires, 2), loss)
	f := fabricOf(t, k, c, s.User)
	x, _, err := f.Connect(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(f.Host(0), x); err != nil {
		t.Fatal(err)
	}
	return eng, k, f
}

// finish waits for the last message.
func finish(t testing.TB, eng *engine.Engine, s *Stream, f *Fabric) {
	t.Helper()
	eng.Run(2 * engine.Second)
	if s.Delivered != s.Count || s.Failed != 0 {
		t.Fatalf("%d of %d messages, %d failed; %+v", s.Delivered, s.Count, s.Failed, f.Host(0).Counters())
	}
	if err := f.k.Check(); err != nil {
		t.Fatal(err)
	}
}

// stream returns the goodput of messages from one host to the other by Flor, in Gb/s.
func stream(t testing.TB, loss float64) float64 {
	t.Helper()
	s := &Stream{Bytes: messageBytes, Count: messages, Outstanding: depth}
	eng, _, f := begin(t, loss, s, fixed())
	finish(t, eng, s, f)
	return float64(s.Count*s.Bytes) * 8 / float64(s.Ended)
}

// plain runs the same messages by WRITEs of plain RC.
func plain(t testing.TB, loss float64) float64 {
	t.Helper()
	app := &writes{}
	s, err := sim.New(sim.Config{Graph: fabric.Star(wires, 2), Seed: 1, Switch: func(int, int) fabric.SwitchConfig { return store },
		Profile: "rc", Persistent: true, Apps: []workload.App{app}})
	if err != nil {
		t.Fatal(err)
	}
	lose(s.Cluster().Network(), loss)
	if _, err := s.Run(); err != nil {
		t.Fatal(err)
	}
	return float64(messages*messageBytes) * 8 / (float64(app.ended) / 1000)
}

// writes keeps a number of WRITEs outstanding.
type writes struct {
	begun int
	ended engine.Time
}

func (w *writes) Begin(now engine.Time, r *workload.Runner) {
	for range depth {
		w.send(r)
	}
}

func (w *writes) send(r *workload.Runner) {
	if w.begun < messages {
		w.begun++
		r.Send(workload.Flow{Src: 0, Dst: 1, Bytes: messageBytes, App: w})
	}
}

func (w *writes) Done(now engine.Time, r *workload.Runner, _ *workload.Flow) {
	w.ended = now
	w.send(r)
}

func (w *writes) Delivered(engine.Time, *workload.Runner, *workload.Flow) {}

// fixed returns a fixed window of three times the path's capacity. 7.3 has no congestion control, so loss does not slow
// the sender down.
func fixed() flor.Config {
	return flor.Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 3 * bdp}}
}

// TestLoss is figure 7. With UC, Flor keeps its throughput under packet loss; up to one in 4096, loss has no effect.
// The throughput of plain RC, which retransmits everything from the lost packet on, collapses. It does so later than
// the paper's NICs, because our NICs need one round trip to go back.
func TestLoss(t *testing.T) {
	ours := stream(t, 0)
	rc := plain(t, 0)
	t.Logf("no loss: Flor %.1f Gb/s, RC %.1f Gb/s", ours, rc)
	if ours < 0.95*rc {
		t.Errorf("without loss Flor has %.1f Gb/s, RC %.1f", ours, rc)
	}
	for _, c := range []struct {
		one     float64 // one packet lost in so many
		atLeast float64 // relative to the goodput without loss
		ahead   float64 // relative to RC
	}{{16384, 0.97, 1}, {4096, 0.95, 1.05}, {1024, 0.9, 1.3}, {256, 0.75, 2}} {
		o := stream(t, 1/c.one)
		r := plain(t, 1/c.one)
		t.Logf("1/%.0f: Flor %.1f Gb/s, %.2f of it; RC %.1f, %.2f of it", c.one, o, o/ours, r, r/rc)
		if o < c.atLeast*ours || o < c.ahead*r {
			t.Errorf("1/%.0f: Flor has %.1f Gb/s, RC %.1f", c.one, o, r)
		}
	}
}

// TestLinkFails: with RC and retry_cnt 2 all queue pairs of a connection fail while a link is down for 20 ms.
// Reconnected queue pairs retransmit the uncompleted WQEs, and each message arrives once (Flor 6).
func TestLinkFails(t *testing.T) {
	s := &Stream{Bytes: messageBytes, Count: messages, Outstanding: depth}
	c := fixed()
	c.Hardware = true
	eng, _, f := begin(t, 0, s, c)
	links, err := f.k.Network().Named("s0-h1")
	if err != nil {
		t.Fatal(err)
	}
	link := links[0]
	eng.Run(2 * engine.Millisecond)
	link.Fail(true)
	eng.Run(22 * engine.Millisecond)
	link.Fail(false)
	finish(t, eng, s, f)
	if n := f.Host(0).Counters().Switches; n < 3 {
		t.Errorf("%d queue pairs were left", n)
	}
}

// TestTwoSenders: with Flor's own congestion control two hosts share the link of a third one. Its queue is at most the
// link's capacity in the target round trip of 50 us (7.1).
func TestTwoSenders(t *testing.T) {
	near := fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}
	eng, k := cluster(t, fabric.Star(near, 3), 0)
	var streams [2]Stream
	users := map[int]*Stream{0: &streams[0], 1: &streams[1]}
	both := &Stream{} // belongs to the receiver: both streams arrive there
	f := fabricOf(t, k, flor.Config{}, func(h *Host) flor.User {
		if s := users[h.Num()]; s != nil {
			return s.User(h)
		}
		return both.User(h)
	})
	for i := range streams {
		streams[i] = Stream{Bytes: messageBytes, Count: 1 << 20, Outstanding: depth}
		x, _, err := f.Connect(i, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := streams[i].Begin(f.Host(i), x); err != nil {
			t.Fatal(err)
		}
	}
	eng.Run(20 * engine.Millisecond)
	at := [2]int{streams[0].begun, streams[1].begun}
	eng.Run(40 * engine.Millisecond)
	a, b := float64(streams[0].begun-at[0]), float64(streams[1].begun-at[1])
	goodput := (a + b) * messageBytes * 8 / 20e6
	queue := int64(0)
	for i := range 3 {
		st, _, _ := k.Network().Switches()[0].Port(i)
		queue = max(queue, st.Peak)
	}
	t.Logf("%.0f and %.0f messages, %.1f Gb/s, longest queue %d KB", a, b, goodput, queue>>10)
	if goodput < 75 || a < 0.7*b || b < 0.7*a || queue > 625_000 {
		t.Errorf("%.1f Gb/s, %.0f and %.0f messages, longest queue %d bytes", goodput, a, b, queue)
	}
}
