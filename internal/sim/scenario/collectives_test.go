package scenario

import (
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
)

const collective = `name: collective
topology: {kind: star, hosts: 8, host_rate: 100Gbps, delay: 1us}
switch: {buffer: 16MiB}
transport: {profile: rc, connections: persistent}
workload:
  - {kind: ring-all-reduce, size: 300KB, ranks: 3, jobs: 2, rounds: 2}
`

// run runs a simulation.
func run(t *testing.T, c sim.Config) *result.Result {
	t.Helper()
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// simulated runs a scenario.
func simulated(t *testing.T, text string, set ...string) *result.Result {
	t.Helper()
	c, err := config(text, set...)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, c)
}

// TestJobs: concurrent jobs have hosts of their own, and the result has each of their operations.
func TestJobs(t *testing.T) {
	r := simulated(t, collective)
	jobs := map[int]int{}
	for _, c := range r.Collectives {
		jobs[c.Job]++
		// 4 steps of 100 KB at 100 Gb/s take 32 us and the headers.
		if us := c.Took.Seconds() * 1e6; c.Workload != "ring-all-reduce" || c.Ranks != 3 || c.Bytes != 300_000 || us < 32 || us > 60 ||
			c.Bus < 0.9*400_000*8/c.Took.Seconds() || c.Bus > 100e9 {
			t.Errorf("%+v", c)
		}
	}
	if len(jobs) != 2 || jobs[0] != 2 || jobs[1] != 2 {
		t.Errorf("operations by job: %v", jobs)
	}
	for _, f := range r.Flows {
		if f.Src/3 != f.Dst/3 || f.Src > 5 {
			t.Errorf("h%d sends to h%d", f.Src, f.Dst)
		}
	}
	var text strings.Builder
	r.WriteText(&text)
	if n := strings.Count(text.String(), "ring-all-reduce of 3 ranks, 300000 bytes: 2 done, mean "); n != 2 {
		t.Errorf("%d lines in\n%s", n, text.String())
	}
}

// TestRandomRanks: random ranks depend on the seed and on nothing else, and each host has one at most.
func TestRandomRanks(t *testing.T) {
	ranks := func(set ...string) (all []int) {
		c, err := config(collective, append(set, "workload.0.random=true")...)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Apps {
			all = append(all, a.(*workload.RingAllReduce).Ranks...)
		}
		return all
	}
	a, b := ranks(), ranks("seed=2")
	if !slices.Equal(a, ranks()) || slices.Equal(a, b) {
		t.Errorf("%v, seed 2: %v", a, b)
	}
	if slices.Sort(a); len(slices.Compact(a)) != 6 {
		t.Errorf("hosts %v", a)
	}
}

// TestCollectivesOfMRC: MRC has no SEND, so its collectives and RPCs are WRITEs with immediate data.
func TestCollectivesOfMRC(t *testing.T) {
	for _, work := range []string{"{kind: ring-all-reduce, size: 300KB, qps: 2}", "{kind: tree-all-reduce, size: 300KB}",
		"{kind: all-to-all, size: 30KB, outstanding: 7}", "{kind: rpc, client: 0, server: 1, request: 1KB, response: 30KB, calls: 5}"} {
		i := strings.Index(collective, "  - {")
		if r := simulated(t, collective[:i]+"  - "+work+"\n", "transport.profile=mrc"); r.Unfinished+r.Failed > 0 || len(r.Flows) == 0 {
			t.Errorf("%s: %d messages, %d unfinished, %d failed", work, len(r.Flows), r.Unfinished, r.Failed)
		}
	}
}

// TestCollectiveErrors: mistakes are named with their place.
func TestCollectiveErrors(t *testing.T) {
	for set, want := range map[string]string{
		"workload.0.ranks=5":    "workload.0: 2 jobs of 5 ranks on 8 hosts",
		"workload.0.ranks=1":    "workload.0: 2 jobs of 1 ranks",
		"workload.0.jobs=9":     "9 jobs of 3 ranks",
		"workload.0.jobs=-1":    "a job needs two hosts",
		"workload.0.qps=1025":   "workload.0.qps: 1025: must be from 1 to 1024",
		"workload.0.qps=-1":     "workload.0.qps: -1",
		"workload.0.size=8GB":   "workload.0.size: a message has at most 2 GiB",
		"workload.0.size=2e3GB": "workload.0.size",
		"workload.0.senders=2":  "workload.0.senders: ring-all-reduce has no such key",
	} {
		if _, err := config(collective, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
	if _, err := config(collective, "workload.0.size=6GB"); err != nil {
		t.Errorf("steps of 2 GB: %v", err)
	}
}

// TestStreamQPs: a stream shares several connections.
func TestStreamQPs(t *testing.T) {
	i := strings.Index(collective, "  - {")
	text := collective[:i] + "  - {kind: stream, from: 0, to: 1, size: 10KB, until: 50us, qps: 4}\n"
	c, err := config(text)
	if err != nil {
		t.Fatal(err)
	}
	lanes := map[int]bool{}
	for _, a := range c.Apps {
		lanes[a.(*workload.Stream).Lane] = true
	}
	if len(lanes) != 4 {
		t.Errorf("lanes %v", lanes)
	}
	if r := simulated(t, text); r.Goodput() < 80e9 {
		t.Errorf("%.3g b/s", r.Goodput())
	}
	if _, err := config(text, "workload.0.qps=5000"); err == nil {
		t.Error("5000 connections are accepted")
	}
}

// TestNICs: hosts may have their own path selection; without a change an entry is refused.
func TestNICs(t *testing.T) {
	c, err := config(small, "transport.profile=irn", "transport.congestion={name: dctcp}", "switch.ecn={min: 10KB, max: 10KB, probability: 1}",
		"nics=[{hosts: [1, 2], paths: {name: spray, paths: 4}}]")
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Specs[1]; len(c.Specs) != 2 || s.Paths.Name != "spray" || s.Congestion.Name != "dctcp" || c.Spec.Paths.Name != "" {
		t.Errorf("%+v", c.Specs)
	}
	for set, want := range map[string]string{
		"nics=[{hosts: [1, 2]}]":                             "nics.0: set congestion or paths",
		"nics=[{hosts: [1, 2], paths: {name: spray}}]":       "nics.0.paths: ",
		"nics=[{hosts: [1, 4], paths: {name: single}}]":      "nics.0.hosts: ",
		"nics=[{hosts: [1, 2], congestion: {name: nobody}}]": "nics.0.congestion: ",
	} {
		if _, err := config(small, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

// TestPattern: a pattern selects links by their ends.
func TestPattern(t *testing.T) {
	links := []string{"h0-leaf0", "leaf0-h0", "leaf0-h1", "leaf0-spine1", "leaf1-h2", "spine1-leaf0"}
	for name, want := range map[string]int{"leaf*-h*": 3, "leaf0-*": 3, "leaf0-h1": 1, "*": 6, "h1-*": 0, "[": 0} {
		if got := matching(links, name); len(got) != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestTransports: messages have the transport of their workload, else of their source. A stream may be pinned to a switch.
func TestTransports(t *testing.T) {
	const text = `name: mixed
topology: {kind: parallel, hosts: 2, paths: 4, host_rate: 40Gbps, core_rate: 10Gbps, delay: 1us}
switch: {buffer: 4MiB}
transport: {profile: rc, connections: persistent}
transports:
  - {hosts: [1, 1], profile: irn, congestion: {name: reno}, max_unacked: 64}
  - {name: eu, profile: eunomia}
workload:
  - {kind: stream, from: 0, to: 2, size: 10KB}
  - {kind: stream, from: 1, to: 3, size: 10KB, path: path2}
  - {kind: stream, from: 1, to: 3, size: 10KB, transport: eu}
  - {kind: permutation, size: 10KB, transport: eu}
stop: 200us
`
	c, err := config(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Transports) != 2 || c.Senders[1] != 1 || c.Senders[0] != 0 || c.Transports[0].QP.MaxUnacked != 64 || c.Transports[0].Spec.Congestion.Name != "reno" {
		t.Errorf("%+v, %v", c.Transports, c.Senders)
	}
	var opened [3]int
	c.Opened = func(first, _ *nic.QP, f *workload.Flow) {
		opened[f.Transport]++
		if window, _ := first.Limits(); (window == 10_000) != (f.Transport == 1) { // only reno has one
			t.Errorf("transport %d has a window of %d", f.Transport, window)
		}
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil || opened != [3]int{1, 1, 5} || len(r.Flows) < 10 {
		t.Errorf("%v, %v, %d flows", err, opened, len(r.Flows))
	}
	for set, want := range map[string]string{
		"workload.2.transport=nobody":        `workload.2.transport: "nobody" is not a name`,
		"workload.1.path=path9":              `workload.1.path: no switch "path9"`,
		"transports.1.name=\"\"":             "transports.1: set hosts, or a name",
		"transports.0.name=eu":               `transports.1.name: "eu" is the name of another`,
		"transports.0.hosts=[1, 9]":          "transports.0.hosts: ",
		"transports.0.mtu=500":               "transports.0: mtu, connections and class_limits",
		"transports.0.profile=nobody":        "transports.0: ",
		"transports.0.congestion.name=dctcp": "transports.0.congestion: dctcp needs ECN marks",
	} {
		if _, err := config(text, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

// TestPinned: all packets of a pinned stream pass through its switch, in both directions. Without hashing there is no way.
func TestPinned(t *testing.T) {
	const text = `name: pinned
topology: {kind: parallel, hosts: 1, paths: 4, host_rate: 40Gbps, core_rate: 10Gbps, delay: 1us}
switch: {buffer: 4MiB}
transport: {profile: rc, connections: persistent}
workload:
  - {kind: stream, from: 0, to: 1, size: 10KB, path: path2}
stop: 200us
`
	for _, path := range []string{"path0", "path1", "path2", "path3"} {
		c, err := config(text, "workload.0.path="+path)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, c)
		for _, p := range r.Ports {
			if used := strings.Contains(p.Link, path) || strings.HasPrefix(p.Link, "h0-") || strings.HasSuffix(p.Link, "-h0") ||
				strings.HasPrefix(p.Link, "h1-") || strings.HasSuffix(p.Link, "-h1"); used != (p.Packets > 0) {
				t.Errorf("%s: %s has %d packets", path, p.Link, p.Packets)
			}
		}
	}
	c, err := config(text, "switch.balance={name: spray}")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(); err == nil || !strings.Contains(err.Error(), "no source port leads from host 0 to host 1") {
		t.Error(err)
	}
}
