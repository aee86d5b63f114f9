package verbs_test

import (
	"context"
	"testing"

	"roced.io/roced/verbs"
)

// BenchmarkPingPong measures the round trip of a SEND between two daemons in this process.
func BenchmarkPingPong(b *testing.B) {
	for name, wait := range map[string]func(*verbs.CQ, context.Context, []verbs.WC) (int, error){
		"Wait": (*verbs.CQ).Wait, "PollWait": (*verbs.CQ).PollWait,
	} {
		b.Run(name, func(b *testing.B) {
			x, y := connected(b, verbs.QPInitAttr{Type: verbs.RC})
			ctx := context.Background()
			done := make(chan struct{})
			wcs, sge := make([]verbs.WC, 1), []verbs.SGE{x.mr.SGE(0, 8)}
			go func() {
				defer close(done)
				answer(b, y, wait)
			}()
			b.ReportAllocs()
			for b.Loop() {
				if x.qp.PostRecv(&verbs.RecvWR{SGEs: sge}) != nil || x.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, SGEs: sge}) != nil {
					b.Fatal("cannot post")
				}
				if _, err := wait(x.cq, ctx, wcs); err != nil || wcs[0].Err() != nil {
					b.Fatal(err, wcs[0].Err())
				}
			}
			must(b, y.ctx.Close())
			<-done
		})
	}
}

// answer returns every message until the context is closed.
func answer(b *testing.B, n *node, wait func(*verbs.CQ, context.Context, []verbs.WC) (int, error)) {
	wcs, sge := make([]verbs.WC, 1), []verbs.SGE{n.mr.SGE(0, 8)}
	for {
		if err := n.qp.PostRecv(&verbs.RecvWR{SGEs: sge}); err != nil {
			return
		}
		if _, err := wait(n.cq, context.Background(), wcs); err != nil {
			return
		}
		if err := n.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, SGEs: sge}); err != nil {
			return
		}
	}
}
