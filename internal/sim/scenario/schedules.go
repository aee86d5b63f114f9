package scenario

import (
	"math"
	"slices"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/workload"
)

// goal returns the schedule of a file. Its ranks are consecutive hosts from w.From on, or random ones.
func (f *File) goal(c *sim.Config, key string, w *Work, n uint64, load func(string) ([]byte, error)) ([]workload.App, error) {
	text, err := load(w.File)
	if err != nil {
		return nil, f.At(key+".file", "%v", err)
	}
	s, ranks, err := workload.ReadGOAL(string(text))
	if err != nil {
		return nil, f.At(key+".file", "%s: %v", w.File, err)
	}
	if w.From < 0 || ranks > c.Hosts()-w.From {
		return nil, f.At(key, "%s has %d ranks, and from host %d on there are %d hosts: enlarge the topology or choose another from", w.File, ranks, w.From, c.Hosts()-w.From)
	}
	all, err := f.groups(c, key, &Work{Random: w.Random, Ranks: c.Hosts()}, n)
	if err != nil {
		return nil, err
	}
	s.Hosts = all[0][w.From : w.From+ranks]
	return f.scheduled(c, key, w, s)
}

// iterations returns the schedules of training jobs.
func (f *File) iterations(c *sim.Config, key string, w *Work, n uint64) (apps []workload.App, err error) {
	groups, err := f.groups(c, key, w, n)
	if err != nil {
		return nil, err
	}
	i := workload.Iterations{Pattern: w.Pattern, Ranks: len(groups[0]), Bytes: uint32(w.Size), Rounds: w.Rounds, Compute: w.Compute, Group: w.Group}
	switch {
	case !slices.Contains(workload.Patterns(), w.Pattern):
		return nil, f.At(key+".pattern", "%v", suggest.OneOf(w.Pattern, workload.Patterns()))
	case w.Pattern == "hierarchical" && (w.Group < 2 || i.Ranks%w.Group != 0 || i.Ranks == w.Group):
		return nil, f.At(key+".group", "%d: must divide the %d ranks into several groups of at least two", w.Group, i.Ranks)
	case w.Pattern != "hierarchical" && w.Group != 0:
		return nil, f.At(key+".group", "only the pattern hierarchical has groups")
	case w.Size < 1 || w.Rounds < 0 || w.Compute < 0:
		return nil, f.At(key, "iterations need a size; rounds and compute must not be negative")
	case i.Messages()*float64(max(w.Rounds, 1)) > 1e7:
		return nil, f.At(key, "more than ten million messages of a job: reduce ranks or rounds")
	}
	for _, ranks := range groups {
		s := i.Schedule()
		s.Hosts = ranks
		a, err := f.scheduled(c, key, w, s)
		if err != nil {
			return nil, err
		}
		apps = append(apps, a...)
	}
	return apps, nil
}

// scheduled charges the messages of s.
func (f *File) scheduled(c *sim.Config, key string, w *Work, s *workload.Schedule) ([]workload.App, error) {
	messages, bytes, pairs := 0.0, 0.0, map[[2]int32]bool{}
	var planned []workload.Planned
	for k := range s.Ops {
		o := &s.Ops[k]
		if o.Kind != workload.SendOp {
			continue
		}
		messages++
		bytes += float64(o.Bytes)
		if way := [2]int32{o.Rank, o.Peer}; !pairs[way] {
			pairs[way] = true
			planned = append(planned, workload.Planned{Src: s.Hosts[o.Rank], Dst: s.Hosts[o.Peer]})
		}
	}
	if err := f.joined(c, key, planned); err != nil {
		return nil, err
	}
	c.Payload += uint64(math.Min(bytes, 1e18))
	s.Class, s.At = w.Class, w.At
	return []workload.App{s}, f.messages(c, key, messages, bytes/max(messages, 1), float64(len(pairs)))
}
