package flor

import (
	"slices"
	"testing"
	"time"

	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
)

// call runs calls between two or more hosts until an instant.
func call(t *testing.T, c *Calls, until engine.Time, faults map[string][]string) {
	t.Helper()
	hosts := 2
	for _, p := range c.Pairs {
		hosts = max(hosts, p.Client+1, p.Server+1)
	}
	s, err := sim.New(sim.Config{Graph: fabric.Star(fabric.Wires{HostRate: 50e9, Delay: 2 * engine.Microsecond}, hosts), Seed: 1,
		Switch:  func(int, int) fabric.SwitchConfig { return store },
		Classes: nic.Classes{Ack: 7, CNP: 7}, QP: nic.QPConfig{Timeout: 7},
		Profile: "rc", Persistent: true, Apps: []workload.App{c}, Until: until, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.Cluster().Check(); err != nil {
		t.Fatal(err)
	}
}

var one = []Pair{{0, 1}}

// TestCalls: calls of all carriers get answers at the rate of the link, and each client has its share.
func TestCalls(t *testing.T) {
	mesh := []Pair{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}
	for name, set := range map[string]func(c *Calls){
		"plain": func(c *Calls) { c.Plain = true },
		"uc":    func(*Calls) {},
		"rc":    func(c *Calls) { c.Flor.Engine.Hardware = true },
	} {
		for _, bytes := range []uint32{4 << 10, 256 << 10} {
			for _, random := range []bool{false, true} {
				c := &Calls{Pairs: mesh, Connections: 2, Request: bytes, Response: 128, Outstanding: 8, Random: random}
				set(c)
				call(t, c, 4*engine.Millisecond, nil)
				by := map[Pair]float64{}
				for _, a := range c.Answers {
					by[a.Pair] += float64(bytes) * 8 / 4e6
					if a.Took <= 0 || a.At > 4*engine.Millisecond {
						t.Errorf("%s: %+v", name, a)
					}
				}
				sum := 0.0
				for _, p := range mesh {
					sum += by[p]
					if by[p] < 10 {
						t.Errorf("%s, %d bytes: %v has %.1f Gb/s", name, bytes, p, by[p])
					}
				}
				if sum < 100 || sum > 150 {
					t.Errorf("%s, %d bytes: three hosts with 50 Gb/s have %.1f Gb/s", name, bytes, sum)
				}
			}
		}
	}
}

// TestSoftware: the time of software bounds the number of calls per thread, and acknowledgements count (Flor 5).
func TestSoftware(t *testing.T) {
	rate := func(threads, wqes int) float64 {
		c := &Calls{Pairs: one, Connections: 8, Request: 128, Response: 128, Outstanding: 16}
		c.Flor.Pool = 1024
		c.Flor.Engine.AckWQEs = wqes
		c.Flor.Software = Software{Threads: threads, Completion: engine.Microsecond, Ack: engine.Microsecond / 2}
		call(t, c, 10*engine.Millisecond, nil)
		return float64(len(c.Answers)) / 10e3 // calls per microsecond
	}
	// A call causes two completions at each host, and acknowledgements of the answer and the request.
	each, many, four := rate(1, 1), rate(1, 32), rate(4, 32)
	if each < 0.3 || each > 0.34 || many < 1.2*each || many > 0.5 || four < 3*many {
		t.Errorf("an acknowledgement for each WQE: %.3f calls in a microsecond, for many: %.3f, by four threads: %.3f", each, many, four)
	}
}

// TestSharedAcks: acknowledgements queued behind data increase the measured round trips (Flor 4.1).
func TestSharedAcks(t *testing.T) {
	tail := func(shared bool) time.Duration {
		c := &Calls{Pairs: one, Connections: 16, Request: 256 << 10, Response: 256 << 10, Outstanding: 2}
		c.Flor.SharedAcks, c.Flor.Pool = shared, 512
		call(t, c, 10*engine.Millisecond, nil)
		if len(c.RTTs) < 100 {
			t.Fatalf("%d round trips", len(c.RTTs))
		}
		slices.SortFunc(c.RTTs, func(a, b RTT) int { return int(a.Took - b.Took) })
		return c.RTTs[len(c.RTTs)*99/100].Took.Duration()
	}
	own, shared := tail(false), tail(true)
	if own > 12*time.Microsecond || shared < 5*own {
		t.Errorf("99 %% of round trips are below %v, with acknowledgements behind data %v", own, shared)
	}
}

// TestSwitched: with RC, the time from an error to the next delivery is a round trip with a backup queue pair. Without
// one it is the time of a reconnection (Flor 6).
func TestSwitched(t *testing.T) {
	for backups, at := range map[int][2]engine.Time{2: {engine.Microsecond, 50 * engine.Microsecond}, -1: {5 * engine.Millisecond, 5100 * engine.Microsecond}} {
		c := &Calls{Pairs: one, Request: 32 << 10, Response: 128, Outstanding: 4, Flor: Config{Engine: flor.Config{Hardware: true}, Backups: backups}}
		// The first data queue pair of a host follows the one for acknowledgements; numbers 0 and 1 are reserved.
		call(t, c, 20*engine.Millisecond, map[string][]string{"h0-s0": {"tx drop qpn=0x3"}})
		if got := c.Switched(); len(got) != 1 || got[0] < at[0] || got[0] > at[1] || len(c.Answers) < 100 {
			t.Errorf("%d backups: %v, %d calls", backups, got, len(c.Answers))
		}
	}
}

// TestFailedCalls: a call with an unreadable request gets no answer.
func TestFailedCalls(t *testing.T) {
	c := &Calls{Pairs: one, Plain: true, Request: 256 << 10, Response: 128, Outstanding: 4}
	call(t, c, 30*engine.Millisecond, map[string][]string{"h1-s0": {"tx drop op=read"}})
	if len(c.Answers) > 0 {
		t.Errorf("%d calls were answered", len(c.Answers))
	}
}
