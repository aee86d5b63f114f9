package qp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/qp/qptest"
)

// TestRefusedAhead: a SEND overtakes others and finds no receive. The requester retransmits it without the queue
// pair's timeout: Eunomia and MP-RDMA have no other timeout.
func TestRefusedAhead(t *testing.T) {
	for _, tr := range benchTransports[1:] {
		for _, packets := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", tr.name, packets), func(t *testing.T) {
				spec := tr.spec
				spec.Recovery.Params = map[string]float64{}
				for name, v := range tr.spec.Recovery.Params {
					if name != "rto_us" {
						spec.Recovery.Params[name] = v
					}
				}
				overtaken := false
				p, err := qptest.NewPair(qptest.Options{
					Attr: qp.Attr{PathMTU: 1, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, Timeout: 0},
					Config: func(_ int, c *qp.Config) {
						var err error
						if c.Profile, err = profile.NewMaker(profile.Link{}).New(tr.profile, spec); err != nil {
							t.Fatal(err)
						}
					},
					Hook: func(_ int, p *bth.Packet) []time.Duration {
						if p.Opcode.IsWrite() && !overtaken {
							overtaken = true
							return []time.Duration{10 * time.Microsecond}
						}
						return []time.Duration{0}
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				a, b := p.Nodes[0], p.Nodes[1]
				for _, n := range p.Nodes {
					n.H.Register(1, 1<<16, 1<<16, qp.AccessLocalWrite|qp.AccessRemoteWrite)
				}
				list := qp.SGE{Addr: 1 << 16, Length: uint32(256 * packets), LKey: 1}
				b.Recv(1, list)
				a.Send(qp.SendWQE{WRID: 1, Opcode: qp.WRWrite, Flags: qp.SendSignaled, RKey: 1, RemoteVA: 1 << 16, SGEs: []qp.SGE{{Addr: 1 << 16, Length: 8, LKey: 1}}})
				for id := range uint64(2) {
					a.Send(qp.SendWQE{WRID: 2 + id, Opcode: qp.WRSend, Flags: qp.SendSignaled, SGEs: []qp.SGE{list}})
				}
				if !p.Wait(func() bool { return len(b.H.RecvCQ) == 1 }) {
					t.Fatal("the first message does not arrive")
				}
				b.Recv(2, list)
				if !p.Wait(func() bool { return len(a.H.SendCQ) == 3 }) || a.H.SendCQ[2].Status != qp.StatusSuccess {
					t.Fatalf("%+v", a.H.SendCQ)
				}
			})
		}
	}
}

// TestMemoryIsFreed: a queue pair that breaks, is reset or is freed frees its part of the memory shared by the NIC's
// connections. This holds for requests and responses, at either end.
func TestMemoryIsFreed(t *testing.T) {
	ends := map[string]func(q *qp.QP) error{
		"ERR":   func(q *qp.QP) error { return q.Modify(1<<40, qp.Attr{State: qp.Err}, qp.AttrState) },
		"RESET": func(q *qp.QP) error { return q.Modify(1<<40, qp.Attr{State: qp.Reset}, qp.AttrState) },
		"freed": func(q *qp.QP) error { q.Free(); return nil },
	}
	for _, tr := range benchTransports[1:] {
		for name, end := range ends {
			t.Run(tr.name+"/"+name, func(t *testing.T) {
				var parts []interface{ Footprint() int }
				fresh, used := []int{}, map[int]bool{}
				for seed := range 8 {
					parts = nil
					lost := 0
					p, err := qptest.NewPair(qptest.Options{
						Config: func(_ int, c *qp.Config) {
							var err error
							if c.Profile, err = profile.NewMaker(profile.Link{}).New(tr.profile, tr.spec); err != nil {
								t.Fatal(err)
							}
							for _, part := range []any{c.Profile.Tracker, c.Profile.ResponseTracker, c.Profile.Recovery, c.Profile.ResponseRecovery} {
								if f, ok := part.(interface{ Footprint() int }); ok {
									parts = append(parts, f)
								}
							}
						},
						Hook: func(int, *bth.Packet) []time.Duration {
							if lost++; lost%5 == seed%5 {
								return nil
							}
							return []time.Duration{0}
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					if seed == 0 {
						for _, f := range parts {
							fresh = append(fresh, f.Footprint())
						}
					}
					for _, n := range p.Nodes {
						n.H.Register(1, 1<<16, 1<<16, qp.AccessLocalWrite|qp.AccessRemoteRead|qp.AccessRemoteWrite)
						for i, op := range []qp.WROpcode{qp.WRRead, qp.WRWrite, qp.WRRead, qp.WRWrite} {
							n.Send(qp.SendWQE{WRID: uint64(i), Opcode: op, RKey: 1, RemoteVA: 1 << 16, SGEs: []qp.SGE{{Addr: 1 << 16, Length: 1 << 13, LKey: 1}}})
						}
					}
					p.Run(p.Now.Add(time.Duration(3+seed) * time.Microsecond))
					for i, f := range parts {
						used[i] = used[i] || f.Footprint() > fresh[i]
					}
					for _, n := range p.Nodes {
						if err := end(n.Q); err != nil {
							t.Fatal(err)
						}
					}
					for i, f := range parts {
						if f.Footprint() > fresh[i] {
							t.Errorf("seed %d: %T has %d bytes, %d at first", seed, f, f.Footprint(), fresh[i])
						}
					}
				}
				for i := range parts {
					if grows := strings.HasPrefix(tr.name, "eunomia") || tr.name == "melo"; grows && !used[i] {
						t.Errorf("part %d of %T took nothing", i, parts[i])
					}
				}
			})
		}
	}
}
