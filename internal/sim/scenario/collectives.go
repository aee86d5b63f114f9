package scenario

import (
	"math/rand/v2"
	"slices"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/workload"
)

// collectives are the kinds of collective operations.
var collectives = []string{"all-to-all", "ring-all-reduce", "tree-all-reduce"}

// maxVector limits the size of a collective operation.
const maxVector = 1 << 40

// maxQPs limits the connections between two hosts.
const maxQPs = 1 << 10

// connections validates the number of connections between two hosts.
func (f *File) connections(key string, w *Work) error {
	if w.QPs < 0 || w.QPs > maxQPs {
		return f.At(key+".qps", "%d: must be from 1 to %d", w.QPs, maxQPs)
	}
	return nil
}

// collectives returns a collective operation for each job of w.
func (f *File) collectives(c *sim.Config, key string, w *Work, n uint64) (apps []workload.App, err error) {
	if !slices.Contains(collectives, w.Kind) {
		return nil, f.At(key+".kind", "%v", suggest.OneOf(w.Kind,
			append([]string{"poisson", "permutation", "incast", "queries", "flows", "stream", "rpc", "calls", "goal", "iterations"}, collectives...)))
	}
	groups, err := f.groups(c, key, w, n)
	if err != nil {
		return nil, err
	}
	size := uint64(w.Size)
	part := size / uint64(max(w.QPs, 1))
	if w.Kind == "ring-all-reduce" {
		part /= uint64(len(groups[0]))
	}
	if part > workload.MaxMessage || w.Size > maxVector {
		return nil, f.At(key+".size", "a message has at most 2 GiB, and a vector 1 TiB")
	}
	if err := f.exchange(c, key, w, float64(len(groups)), float64(len(groups[0]))); err != nil {
		return nil, err
	}
	for _, ranks := range groups {
		n := uint64(len(ranks))
		g := workload.Collective{Ranks: ranks, QPs: w.QPs, Rounds: w.Rounds, Class: w.Class}
		switch w.Kind {
		case "all-to-all":
			apps = append(apps, &workload.AllToAll{Collective: g, Bytes: size, Outstanding: w.Outstanding})
			c.Payload += size * n * (n - 1) * uint64(max(w.Rounds, 1))
			continue
		case "ring-all-reduce":
			apps = append(apps, &workload.RingAllReduce{Collective: g, Bytes: size})
		default:
			apps = append(apps, &workload.TreeAllReduce{Collective: g, Bytes: size})
		}
		c.Payload += size * 2 * (n - 1) * uint64(max(w.Rounds, 1))
	}
	return apps, nil
}

// exchange charges the messages of a collective operation for each of some jobs.
func (f *File) exchange(c *sim.Config, key string, w *Work, jobs, ranks float64) error {
	qps, rounds := float64(max(w.QPs, 1)), float64(max(w.Rounds, 1))
	connections, messages, bytes := ranks, 2*ranks, float64(w.Size)/qps
	switch w.Kind {
	case "all-to-all":
		connections, messages = ranks*(ranks-1), ranks*(ranks-1)
	case "ring-all-reduce":
		messages, bytes = 2*ranks*(ranks-1), bytes/ranks
	}
	return f.messages(c, key, jobs*messages*qps*rounds, bytes, jobs*connections*qps)
}

// groups returns the hosts of each job, by rank.
func (f *File) groups(c *sim.Config, key string, w *Work, n uint64) (groups [][]int, err error) {
	hosts, jobs := c.Hosts(), max(w.Jobs, 1)
	ranks := w.Ranks
	if ranks == 0 {
		ranks = hosts / jobs
	}
	if w.Jobs < 0 || ranks < 2 || ranks > hosts/jobs {
		return nil, f.At(key, "%d jobs of %d ranks on %d hosts: a job needs two hosts, and each host has one rank at most", jobs, ranks, hosts)
	}
	if err := f.connections(key, w); err != nil {
		return nil, err
	}
	all := make([]int, hosts)
	for h := range all {
		all[h] = h
	}
	if w.Random {
		all = rand.New(rand.NewPCG(c.Seed+n<<32, 0x72616e6b)).Perm(hosts)
	}
	for j := range jobs {
		groups = append(groups, all[j*ranks:(j+1)*ranks])
	}
	return groups, nil
}
