package main

import (
	"fmt"
	"strconv"

	"roced.io/roced/internal/netlab"
)

// noRendezvous makes UCX send messages of any length eagerly. By default the receiver READs long messages from memory
// that UCX registers for them.
const noRendezvous = "UCX_RNDV_THRESH=1g"

// rendezvousName returns the name of the line for a message size, with or without rendezvous.
func rendezvousName(size int, without bool) string {
	name := fmt.Sprintf("ucx_perftest over the NIC, %d KiB tag", size>>10)
	if without {
		name += ", " + noRendezvous
	}
	return name
}

// rendezvousSizes are sizes around UCX's threshold and far above it.
func rendezvousSizes() (sizes []int) {
	for size := 8 << 10; size <= 4<<20; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

// rendezvous measures UCX over the NIC by message size, with and without rendezvous.
func (b *bench) rendezvous() error {
	for _, size := range rendezvousSizes() {
		for _, without := range []bool{false, true} {
			err := b.median(rendezvousName(size, without), "Gb/s", func() (float64, error) {
				u, err := b.ucxOverNIC(size, without)
				return u.gbps(), err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ucxOverNIC runs the ucx_perftest test of tagged messages over verbs.
func (b *bench) ucxOverNIC(size int, without bool) (ucx, error) {
	peer := b.lab.Bed.NS[1].Addr.String()
	count := max(b.Seconds<<27/size, 1000) // UCX does not wait for the last messages
	side := func(i int) []string {
		cmd := []string{"UCX_TLS=rc", "UCX_NET_DEVICES=" + netlab.Device + ":1", "UCX_LOG_LEVEL=error"}
		if without {
			cmd = append(cmd, noRendezvous)
		}
		return b.exec(i, append(append([]string{"env"}, cmd...), "ucx_perftest", "-t", "tag_bw", "-s", strconv.Itoa(size),
			"-n", strconv.Itoa(count), "-w", "50", "-f")...)
	}
	out, err := b.lab.Pair(b.ctx, side(1), append(side(0), peer), listening(b.lab, peer, "13337"))
	if err != nil {
		return ucx{}, err
	}
	return parseUCX(out)
}

// exec returns the command line of a verbs program on host i.
func (b *bench) exec(i int, args ...string) []string {
	return b.lab.CtlArgs(i, append([]string{"exec", "--"}, args...)...)
}

// rendezvousRatios compare each size with and without rendezvous.
func rendezvousRatios() (out []ratio) {
	for _, size := range rendezvousSizes() {
		out = append(out, ratio{fmt.Sprintf("UCX with rendezvous against without, %d KiB", size>>10),
			rendezvousName(size, false), rendezvousName(size, true), 0, false})
	}
	return out
}
