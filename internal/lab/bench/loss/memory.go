package loss

import (
	"fmt"
	"runtime"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
)

// state is the memory of a connection of a profile.
type state struct {
	name    string
	paper   string // the paper's figure
	counted string // ... and ours, counted by the paper's method
	bytes   int    // of Go, plug-ins only
}

// footprint reports a plug-in's memory, counted as in its paper.
type footprint interface{ Footprint() int }

func sum(parts ...any) (n int) {
	for _, p := range parts {
		n += p.(footprint).Footprint()
	}
	return n
}

// counts are the papers' counting methods, in the order of the profiles.
var counts = []struct {
	name, paper string
	count       func(p *qp.Profile) (string, error)
}{
	{"irn", "145 at most", func(p *qp.Profile) (string, error) {
		disorder(p.Tracker, 2)
		return fmt.Sprint(sum(p.Tracker, p.ResponseTracker, p.Recovery, p.ResponseRecovery), ": requests and responses, both ends"), nil
	}},
	{"melo", "23 on average at 300 connections", func(p *qp.Profile) (string, error) {
		const connections = 300
		pool, err := bitpool.New(1024)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%.1f: receiver, and its share of a receiver's and a sender's pool", float64(sum(p.Tracker))+float64(2*sum(pool))/connections), nil
	}},
	{"mp-rdma", "66", func(p *qp.Profile) (string, error) {
		const cwnd = 4
		return fmt.Sprint(sum(p.Tracker, p.Recovery, p.Paths)+cwnd, ": one direction, both ends"), nil
	}},
	{"eunomia", "4 to 82", func(p *qp.Profile) (string, error) {
		inOrder := sum(p.Tracker)
		disorder(p.Tracker, 256)
		return fmt.Sprint(inOrder, " to ", sum(p.Tracker), ": receiver"), nil
	}},
}

// disorder passes all but the first of n packets to a receiver. Each packet is a message.
func disorder(t reorder.Tracker, n int) {
	for i := 1; i < n; i++ {
		if a, ok := t.(reorder.Agent); ok {
			a.Announce(bth.PSN{}, false)
		}
		psn := bth.MakePSN(uint32(i))
		t.Commit(psn, t.Classify(psn))
	}
}

// measureStates makes many connections of each profile and measures their memory.
func measureStates() (all []state, err error) {
	const connections = 1000
	for _, c := range counts {
		m := profile.NewMaker(profile.Link{})
		keep := make([]qp.Profile, connections)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keep {
			if keep[i], err = m.New(c.name, profile.Spec{}); err != nil {
				return nil, err
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		s := state{name: c.name, paper: c.paper, bytes: int(after.HeapAlloc-before.HeapAlloc) / connections}
		if s.counted, err = c.count(&keep[0]); err != nil {
			return nil, err
		}
		runtime.KeepAlive(keep)
		all = append(all, s)
	}
	return all, nil
}
