package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// divided is a simulation that can run on several processors.
type divided struct {
	name   string
	config func(seed uint64) Config
}

// fatTree has 16 hosts in 4 pods.
func fatTree(t testing.TB) *fabric.Graph {
	g, err := fabric.FatTree(w100, 4)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// lossySwitch returns a switch without flow control and with a small buffer.
func lossySwitch(balance string) func(_, _ int) fabric.SwitchConfig {
	return func(int, int) fabric.SwitchConfig {
		return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 300_000}, Port: fabric.PortConfig{Strict: 1 << 7},
			ECN: fabric.ECNConfig{Min: 20_000, Max: 100_000, Probability: 0.2}, Balance: fabric.BalanceConfig{Name: balance}}
	}
}

func pausing(balance string) func(_, ports int) fabric.SwitchConfig {
	return func(i, ports int) fabric.SwitchConfig {
		c := losslessSwitch(i, ports)
		c.Buffer.Bytes, c.Balance.Name = 2<<20, balance
		return c
	}
}

// losses makes all links lose packets from the start.
func losses(p float64) Event {
	return Event{0, func(n *fabric.Network) {
		for i := range n.Links() {
			n.Links()[i].Lose(p)
		}
	}}
}

// repair fails a cable and computes routes, and repairs it later.
func repair(link string, from, to engine.Time) (events []Event) {
	for _, at := range []engine.Time{from, to} {
		events = append(events, Event{at, func(n *fabric.Network) {
			ls, err := n.Named(link)
			if err != nil {
				panic(err)
			}
			ls[0].Fail(at == from)
			n.Reroute()
		}})
	}
	return events
}

// arrivals are messages of some sizes at random instants.
func arrivals(hosts int, seed uint64) workload.App {
	sizes, err := workload.ReadCDF("1000 0\n3000 30\n20000 80\n100000 100\n")
	if err != nil {
		panic(err)
	}
	p := workload.Poisson{Hosts: hosts, Rate: 100 * gig, Load: 0.5, Sizes: sizes, Until: 150 * engine.Microsecond, Seed: seed}
	return &workload.OpenLoop{Next: p.Source()}
}

func allDivided(t testing.TB) []divided {
	permutation := func(seed uint64) []workload.App { return planned(workload.Permutation(16, 150_000, seed)...) }
	base := func(seed uint64, sw func(_, _ int) fabric.SwitchConfig, name string, apps ...workload.App) Config {
		return Config{Name: "divided", Seed: seed, Graph: fatTree(t), Switch: sw, Profile: name, Apps: apps,
			Classes: nic.Classes{Ack: 7, CNP: 7}, QP: nic.QPConfig{Tuning: everyPacket}}
	}
	return []divided{
		{"rc, PFC, ECMP", func(seed uint64) Config {
			c := base(seed, pausing(""), "rc", permutation(seed)...)
			c.Sample, c.Queues = 10*engine.Microsecond, []string{"edge0.0-h0", "core0-aggr1.0"}
			return c
		}},
		{"rc, PFC, losses, a failure", func(seed uint64) Config {
			c := base(seed, pausing(""), "rc", permutation(seed)...)
			c.QP.Timeout = 4
			c.Events = append([]Event{losses(0.0005)}, repair("aggr0.0-core0", 7*engine.Microsecond+3, 40*engine.Microsecond)...)
			c.Sample = 7 * engine.Microsecond
			return c
		}},
		{"rc, random messages", func(seed uint64) Config { return base(seed, pausing(""), "rc", arrivals(16, seed)) }},
		{"rc, READ, connections that stay", func(seed uint64) Config {
			ps := workload.Queries(16, 5, 20_000, 40e9, 100*engine.Microsecond, seed)
			c := base(seed, pausing("drill"), "rc", &workload.OpenLoop{Verb: workload.Read, Next: workload.List(ps)})
			c.Persistent = true
			return c
		}},
		{"irn, ECMP, losses", func(seed uint64) Config {
			c := base(seed, lossySwitch(""), "irn", permutation(seed)...)
			c.Events = []Event{losses(0.002)}
			return c
		}},
		{"irn, spraying, random messages", func(seed uint64) Config { return base(seed, lossySwitch("spray"), "irn", arrivals(16, seed)) }},
		{"eunomia, PFC, spraying", func(seed uint64) Config { return base(seed, pausing("spray"), "eunomia", permutation(seed)...) }},
		{"eunomia, DRILL, losses, random messages, DCQCN", func(seed uint64) Config {
			c := base(seed, lossySwitch("drill"), "eunomia", arrivals(16, seed))
			c.Spec.Congestion = profile.Part{Name: "dcqcn"}
			c.QP.CNPInterval = 50_000
			c.Events = []Event{losses(0.001)}
			return c
		}},
		{"rc, HPCC, random messages", func(seed uint64) Config {
			c := base(seed, pausing(""), "rc", arrivals(16, seed))
			c.Spec.Congestion = profile.Part{Name: "hpcc"}
			return c
		}},
		{"rc, iterations of two jobs", func(seed uint64) Config {
			jobs := make([]workload.App, 2)
			for j := range jobs {
				i := workload.Iterations{Pattern: "hierarchical", Ranks: 8, Bytes: 400_000, Rounds: 2, Compute: engine.Time(seed) * engine.Microsecond, Group: 2 + 2*j}
				s := i.Schedule()
				for r := range 8 {
					s.Hosts = append(s.Hosts, 2*r+j)
				}
				jobs[j] = s
			}
			return base(seed, pausing(""), "rc", jobs...)
		}},
		{"mp-rdma, incast", func(seed uint64) Config {
			return base(seed, lossySwitch(""), "mp-rdma", planned(workload.RandomIncast(16, 3, 9, 60_000, 0, seed)...)...)
		}},
		{"rc, ConWeave", func(seed uint64) Config {
			c := base(seed, pausing("conweave"), "rc", arrivals(12, seed))
			c.Graph = fabric.LeafSpine(w100, 4, 2, 3, 1)
			return c
		}},
	}
}

// outcome returns a result and its traces and captures as text.
func outcome(t *testing.T, c Config, processors int) (*result.Result, string) {
	t.Helper()
	c.Processors, c.Check = processors, true
	var s *Simulation
	var traces []*bytes.Buffer
	var finish []func() error
	c.Opened = func(first, second *nic.QP, f *workload.Flow) {
		if f.ID%9 > 0 || f.ID > 27 { // a recorder takes megabytes
			return
		}
		for _, q := range []*nic.QP{first, second} {
			w := new(bytes.Buffer)
			traces, finish = append(traces, w), append(finish, s.TraceTo(w, q))
		}
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	links := s.Cluster().Network().Links()
	for _, i := range []int{0, len(links) / 2, len(links) - 1} {
		w := new(bytes.Buffer)
		failed, err := s.CaptureTo(w, &links[i])
		if err != nil {
			t.Fatal(err)
		}
		traces, finish = append(traces, w), append(finish, failed)
	}
	r, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	if processors == 0 {
		slices.SortStableFunc(r.Flows, func(a, b result.Flow) int {
			return cmp.Or(cmp.Compare(a.Start+a.FCT, b.Start+b.FCT), cmp.Compare(a.ID, b.ID))
		})
	}
	var out strings.Builder
	for _, v := range []any{r, r.Flows, r.Samples, r.Queues, r.Ports} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", b)
	}
	for i, w := range traces {
		if err := finish[i](); err != nil {
			t.Fatal(err)
		}
		out.Write(w.Bytes())
	}
	return r, out.String()
}

// differ returns the first different line of two texts.
func differ(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d of %d and %d:\n%.2000s\n%.2000s", i, len(x), len(y), x[i], y[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// TestProcessors: results, traces and captures are the same, byte for byte, on one to four processors. They are those
// of a simulation without parts, unless a connection was in use after the end of its message.
func TestProcessors(t *testing.T) {
	if testing.Short() {
		t.Skip("make check runs it")
	}
	same := 0
	for _, d := range allDivided(t) {
		t.Run(d.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 2; seed++ {
				r, want := outcome(t, d.config(seed), 1)
				if len(r.Flows) < 9 {
					t.Fatalf("only %d messages", len(r.Flows))
				}
				for _, n := range []int{2, 3, 4} {
					if _, got := outcome(t, d.config(seed), n); got != want {
						t.Errorf("seed %d: one and %d processors differ: %s", seed, n, differ(want, got))
					}
				}
				if r.Late > 0 {
					t.Logf("seed %d: %d late closes", seed, r.Late)
					continue
				}
				same++
				if _, got := outcome(t, d.config(seed), 0); got != want {
					t.Errorf("seed %d: with and without parts differ: %s", seed, differ(got, want))
				}
			}
		})
	}
	if same < 14 {
		t.Errorf("only %d of 20 simulations had no late close", same)
	}
}

// TestIndivisible: simulations in which hosts affect each other without a link cannot be divided.
func TestIndivisible(t *testing.T) {
	good := allDivided(t)[0].config(1)
	for want, change := range map[string]func(*Config){
		"an application acts on several hosts": func(c *Config) {
			c.Apps = []workload.App{&workload.RPC{Client: 0, Server: 9, Request: 1, Response: 1, Calls: 1}}
		},
		"only verbs write and read": func(c *Config) {
			c.Apps = []workload.App{&workload.OpenLoop{Verb: workload.Send, Next: workload.List(nil)}}
		},
		"the packets of mrc": func(c *Config) { c.Profile, c.Apps = "mrc", nil },
		"measured together":  func(c *Config) { c.Inside = true },
		"ksp computes":       func(c *Config) { c.Switch = pausing("ksp") },
		"only 4 pods":        func(c *Config) { c.Processors = 5 },
		"only 0 pods":        func(c *Config) { c.Graph, c.Queues = fabric.Pair(w100, false), nil },
		"several networks":   func(c *Config) { c.Profile, c.Planes, c.Apps = "mrc", 2, nil },
		"":                   func(c *Config) { c.QP.Tuning = qp.Tuning{} },
	} {
		c := good
		c.Processors = 2
		change(&c)
		if _, err := New(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// TestSharedGenerator: the ends of a link between parts cannot both draw random numbers.
func TestSharedGenerator(t *testing.T) {
	c := allDivided(t)[0].config(1)
	c.Processors = 2
	c.Events = []Event{losses(0.001), {0, func(n *fabric.Network) { n.Links()[0].Jitter(engine.Microsecond) }}}
	for i, want := range []bool{false, true} {
		if i == 1 {
			c.Events[1].Do = func(n *fabric.Network) {
				for k := range n.Links() {
					n.Links()[k].Jitter(engine.Microsecond)
				}
			}
		}
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Run(); (err != nil) != want || err != nil && !strings.Contains(err.Error(), "both jitter and losses") {
			t.Errorf("%v", err)
		}
	}
}
