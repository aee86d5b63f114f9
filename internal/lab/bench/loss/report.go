package loss

import (
	"fmt"
	"io"

	"roced.io/roced/internal/lab/bench/measure"
)

// about describes the measurement, and the differences between the transports' settings and their papers.
const about = `WRITEs of 64 KiB by one queue pair, path MTU 4096, between two network namespaces over TAPs (` + "`make bench-loss`" + `). The
faults are the sender's NIC's, by seed, in both directions, ACKs included. Frames are single ones throughout, because a
NIC with fault rules sends no super-frames. Each share is of the profile's own goodput without faults in the same run.

Settings that are not those of the papers, and why:

| profile | paper | on the line of 1 Gb/s | |
|---|---|---|---|
| irn | BDP-FC at one BDP, 68 packets here; RTO 100 and 320 us | 240 packets; 5 and 6 ms | una stands for two round trips after a loss: at one BDP it keeps 0.70 of its goodput at 1 % loss (a separate run). RTOs are two to three round trips of 2.2 ms |
| melo | no RTO | 6 ms | as irn |
| mp-rdma | a window that ECN controls, below L = 64 | a window of 96 packets | nothing marks here, so its own window would grow until it fills the line; beyond L the receiver refuses what is too far ahead. The paper's experiment, three of four paths lossy, is mp-1 in [papers.md](papers.md) |
| eunomia | last packets held at the sender; RTO as IRN's | rows for both ways; 3.2 ms | holding each WRITE's last packet costs a round trip for each message |
| mrc | 128 paths; NSCC with a base RTT of microseconds | 16 paths; the base RTT is that of the line, the target of the queueing delay half of it | the goal is about one of 16 paths. Software adds tens of microseconds to each round trip |
`

// write writes the tables of one network.
func (n *network) write(w io.Writer, subjects []subject, results []result) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", n.name, n.about)
	columns := []string{"profile"}
	for _, c := range n.conditions {
		columns = append(columns, ">"+c.name)
	}
	measure.Table(w, append(columns, ">retransmitted at 1 % loss")...)
	for i, s := range subjects {
		fmt.Fprintf(w, "| %s |", s.name)
		for _, c := range n.conditions {
			if !c.suits(&s) {
				fmt.Fprint(w, " |")
				continue
			}
			if c.base == "" {
				fmt.Fprintf(w, " %.2f Gb/s |", results[i][c.name].Gbps)
				continue
			}
			fmt.Fprintf(w, " %.0f %% |", 100*results[i].share(c))
		}
		fmt.Fprintf(w, " %.1f %% |\n", 100*results[i][percent].retransmitted)
	}
	fmt.Fprintln(w)
	measure.Table(w, "profile", "its share", ">value", "goal")
	for _, c := range n.conditions {
		for i, s := range subjects {
			share := results[i].share(c)
			switch {
			case c.name == percent && s.collapses:
				fmt.Fprintf(w, "| %s | at 1 %% loss | %.2f | %s |\n", s.name, share, measure.Goal(share, 0.5, true))
			case c.name == percent && s.goal:
				fmt.Fprintf(w, "| %s | at 1 %% loss | %.2f | %s |\n", s.name, share, measure.Goal(share, 0.9, false))
			case c.name == fourPaths && s.spray:
				fmt.Fprintf(w, "| %s | over 4 paths | %.2f | %s |\n", s.name, share, measure.Goal(share, 0.9, false))
			case c.name == badPath && s.evs:
				fmt.Fprintf(w, "| %s | if 1 of 16 paths loses 20 %% | %.2f | %s |\n", s.name, share, measure.Goal(share, 0.95, false))
			}
		}
	}
}

// writeMemory measures the memory of connections and writes the table.
func writeMemory(w io.Writer) error {
	states, err := measureStates()
	if err != nil {
		return err
	}
	fmt.Fprint(w, `
## State of a connection

Bytes beyond those of go-back-N at the papers' parameters, as they count them; and what the plug-ins of a connection
take in Go, for both directions of requests and READ responses, slices and the memory that a NIC shares among its
connections included.

`)
	measure.Table(w, "profile", "the paper", "counted like it", ">Go")
	for _, s := range states {
		fmt.Fprintf(w, "| %s | %s | %s | %d |\n", s.name, s.paper, s.counted, s.bytes)
	}
	return nil
}
