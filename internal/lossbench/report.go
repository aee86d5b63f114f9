package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"roced/profile"
)

// state is what a connection of a profile takes.
type state struct {
	name  string
	paper string // what the paper says
	least int    // Footprint when nothing is out of order
	bytes int    // of Go, plug-ins only
}

var papers = map[string]string{
	"irn": "at most 145", "melo": "23 on average at 300 connections", "mp-rdma": "66", "eunomia": "4 to 82",
}

// footprint is what plug-ins say that they take, as their papers count it.
type footprint interface{ Footprint() int }

// measureStates makes many connections of each profile.
func measureStates() (all []state, err error) {
	const connections = 1000
	for _, name := range profile.Names()[1:] {
		m := profile.NewMaker()
		keep := make([]any, 0, connections)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := state{name: name, paper: papers[name]}
		for range connections {
			p, err := m.New(name, profile.Spec{})
			if err != nil {
				return nil, err
			}
			s.least = 0
			for _, part := range []any{p.Tracker, p.Recovery, p.Paths, p.Controller} {
				if f, ok := part.(footprint); ok {
					s.least += f.Footprint()
				}
			}
			keep = append(keep, p)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		s.bytes = int(after.HeapAlloc-before.HeapAlloc) / connections
		runtime.KeepAlive(keep)
		all = append(all, s)
	}
	return all, nil
}

func report(w io.Writer, results [][]float64, states []state, seconds, rounds int) {
	fmt.Fprintf(w, `# Losses and disorder

Made by `+"`make bench-loss`"+` on %d cores: WRITEs of 64 KiB by one queue pair, path MTU 4096, between two network
namespaces over TAPs, medians of %d measurements of %d s. The faults are the sender's NIC's, by seed, in both
directions, ACKs included. Frames are single ones throughout, because a NIC with fault rules sends no super-frames.
Each share is of the profile's own goodput without faults in the same run.

In "4 paths" packets are late by 0, 20, 40 or 60 us at random: packet spraying. Its share is of "1 path", where all
are late by 30 us, for delaying them costs processor time as well.

`, runtime.NumCPU(), rounds, seconds)
	all := conditions()
	fmt.Fprint(w, "| profile |")
	for _, c := range all {
		fmt.Fprintf(w, " %s |", c.name)
	}
	fmt.Fprint(w, "\n|---|"+strings.Repeat("--:|", len(all))+"\n")
	for i, s := range subjects {
		fmt.Fprintf(w, "| %s | %.2f Gb/s |", s.name, results[i][0])
		for _, c := range all[1:] {
			fmt.Fprintf(w, " %.0f %% |", 100*share(results[i], c.name))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\n| goal | reached |\n|---|---|\n")
	for i, s := range subjects {
		if s.worst {
			fmt.Fprintf(w, "| %s falls below half at 1 %% loss | %s |\n", s.name, yes(share(results[i], "1 %") < 0.5))
		}
		if s.goal {
			fmt.Fprintf(w, "| %s keeps 90 %% at 1 %% loss | %s |\n", s.name, yes(share(results[i], "1 %") >= 0.9))
		}
		if s.spray {
			fmt.Fprintf(w, "| %s keeps 90 %% with packet spraying | %s |\n", s.name, yes(share(results[i], fourPaths) >= 0.9))
		}
	}
	fmt.Fprint(w, `
## State of a connection

Bytes beyond those of go-back-N, as the papers count them, at their parameters; and what the plug-ins of a connection
take in Go, for both directions of requests and READ responses, slices and the memory that a NIC shares among its
connections included.

| profile | the paper | counted like it, in order | Go |
|---|---|--:|--:|
`)
	for _, s := range states {
		fmt.Fprintf(w, "| %s | %s | %d | %d |\n", s.name, s.paper, s.least, s.bytes)
	}
}

// share is the goodput of a condition as a share of that which it is compared with.
func share(goodput []float64, name string) float64 {
	at := func(name string) float64 {
		for i, c := range conditions() {
			if c.name == name {
				return goodput[i]
			}
		}
		return 0
	}
	if name == fourPaths {
		return at(fourPaths) / at(onePath)
	}
	return at(name) / goodput[0]
}

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}
