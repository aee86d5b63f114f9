package qp_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// long makes all numbers of all transports wrap, PSNs several times.
var long = flag.Bool("qp.long", false, "soak over several wraps of all sequence numbers")

// connect reconnects both ends of b with PSN first at an instant.
func (b *bench) connect(tb testing.TB, first bth.PSN, at mono.Time) {
	b.now = at
	for i := range b.ends {
		e := &b.ends[i]
		e.out, e.head, e.h.taken, e.h.left = e.out[:0], 0, 0, 0
		a := benchAttr(21 - i)
		a.SQPSN, a.RQPSN = first.Uint32(), first.Uint32()
		if err := e.q.Modify(at, qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
			tb.Fatal(err)
		}
		if err := qptest.Connect(at, e.q, qp.RC, a, qp.RTS); err != nil {
			tb.Fatal(err)
		}
	}
}

// do carries out n requests of the given size, at most depth of them outstanding. No request may take longer than a
// timeout and its retries.
func (b *bench) do(tb testing.TB, op qp.WROpcode, n, depth int, bytes uint32) {
	tb.Helper()
	e := &b.ends[0]
	e.h.wqe = qp.SendWQE{Opcode: op, Length: bytes, RemoteVA: 1 << 20, RKey: 1,
		SGEs: []qp.SGE{{Addr: 1 << 20, Length: bytes, LKey: 1}}}
	b.ends[1].h.wqe.SGEs = e.h.wqe.SGEs
	e.h.left, e.h.depth = n, depth
	e.q.Doorbell(b.now)
	before, rest := b.now, n
	for e.h.left+e.h.taken > 0 {
		b.turn()
		if e.h.left+e.h.taken < rest {
			before, rest = b.now, e.h.left+e.h.taken
		}
		if e.h.failed || b.ends[1].h.failed || b.now.Sub(before) > 100*time.Second {
			tb.Fatalf("operation %d: %d not begun, %d not done after %v, PSN %d, failed %v",
				op, e.h.left, e.h.taken, b.now.Sub(before), e.q.Attr().SQPSN, e.h.failed)
		}
	}
}

// TestManyPackets starts with a READ and an atomic, which the responder keeps to answer duplicates. Packets for more
// than half of the PSN circle follow.
func TestManyPackets(t *testing.T) {
	packets := 1<<23 + 1<<12
	if *long {
		packets = 3<<24 + 1<<12
	} else if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tr := range benchTransports {
		if !*long && tr.name != "rc" {
			continue // with -qp.long
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tr.profile, tr.spec, 0)
			b.do(t, qp.WRRead, 1, 1, 8)
			b.do(t, qp.WRFetchAdd, 1, 1, 8)
			b.do(t, qp.WRWrite, packets, 512, 8)
			b.do(t, qp.WRRead, 3, 1, 8)
		})
	}
}

// TestEdges begins at PSNs and instants where numbers change their sign or wrap, with loss and with idle times of
// days.
func TestEdges(t *testing.T) {
	rounds := 1
	if *long {
		rounds = 50
	}
	operations := []qp.WROpcode{qp.WRWrite, qp.WRSend, qp.WRRead, qp.WRFetchAdd, qp.WRWriteImm}
	for _, tr := range benchTransports {
		t.Run(tr.name, func(t *testing.T) {
			b := newBench(t, tr.profile, tr.spec, 0.02)
			for i := range rounds {
				for _, at := range []mono.Time{1, 1<<31 - 1000, 1<<32 - 1000, 1<<53 + 1, 1 << 61} {
					for _, first := range []int{0, 1<<23 - 50, 1 << 23, 1<<24 - 50, 1<<24 - 1 - 7*i} {
						b.connect(t, bth.MakePSN(uint32(first)), at)
						for _, op := range operations {
							size := uint32(3 * benchMTU)
							if op == qp.WRFetchAdd {
								size = 8
							}
							b.do(t, op, 60, 20, size)
							b.now = b.now.Add(100 * 24 * time.Hour)
						}
					}
				}
			}
		})
	}
}

// TestSequenceNumbersWrap makes the numbers of messages, receives and READs wrap. They have the width of PSNs.
func TestSequenceNumbersWrap(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: -qp.long")
	}
	for _, tr := range benchTransports {
		for _, op := range []qp.WROpcode{qp.WRSend, qp.WRRead} {
			t.Run(fmt.Sprint(tr.name, op), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, tr.profile, tr.spec, 0.0001)
				b.do(t, op, 1<<24+1<<23+1<<12, 512, 8)
			})
		}
	}
}
