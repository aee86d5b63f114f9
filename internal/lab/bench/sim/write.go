package sim

import (
	"fmt"
	"io"

	"roced.io/roced/internal/lab/bench/measure"
)

func (r *report) write(w io.Writer) {
	fmt.Fprint(w, "`make bench-sim`: all rows are from one run. A link transmission is whatever enters a link: data,\nacknowledgements, PFC frames. Time is of the CPU, user and system, from the beginning of the\nprogram to its end; memory is the most that was resident.\n\n")
	if r.peerMissing {
		fmt.Fprint(w, "htsim was not there: `HTSIM=DIR make bench-sim` measures it beside.\n\n")
	}
	fmt.Fprint(w, "## Permutations over a fat-tree, 100 Gb/s\n\nBoth simulate the same permutation, with packets of 1000 bytes, each of which is acknowledged.\n\n")
	for i := range r.peers {
		if peer := r.peers[i].peer; peer != nil {
			fmt.Fprintf(w, "* %s: %.1f times htsim's link transmissions a second of CPU, %.1f times if what its script counts is taken for links.\n",
				r.peers[i].name, r.peers[i].speed()/peer.speed(), r.peers[i].speed()/(peer.pipes/peer.cpu/1e6))
		}
	}
	if !r.peerMissing {
		fmt.Fprint(w, "\nhtsim's script counts packets that enter a `Pipe`. In its switches each packet passes one more (`CallbackPipe`, the\nswitch's latency), so that n links count 2n-1. The table has links: half of its count, and one for each packet and\nits acknowledgement together.\n\n")
	}
	table(w, r.peers)
	fmt.Fprint(w, "\n## `configs/sim/ns3-conweave.yaml` at 80 % load, 1 ms\n\n")
	table(w, r.leaf)
	fmt.Fprint(w, "\n## Larger\n\n")
	table(w, append(append([]row{}, r.sizes...), r.large))
	p := r.pairs
	fmt.Fprintf(w, "\n%d connected pairs of queue pairs on %d hosts at 400 Gb/s: %.0f bytes each while they are idle, at both ends\ntogether; %.1f us to connect one; a message of 10 KB on each of them, all at once, %d link transmissions in %.1f s.\n",
		p.Pairs, p.Hosts, p.BytesPerPair, p.ConnectMicros, p.Links, p.Seconds)
	fmt.Fprint(w, "\n## Two at once, on two processors\n\n")
	measure.Table(w, "", ">s", ">")
	for i, x := range r.beside {
		name := "alone"
		if i > 0 {
			name = "beside another one"
		}
		fmt.Fprintf(w, "| %s | %.2f | %+.0f %% |\n", name, x.wall, (x.wall/r.beside[0].wall-1)*100)
	}
	fmt.Fprint(w, "\n## Where the time goes\n\nAs `rocesim run --profile` tells, in per cent.\n\n")
	columns := []string{""}
	for _, c := range r.shares[0].cpu {
		columns = append(columns, ">"+c.Name)
	}
	measure.Table(w, columns...)
	for i := range r.shares {
		fmt.Fprintf(w, "| %s", r.shares[i].name)
		for part := range r.shares[i].cpu {
			fmt.Fprintf(w, " | %.0f", 100*r.shares[i].of(part))
		}
		fmt.Fprint(w, " |\n")
	}
}

func table(w io.Writer, rows []row) {
	measure.Table(w, "", ">link transmissions", ">s", ">M a second", ">times htsim", ">MB", "")
	for i := range rows {
		r := &rows[i]
		ratio := ""
		if r.peer != nil {
			ratio = fmt.Sprintf("%.1f", r.speed()/r.peer.speed())
		}
		fmt.Fprintf(w, "| %s | %.0f | %.2f | %.2f | %s | %.0f | %s |\n", r.name, r.links, r.cpu, r.speed(), ratio, r.mb, r.note)
	}
}
