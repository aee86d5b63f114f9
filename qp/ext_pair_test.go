package qp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// extended are combinations of plug-ins that use extension headers.
var extended = map[string]func() Profile{
	"strict and go-back-N": func() Profile {
		return Profile{Kind: bth.ProfileIRN, Tracker: reorder.NewStrict(), Recovery: retrans.NewGoBackN(),
			ResponseTracker: reorder.NewStrict(), ResponseRecovery: retrans.NewGoBackN()}
	},
	"irn":            func() Profile { return irn(nil) },
	"irn, small":     func() Profile { return irn(retrans.Params{"bdp_packets": 5}) },
	"irn, go-back-N": func() Profile { return irn(retrans.Params{"go_back_n": 1}) },
	"irn, no SACK":   func() Profile { return irn(retrans.Params{"sack": 0, "bdp_fc": 0}) },
	"melo": func() Profile {
		return Profile{Kind: bth.ProfileMELO, Traits: Traits{OnlyHoles: true}, Tracker: tracker("melo", nil), Recovery: recovery("melo", nil),
			ResponseTracker: tracker("melo", nil), ResponseRecovery: recovery("melo", nil)}
	},
	"melo, exhausted": func() Profile {
		small := func() reorder.Tracker { return tracker("melo", reorder.Params{"pool_bits": 8, "bdp_packets": 16}) }
		return Profile{Kind: bth.ProfileMELO, Traits: Traits{OnlyHoles: true}, Tracker: small(), Recovery: recovery("melo", nil),
			ResponseTracker: small(), ResponseRecovery: recovery("melo", retrans.Params{"pool_bits": 16})}
	},
	"mp-rdma": func() Profile {
		return Profile{Kind: bth.ProfileMPRDMA, Traits: Traits{PerPacket: true}, Tracker: tracker("mp-rdma", nil), Recovery: recovery("mp-rdma", nil),
			Controller: plugIn(ccalgo.New, "mp-rdma", nil), Paths: plugIn(path.New, "mp-rdma", nil),
			ResponseTracker: tracker("mp-rdma", nil), ResponseRecovery: recovery("mp-rdma", nil),
			ResponseControl: plugIn(ccalgo.New, "mp-rdma", nil), ResponsePaths: plugIn(path.New, "mp-rdma", nil)}
	},
	"own fields":                         owned,
	"eunomia over go-back-N":             func() Profile { return eunomia(HoldAtReceiver, nil) },
	"eunomia over selective repeat":      func() Profile { return eunomia(HoldAtReceiver, selective) },
	"eunomia, last held at sender":       func() Profile { return eunomia(HoldAtSender, selective) },
	"eunomia, last held at sender, idle": func() Profile { return eunomia(HoldAtSenderIdle, nil) },
	"bitmap and selective repeat": func() Profile {
		sel := func() retrans.Recovery { return retrans.NewEunomia(retrans.NewSelective(64)) }
		return Profile{Kind: bth.ProfileEunomia, Traits: Traits{Head: true, HoldLast: HoldAtReceiver}, Tracker: reorder.NewMPRDMA(64), Recovery: sel(),
			ResponseTracker: reorder.NewMPRDMA(64), ResponseRecovery: sel()}
	},
}

// plugIn returns the plug-in of a name.
func plugIn[T any, P ~map[string]float64](factories func(string, P) (T, error), name string, p P) T {
	v, err := factories(name, p)
	if err != nil {
		panic(err)
	}
	return v
}

func tracker(name string, p reorder.Params) reorder.Tracker {
	return plugIn(reorder.New, name, p)
}

func recovery(name string, p retrans.Params) retrans.Recovery {
	return plugIn(retrans.New, name, p)
}

func irn(p retrans.Params) Profile {
	responses := reorder.NewIRN(110, false)
	responses.TrackResponses()
	return Profile{Kind: bth.ProfileIRN, Tracker: tracker("irn", nil), Recovery: recovery("irn", p),
		ResponseTracker: responses, ResponseRecovery: recovery("irn", p)}
}

// selective is Eunomia over selective repeat.
var selective = map[string]float64{"selective_repeat": 1}

func eunomia(hold HoldLast, p map[string]float64) Profile {
	return Profile{Kind: bth.ProfileEunomia, Traits: Traits{Head: true, HoldLast: hold}, Tracker: tracker("eunomia", nil), Recovery: recovery("eunomia", p),
		ResponseTracker: tracker("eunomia", nil), ResponseRecovery: recovery("eunomia", p)}
}

func forExtended(t *testing.T, test func(t *testing.T, c pairConfig)) {
	for name, profile := range extended {
		t.Run(name, func(t *testing.T) {
			c := lossless
			c.timeout = 9 // 2 ms: MELO's own timeouts must not exhaust eight of them
			c.profile = profile
			test(t, c)
		})
	}
}

func TestExtendedEverySize(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) {
		for _, op := range []WROpcode{WRSend, WRSendImm, WRSendWithInv, WRWrite, WRWriteImm, WRRead} {
			p := newPair(t, c)
			l := newWorkload(p, 0)
			rng := rand.New(rand.NewPCG(2, 2))
			for _, n := range []uint32{0, 1, 2, 3, 4, 255, 256, 257, 511, 512, 513, 1024, 5000, 20000} {
				l.add(op, n, 0, rng)
				if n <= 256 && op != WRRead {
					l.add(op, n, SendInline, rng)
				}
			}
			p.run(t)
			l.verify(t)
			ctr := p.ends[0].q.ctr
			if _, early := p.ends[0].q.req.rec.(retrans.Early); early {
				continue // FUSO retransmits unacknowledged packets
			}
			if ctr.RetransmittedPackets != 0 || ctr.LocalAckTimeoutErr != 0 {
				t.Errorf("%d: %d retransmissions, %d timeouts without loss", op, ctr.RetransmittedPackets, ctr.LocalAckTimeoutErr)
			}
		}
	})
}

// TestExtendedKeepsLast loses the first packets of many WRITEs. The last packets wait, up to the limit of kept
// packets, and never reach memory before the first.
func TestExtendedKeepsLast(t *testing.T) {
	c := lossless
	c.profile, c.unacked = extended["eunomia over selective repeat"], 128
	p := newPair(t, c)
	clear(p.ends[1].h.mem)
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2 * maxHeldLast {
		l.add(WRWrite, 512, 0, rng)
	}
	written := func(at uint64) bool { return !bytes.Equal(p.ends[1].h.mem[at:at+256], make([]byte, 256)) }
	lost, most := map[bth.PSN]bool{}, 0
	p.faults = func(_ int, packet *bth.Packet) fault {
		for _, o := range l.ops {
			if written(o.off+256) && !written(o.off) {
				t.Fatalf("the end of %d is there before its beginning", o.w.WRID)
			}
		}
		most = max(most, p.ends[1].q.x.held.copies)
		again := lost[packet.PSN]
		if packet.Opcode.IsWrite() && !packet.Opcode.Ends() {
			lost[packet.PSN] = true
			return fault{drop: !again}
		}
		return fault{}
	}
	p.run(t)
	l.verify(t)
	if most != maxHeldLast {
		t.Errorf("at most %d were kept", most)
	}
}

// TestExtendedEachFault loses, duplicates or delays each packet of a mixed workload in turn.
func TestExtendedEachFault(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) { eachFault(t, c, mixed) })
}

// TestExtendedAnyFaults draws operations and a pattern of loss, duplicates and delay. Each request must take effect
// once, in order, byte for byte.
func TestExtendedAnyFaults(t *testing.T) {
	forExtended(t, func(t *testing.T, c pairConfig) {
		rapid.Check(t, func(t *rapid.T) { anyFaults(t, c) })
	})
}

// TestExtendedForeign: a peer with another transport refuses requests at once, whichever end uses an extended
// transport. No request completes with success.
func TestExtendedForeign(t *testing.T) {
	rc := func() Profile { return Profile{} }
	mp, eu := extended["mp-rdma"], extended["eunomia over go-back-N"]
	for i, c := range [][2]func() Profile{{mp, rc}, {rc, mp}, {mp, eu}, {eu, mp}} {
		for _, op := range []WROpcode{WRWrite, WRRead} {
			for _, n := range []int{1, 8} {
				conf := lossless
				conf.profile, conf.other = c[0], c[1]
				p := newPair(t, conf)
				l := newWorkload(p, 0)
				for range n {
					l.add(op, 100, 0, rand.New(rand.NewPCG(1, 1)))
				}
				p.run(t)
				for j, wc := range p.ends[0].h.sendCQ {
					if j == 0 && wc.Status != StatusRemInvReqErr || j > 0 && wc.Status != StatusWRFlushErr {
						t.Errorf("%d, %d of %v: completion %d is %+v", i, n, op, j, wc)
					}
				}
				if s := p.ends[1].q.State(); s != Err {
					t.Errorf("%d, %d of %v: the end that refuses is in state %v", i, n, op, s)
				}
				if len(p.ends[0].h.sendCQ) != n || p.ends[0].q.State() != Err || p.count > 3*n {
					t.Errorf("%d, %d of %v: %d completions, state %v, %d packets", i, n, op, len(p.ends[0].h.sendCQ), p.ends[0].q.State(), p.count)
				}
			}
		}
	}
}
