package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"time"

	"roced.io/roced/internal/base/cpushare"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// pairsResult is the cost of many queue pairs.
type pairsResult struct {
	Hosts, Pairs  int
	BytesPerPair  float64 // memory, connected and idle
	ConnectMicros float64
	Links         uint64
	Seconds       float64 // for a message on each
}

// idle is a user that counts completions.
type idle struct{ done int }

func (u *idle) Completed(engine.Time, *nic.QP, qp.CQE, bool) { u.done++ }

// pairs connects 100,000 pairs of queue pairs on 1,024 hosts at 400 Gb/s, and sends a message on each pair.
func pairs() (*pairsResult, error) {
	g, err := fabric.FatTree(fabric.Wires{HostRate: 400e9, Delay: engine.Microsecond}, 16)
	if err != nil {
		return nil, err
	}
	e := new(engine.Engine)
	k, err := nic.NewCluster(e, nic.Config{MTU: 1000, Classes: nic.Classes{Ack: 7, CNP: 7}, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(e, fabric.Config{Graph: g, Seed: 1, Owner: o, Switch: func(int, int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 64 << 20}, PFC: fabric.PFCConfig{Lossless: 1, Headroom: 120_000, Reserve: 2096}, Port: fabric.PortConfig{Strict: 1 << 7}}
		}})
	}})
	if err != nil {
		return nil, err
	}
	makers := make([]*profile.Maker, g.Hosts)
	for h := range makers {
		makers[h] = profile.NewMaker(profile.Link{Rate: 400e9, RTT: 12 * time.Microsecond})
	}
	r := &pairsResult{Hosts: g.Hosts, Pairs: 100_000}
	u, rng, qps := new(idle), rand.New(rand.NewPCG(1, 1)), make([]*nic.QP, 0, r.Pairs)
	before, from := heap(), time.Now()
	for range r.Pairs {
		a := rng.IntN(g.Hosts)
		x, _, err := k.Connect(a, (a+1+rng.IntN(g.Hosts-1))%g.Hosts, nic.QPConfig{User: u, MaxUnacked: 1024,
			Profile: func(h int) (qp.Profile, error) { return makers[h].New("rc", profile.Spec{}) }})
		if err != nil {
			return nil, err
		}
		qps = append(qps, x)
	}
	r.ConnectMicros = time.Since(from).Seconds() * 1e6 / float64(r.Pairs)
	r.BytesPerPair = (heap() - before) / float64(r.Pairs)
	from = time.Now()
	for _, x := range qps {
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 10_000})
	}
	e.Drain()
	r.Seconds = time.Since(from).Seconds()
	if u.done != r.Pairs {
		return nil, fmt.Errorf("%d of %d messages done", u.done, r.Pairs)
	}
	for i := range k.Network().Links() {
		r.Links += k.Network().Links()[i].Stats.Packets
	}
	return r, nil
}

// heap returns the bytes in use.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// share divides the time of a scenario by component.
type share struct {
	name string
	cpu  []cpushare.Share
}

// shares runs a scenario and measures the time of each component.
func shares(program string, s scenario) (share, error) {
	out, err := exec.Command(program, append(s.args(), "--profile")...).Output()
	if err != nil {
		return share{}, fmt.Errorf("%s: %w", s.name, err)
	}
	var res struct{ CPU []cpushare.Share }
	err = json.Unmarshal(out, &res)
	return share{s.name, res.CPU}, err
}

// of returns a component's share of the time.
func (x *share) of(part int) float64 {
	sum := time.Duration(1)
	for _, c := range x.cpu {
		sum += c.Time
	}
	return float64(x.cpu[part].Time) / float64(sum)
}
