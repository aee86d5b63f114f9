package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/qp/qptest"
)

// lateHost is a host whose memory is randomly unavailable.
type lateHost struct {
	*qptest.Host
	rng  *rand.Rand
	late bool
}

func (h *lateHost) Later() bool { return h.late }

func (h *lateHost) there() bool {
	h.late = h.rng.IntN(3) == 0
	return !h.late
}

func (h *lateHost) ReadLocal(lkey uint32, va uint64, n int, ahead uint32) ([]byte, bool) {
	if !h.there() {
		return nil, false
	}
	return h.Host.ReadLocal(lkey, va, n, ahead)
}

func (h *lateHost) ReadRemote(rkey uint32, va uint64, n int, ahead uint32) ([]byte, bool) {
	if !h.there() {
		return nil, false
	}
	return h.Host.ReadRemote(rkey, va, n, ahead)
}

func (h *lateHost) CompareSwap(rkey uint32, va uint64, compare, swap uint64) (uint64, bool) {
	if !h.there() {
		return 0, false
	}
	return h.Host.CompareSwap(rkey, va, compare, swap)
}

func (h *lateHost) FetchAdd(rkey uint32, va uint64, add uint64) (uint64, bool) {
	if !h.there() {
		return 0, false
	}
	return h.Host.FetchAdd(rkey, va, add)
}

func (h *lateHost) Sync() bool { return h.there() && h.Host.Sync() }

// latePair returns a pair of hosts with late memory. Key 1 covers the send buffer of 64 KiB at 64 KiB, and a write
// target of the same size.
func latePair(t *testing.T, typ qp.Type, name string, s profile.Spec, seed uint64, loss float64) *qptest.Pair {
	rng := rand.New(rand.NewPCG(seed, 1))
	p, err := qptest.NewPair(qptest.Options{
		Type: typ, Attr: qp.Attr{PathMTU: []qp.MTU{1, 1000, 300}[seed%3], QKey: 5, Timeout: 12, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1},
		Config: func(_ int, c *qp.Config) {
			c.Host = &lateHost{Host: c.Host.(*qptest.Host), rng: rng}
			if typ == qp.RC {
				var err error
				if c.Profile, err = profile.NewMaker(profile.Link{}).New(name, s); err != nil {
					t.Fatal(err)
				}
			}
		},
		Hook: func(int, *bth.Packet) []time.Duration {
			if rng.Float64() < loss {
				return nil
			}
			return []time.Duration{time.Duration(rng.IntN(2)) * 3 * time.Microsecond}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.Nodes {
		r := n.H.Register(1, 1<<16, 1<<17, qp.AccessLocalWrite|qp.AccessRemoteRead|qp.AccessRemoteWrite|qp.AccessRemoteAtomic|qp.AccessFlushGlobal)
		for i := range r.Mem[:1<<16] {
			r.Mem[i] = byte(rng.Uint32())
		}
	}
	return p
}

// TestLater: every operation of every transport executes once, over memory that is only occasionally available.
// qptest panics if a packet that must be retried has changed anything.
func TestLater(t *testing.T) {
	const size, each = 1000, 4
	operations := []qp.WROpcode{qp.WRWrite, qp.WRWriteImm, qp.WRSend, qp.WRSendImm, qp.WRRead, qp.WRFetchAdd, qp.WRCmpSwap, qp.WRAtomicWrite, qp.WRFlush}
	for _, tr := range benchTransports {
		t.Run(tr.name, func(t *testing.T) {
			for seed := range uint64(20) {
				p := latePair(t, qp.RC, tr.profile, tr.spec, seed, 0.05*float64(seed%2))
				from, to := p.Nodes[0], p.Nodes[1]
				mem := func(n *qptest.Node, off, length int) []byte { return n.H.Regions[1].Mem[off : off+length] }
				const counter = 1<<17 - 64
				n := 0
				for range each {
					for _, op := range operations {
						off := n * 1024
						w := qp.SendWQE{WRID: uint64(n), Opcode: op, Flags: qp.SendSignaled, RKey: 1, RemoteVA: 1<<16 + 1<<16 + uint64(off),
							SGEs: []qp.SGE{{Addr: 1<<16 + uint64(off), Length: 300, LKey: 1}, {Addr: 1<<16 + uint64(off) + 300, Length: size - 300, LKey: 1}}}
						switch op {
						case qp.WRRead:
							w.RemoteVA = 1<<16 + uint64(off)
							w.SGEs = []qp.SGE{{Addr: 1<<17 + uint64(off), Length: size, LKey: 1}}
						case qp.WRFetchAdd, qp.WRCmpSwap:
							w.RemoteVA, w.CompareAdd, w.Swap = 1<<16+counter, 1, 1<<40 // compares without success
							w.SGEs = []qp.SGE{{Addr: 1<<17 + uint64(off), Length: 8, LKey: 1}}
							if op == qp.WRCmpSwap {
								w.CompareAdd = 1 << 50
							}
						case qp.WRFlush:
							w.SGEs, w.Flush = nil, qp.FlushWR{Length: size, FETH: bth.FETH{Type: bth.FlushGlobal}}
						case qp.WRAtomicWrite:
							w.Flags |= qp.SendInline
							w.SGEs, w.Inline = nil, bytes.Repeat([]byte{byte(n)}, 8)
						case qp.WRSend, qp.WRSendImm, qp.WRWriteImm:
							to.Recv(uint64(n), qp.SGE{Addr: 1<<17 + uint64(off), Length: 10, LKey: 1}, qp.SGE{Addr: 1<<17 + uint64(off) + 10, Length: size, LKey: 1})
						}
						from.Send(w)
						n++
					}
				}
				if !p.Wait(func() bool { return len(from.H.SendCQ) == n }) {
					t.Fatalf("seed %d: %d of %d completions, states %v and %v", seed, len(from.H.SendCQ), n, from.Q.State(), to.Q.State())
				}
				for i, c := range from.H.SendCQ {
					op, off := operations[i%len(operations)], i*1024
					if c.Status != qp.StatusSuccess || c.WRID != uint64(i) {
						t.Fatalf("seed %d: completion %d is %+v", seed, i, c)
					}
					a, b := mem(from, off, size), mem(to, 1<<16+off, size)
					switch op {
					case qp.WRRead:
						a, b = mem(to, off, size), mem(from, 1<<16+off, size)
					case qp.WRFetchAdd:
						a, b = binary.NativeEndian.AppendUint64(nil, uint64(i/len(operations))), mem(from, 1<<16+off, 8)
					case qp.WRCmpSwap:
						a, b = binary.NativeEndian.AppendUint64(nil, uint64(i/len(operations)+1)), mem(from, 1<<16+off, 8)
					case qp.WRFlush:
						a, b = nil, nil
					case qp.WRAtomicWrite:
						a, b = bytes.Repeat([]byte{byte(i)}, 8), mem(to, 1<<16+off, 8)
					}
					if !bytes.Equal(a, b) {
						t.Fatalf("seed %d: data of operation %d (%v) differ", seed, i, op)
					}
				}
				if got := len(to.H.RecvCQ); got != 3*each {
					t.Fatalf("seed %d: %d receives completed, want %d", seed, got, 3*each)
				}
			}
		})
	}
}

// TestLaterUnreliable: UC and UD lose nothing either.
func TestLaterUnreliable(t *testing.T) {
	for _, typ := range []qp.Type{qp.UC, qp.UD} {
		t.Run(fmt.Sprint(typ), func(t *testing.T) {
			p := latePair(t, typ, "", profile.Spec{}, 7, 0)
			p.Hook = nil
			from, to := p.Nodes[0], p.Nodes[1]
			const size, n = 200, 40
			for i := range n {
				to.Recv(uint64(i), qp.SGE{Addr: 1<<17 + uint64(i*1024), Length: size + 40, LKey: 1})
				from.Send(qp.SendWQE{WRID: uint64(i), Opcode: qp.WRSend, Flags: qp.SendSignaled, AH: 1, RemoteQPN: 21, RemoteQKey: 5,
					SGEs: []qp.SGE{{Addr: 1<<16 + uint64(i*1024), Length: size, LKey: 1}}})
			}
			if !p.Wait(func() bool { return len(from.H.SendCQ) == n && len(to.H.RecvCQ) == n }) {
				t.Fatalf("%d sent, %d received", len(from.H.SendCQ), len(to.H.RecvCQ))
			}
			grh := map[qp.Type]int{qp.UD: 40}[typ]
			for i := range n {
				at := 1<<16 + i*1024 + grh
				if !bytes.Equal(from.H.Regions[1].Mem[i*1024:][:size], to.H.Regions[1].Mem[at:at+size]) {
					t.Fatalf("message %d differs", i)
				}
			}
		})
	}
}
