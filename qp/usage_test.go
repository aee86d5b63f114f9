package qp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// TestUsage checks that both sides count each operation once, with its payload.
func TestUsage(t *testing.T) {
	var used [2]qp.Usage
	p, err := qptest.NewPair(qptest.Options{Config: func(i int, c *qp.Config) { c.Usage = &used[i] }})
	if err != nil {
		t.Fatal(err)
	}
	a, b := p.Nodes[0], p.Nodes[1]
	a.H.Register(1, 0, 8192, qp.AccessLocalWrite)
	b.H.Register(2, 0, 8192, qp.AccessLocalWrite|qp.AccessRemoteWrite|qp.AccessRemoteRead|qp.AccessRemoteAtomic|qp.AccessFlushGlobal)
	b.Recv(1, qp.SGE{Addr: 0, Length: 4096, LKey: 2})
	for _, w := range []qp.SendWQE{
		{Opcode: qp.WRSend, Length: 3000}, {Opcode: qp.WRWrite, Length: 2000}, {Opcode: qp.WRWrite, Length: 100},
		{Opcode: qp.WRRead, Length: 1500}, {Opcode: qp.WRFetchAdd, Length: 8}, {Opcode: qp.WRAtomicWrite, Length: 8},
		{Opcode: qp.WRFlush},
	} {
		w.SGEs, w.RKey = []qp.SGE{{Length: w.Length, LKey: 1}}, 2
		switch w.Opcode {
		case qp.WRFlush:
			w.SGEs, w.Length, w.Flush = nil, 0, qp.FlushWR{Length: 4000, FETH: bth.FETH{Type: bth.FlushGlobal}}
		case qp.WRAtomicWrite:
			w.SGEs, w.Inline, w.Flags = nil, make([]byte, 8), qp.SendInline
		}
		a.Send(w)
	}
	p.Run(mono.Time(1e9))
	want := [qp.Operations]qp.Work{qp.OpSend: {1, 3000}, qp.OpWrite: {2, 2100}, qp.OpRead: {1, 1500}, qp.OpAtomic: {2, 16}, qp.OpFlush: {1, 0}}
	if d := cmp.Diff([2]qp.Usage{{Requested: want}, {Served: want}}, used); d != "" {
		t.Error(d)
	}
}
