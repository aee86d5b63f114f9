package nic

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"roced.io/roced/internal/lab/netlab"
)

// shardRun is a measurement over a switch with several shards.
type shardRun struct {
	name  string
	goal  float64 // of the ratio to UDP sockets; 0: none
	pairs int
	split bool // the NICs of a pair have a shard each
}

// shardRuns returns the measurements: a pair of NICs for each core, and a pair with two shards.
func shardRuns() []shardRun {
	n := runtime.NumCPU()
	return []shardRun{
		{fmt.Sprintf("roceperf write-bw 64 KiB, %d pairs at once", n), 1, n, false},
		{"roceperf write-bw 64 KiB, a shard for each NIC", 0, 1, true},
	}
}

// pairsAtOnce measures pairs of NICs of one daemon that are busy at the same time. The figure is their sum.
func (b *bench) pairsAtOnce() error {
	for _, r := range shardRuns() {
		options := []netlab.LabOptions{
			{Unix: true, Switch: true, Pairs: r.pairs, Shards: r.split},
			{Loopback: true, Together: true, Pairs: r.pairs},
		}
		err := b.labs(options, func(labs []*netlab.Lab) error {
			return b.both(labs)(r.name, "Gb/s", func(c *bench) (float64, error) {
				return c.sum(append([]*netlab.Lab{c.lab}, c.lab.More...))
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sum returns the sum of the throughputs of pairs that are busy at the same time.
func (b *bench) sum(pairs []*netlab.Lab) (total float64, err error) {
	figures, errs := make([]float64, len(pairs)), make([]error, len(pairs))
	var all sync.WaitGroup
	for i, p := range pairs {
		all.Go(func() {
			r, err := b.Roceperf(p, b.Seconds, "write-bw", "-s", "64k")
			figures[i], errs[i] = r.Gbps, err
		})
	}
	all.Wait()
	for _, v := range figures {
		total += v
	}
	return total, errors.Join(errs...)
}
