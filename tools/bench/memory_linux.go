package main

import (
	"fmt"
	"strconv"
)

// ways are how the daemon gets at a program's memory, as ROCED_MR of the preload library
// has them.
var ways = []struct{ name, mode string }{
	{"memory that is shared", "auto"},
	{"memory of a passed /proc/self/mem", "pass"},
	{"memory of an opened /proc/PID/mem", "ptrace"},
}

// memoryName is the line of a way.
func memoryName(size int, way string) string {
	return fmt.Sprintf("ib_write_bw %d KiB, %s", size>>10, way)
}

// memory measures the same program with its memory reached in each way, on both sides.
func (b *bench) memory() error {
	for _, size := range []int{4096, 65536} {
		for _, way := range ways {
			err := b.median(memoryName(size, way.name), "Gb/s", func() (float64, error) {
				args := []string{"env", "ROCED_MR=" + way.mode, "ib_write_bw", "-s", strconv.Itoa(size), "-D", strconv.Itoa(b.seconds)}
				out, err := b.perftestPair(b.ctx, perftestPort, args)
				if err != nil {
					return 0, err
				}
				return parsePerftest(out, 3)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
