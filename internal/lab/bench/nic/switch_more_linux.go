package nic

import (
	"fmt"
	"strconv"
)

// mixes are the kinds of memory of a WRITE's sender and receiver, as values of ROCED_MR, and the goals against memcpy.
var mixes = []struct {
	name string
	mode [2]string
	goal float64
}{
	{"ib_write_bw 64 KiB from shared to shared memory", [2]string{"auto", "auto"}, 0.7},
	{"ib_write_bw 64 KiB from opened to shared memory", [2]string{"ptrace", "auto"}, 0.5},
	{"ib_write_bw 64 KiB from shared to opened memory", [2]string{"auto", "ptrace"}, 0.5},
	{"ib_write_bw 64 KiB from opened to opened memory", [2]string{"ptrace", "ptrace"}, 0.35},
}

// memoryOnSwitch measures WRITEs between the kinds of memory.
func (b *bench) memoryOnSwitch() error {
	for _, m := range mixes {
		err := b.median(m.name, "Gb/s", func() (float64, error) {
			side := func(i int) []string {
				return []string{"env", "ROCED_MR=" + m.mode[i], "ib_write_bw", "-s", "65536", "-D", strconv.Itoa(b.Seconds)}
			}
			return b.betweenPerftests(3, side(0), side(1))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tagSizes are the message sizes of UCX's tag, in bytes.
var tagSizes = []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// tagWays are the transports of UCX.
var tagWays = []string{"over a switch", "over TCP of loopback", "over shared memory"}

// tagName names the line of a message size and a transport.
func tagName(size int, way string) string {
	return fmt.Sprintf("ucx_perftest %s, %d KiB tag", way, size>>10)
}

// tagsOnSwitch measures UCX's tagged messages between two processes by size and transport.
func (b *bench) tagsOnSwitch() error {
	total := b.Seconds << 29
	bare := func(env ...string) func(int, []string) []string {
		return func(_ int, args []string) []string { return append(append([]string{"env"}, env...), args...) }
	}
	for _, size := range tagSizes {
		runs := []func() (ucx, error){
			func() (ucx, error) { return b.ucxOverNIC(size, total) },
			func() (ucx, error) { return b.ucxTags(size, total, bare("UCX_TLS=tcp", "UCX_NET_DEVICES=lo")) },
			func() (ucx, error) { return b.ucxTags(size, total, bare("UCX_TLS=sm")) },
		}
		for i, run := range runs {
			err := b.median(tagName(size, tagWays[i]), "Gb/s", func() (float64, error) {
				u, err := run()
				return u.gbps(), err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// besideSpinners measures a WRITE while 16 processes spin, and counts retransmissions. An ended connection is an error.
func (b *bench) besideSpinners(both alternately) error {
	stop, err := b.spin(16)
	defer stop()
	if err != nil {
		return err
	}
	const beside = " beside 16 spinning processes"
	if err := both("roceperf write-bw 64 KiB"+beside, "Gb/s", func(c *bench) (float64, error) {
		return gbps(c.perf("write-bw", "-s", "64k"))
	}); err != nil {
		return err
	}
	return both("retransmissions of roceperf write-bw 64 KiB"+beside, "packets", func(c *bench) (float64, error) {
		before, err := c.retransmitted()
		if err != nil {
			return 0, err
		}
		if _, err := c.perf("write-bw", "-s", "64k"); err != nil {
			return 0, err
		}
		after, err := c.retransmitted()
		return after - before, err
	})
}

// retransmitted returns the packets that host 0 has retransmitted.
func (b *bench) retransmitted() (float64, error) {
	c, err := b.Counters(b.lab, 0)
	return float64(c["retransmitted_packets"]), err
}
