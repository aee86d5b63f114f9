package nic

import (
	"fmt"
	"strconv"
)

// ways are the methods by which the daemon accesses a program's memory: values of ROCED_MR of the preload library.
var ways = []struct{ name, mode string }{
	{"memory that is shared", "auto"},
	{"memory of a passed /proc/self/mem", "pass"},
	{"memory of an opened /proc/PID/mem", "ptrace"},
}

// memoryName returns the name of the line for a size and a way.
func memoryName(size int, way string) string {
	return fmt.Sprintf("ib_write_bw %d KiB, %s", size>>10, way)
}

// memory measures one program with each way of memory access, on both sides.
func (b *bench) memory() error {
	for _, size := range []int{4096, 65536} {
		for _, way := range ways {
			err := b.perftest(memoryName(size, way.name), "Gb/s", "env", "ROCED_MR="+way.mode, "ib_write_bw", "-s", strconv.Itoa(size))
			if err != nil {
				return err
			}
		}
	}
	return nil
}
