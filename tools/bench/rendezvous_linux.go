package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
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
				more := []string{}
				if without {
					more = append(more, noRendezvous)
				}
				u, err := b.ucxOverNIC(size, b.Seconds<<27, more...)
				return u.gbps(), err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ucxOverNIC sends about total bytes of tagged messages over verbs.
func (b *bench) ucxOverNIC(size, total int, more ...string) (ucx, error) {
	return b.ucxTags(size, total, func(i int, args []string) []string {
		env := append([]string{"env", "UCX_TLS=rc", "UCX_NET_DEVICES=" + b.lab.Host[i].Device + ":1"}, more...)
		return b.exec(i, append(env, args...)...)
	})
}

// ucxTags runs the ucx_perftest test of tagged messages. on returns the command line that runs args on host i.
func (b *bench) ucxTags(size, total int, on func(i int, args []string) []string) (ucx, error) {
	count := max(total/size, 1000) // UCX does not wait for the last messages
	args := []string{"env", "UCX_LOG_LEVEL=error", "ucx_perftest", "-t", "tag_bw", "-s", strconv.Itoa(size),
		"-n", strconv.Itoa(count), "-w", "50", "-f"}
	peer := b.peer()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	out, err := b.lab.Pair(ctx, on(1, args), append(on(0, args), peer), listening(b.lab, peer, "13337"))
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
