package scenario

import (
	"math"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
)

// TestTooLarge: scenarios whose products are huge are refused before they are built, with an estimate. Each number alone is
// valid.
func TestTooLarge(t *testing.T) {
	const incast = "kind: incast, to: 0, senders: 3, size: 100KB"
	edit := func(old, with string) string { return strings.Replace(small, old, with, 1) }
	persistent := strings.NewReplacer("rc}", "rc, connections: persistent}", incast, "kind: stream, from: 0, to: 1, size: 1B, until: 100s").Replace(small)
	for name, text := range map[string]string{
		"fat-tree":    edit("star, hosts: 4", "fat-tree, k: 1000"),
		"leaf-spine":  edit("star, hosts: 4", "leaf-spine, leaves: 65536, spines: 65536, hosts_per_leaf: 65536"),
		"cables":      edit("star, hosts: 4", "leaf-spine, leaves: 16, spines: 16, hosts_per_leaf: 1, cables: 1000000"),
		"dumbbell":    edit("star, hosts: 4", "dumbbell, left: 65536, right: 65536, planes: 32"),
		"rails":       edit("star, hosts: 4", "rails, rails: 1000000000, machines: 2"),
		"jellyfish":   edit("star, hosts: 4", "jellyfish, switches: 65536, degree: 60000, hosts: 4"),
		"incast":      edit("senders: 3", "senders: 3, rounds: 1000000000, every: 1ns"),
		"queries":     edit(incast, "kind: queries, senders: 3, size: 1B, load: 1, until: 100s"),
		"poisson":     edit(incast, "kind: poisson, size: 1B, load: 1, until: 1000s"),
		"stream":      persistent,
		"rpc":         edit(incast, "kind: rpc, client: 0, server: 1, request: 1B, response: 1B, calls: 1000000000"),
		"all-to-all":  edit(incast, "kind: all-to-all, size: 1MB, rounds: 1000000000"),
		"ring":        edit(incast, "kind: ring-all-reduce, size: 1MB, rounds: 1000000000, qps: 1024"),
		"tree":        edit(incast, "kind: tree-all-reduce, size: 1MB, rounds: 1000000000"),
		"sample":      small + "stop: 1s\nsample: 1ps\n",
		"short":       edit("size: 100KB", "size: 1MB") + "sample: 1ps\n",
		"no end":      edit("size: 100KB", "size: 2GB") + "sample: 1ps\n",
		"fail-some":   small + "events: [{at: 0s, do: fail-some, percent: 50, every: 1ps, until: 1s}]\n",
		"connections": edit(incast, "kind: calls, clients: [0, 1], servers: [2, 3], connections: 1000000000, request: 1MB, response: 1MB") + "flor: {}\nstop: 1s\n",
	} {
		_, err := config(text)
		if err == nil || !strings.Contains(err.Error(), "the simulation would need about ") || !strings.Contains(err.Error(), "need --force") || !strings.HasPrefix(err.Error(), "x.yaml:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := Read("x.yaml", []byte(edit("size: 100KB", "size: 1B, rounds: 1000000")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Force = true; f.charge("workload", math.Inf(1), 1, 1, "x") != nil {
		t.Error("an infinite estimate is refused in spite of --force")
	}
}

// TestEstimate: the estimate of events is within a factor of four of those of a run.
func TestEstimate(t *testing.T) {
	f, err := Read("x.yaml", []byte(strings.Replace(small, "100KB", "10MB", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Config(none)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	if ratio := f.estimate.events / float64(r.Events); ratio < 0.25 || ratio > 4 {
		t.Errorf("%g events are estimated, there were %d", f.estimate.events, r.Events)
	}
}

// FuzzScenario: no scenario makes the reader, or the network that it describes, fail other than with an error.
func FuzzScenario(f *testing.F) {
	for _, text := range []string{small, planes, strings.Replace(small, "star, hosts: 4", "fat-tree, k: 4", 1), "a: &a [*a]",
		strings.Replace(small, "size: 100KB", "size: .nan", 1), small + "events: [{at: 1us, link: h*-s0, do: lose, probability: .5}]\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read("x.yaml", []byte(text), nil)
		if err != nil {
			return
		}
		c, err := file.Config(none)
		if err != nil || file.estimate.memory > 1<<26 || file.estimate.events > 1e6 {
			return
		}
		s, err := sim.New(c)
		if err != nil {
			return
		}
		rounds := 0
		s.Interrupted = func() bool { rounds++; return rounds > 10_000 }
		s.Watch = func() error {
			if rounds > 10_000 || s.Progress().Now > engine.Second {
				return sim.ErrUnfinished
			}
			return nil
		}
		_, _ = s.Run() // messages may never end
	})
}
