package nic

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"roced.io/roced/internal/lab/bench/measure"
)

// ucxSizes are the sizes of tagged messages: eager ones, and those that the receiver READs (rendezvous).
func ucxSizes() (sizes []int) {
	for size := 1 << 10; size <= 4<<20; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

// ucxSizeName returns the name of the line for a message size over the NIC or over TCP.
func ucxSizeName(size int, tcp bool) string {
	return fmt.Sprintf("ucx_perftest over %s, %d KiB tag", map[bool]string{false: "the NIC", true: "TCP"}[tcp], size>>10)
}

// ucxBySize measures UCX over the NIC and over TCP by message size, in turns.
func (b *bench) ucxBySize() error {
	for _, size := range ucxSizes() {
		samples, err := measure.Alternate(b.Rounds, 2, func(i int) (float64, error) {
			total := b.Seconds << 27
			if i == 1 {
				u, err := ucxPerftest(b.ctx, b.lab, "tag_bw", size, max(total/size, 1000))
				return u.gbps(), err
			}
			u, err := b.ucxOverNIC(size, total)
			return u.gbps(), err
		})
		if err != nil {
			return err
		}
		for i, s := range samples {
			b.add(ucxSizeName(size, i == 1), "Gb/s", s...)
		}
	}
	return nil
}

// ucxOverNIC sends about total bytes of tagged messages over verbs.
func (b *bench) ucxOverNIC(size, total int) (ucx, error) {
	return b.ucxTags(size, total, func(i int, args []string) []string {
		return b.exec(i, append([]string{"env", "UCX_TLS=rc", "UCX_NET_DEVICES=" + b.lab.Host[i].Device + ":1"}, args...)...)
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

// ucxRatios compare the NIC and TCP for each size.
func ucxRatios() (out []ratio) {
	for _, size := range ucxSizes() {
		out = append(out, ratio{fmt.Sprintf("UCX over the NIC against TCP, %d KiB", size>>10),
			ucxSizeName(size, false), ucxSizeName(size, true), 1, false})
	}
	return out
}
