package flor

import (
	"fmt"
	"sync"
	"testing"

	"roced.io/roced/internal/lab"
)

// BenchmarkCalls runs eight calls at a time.
func BenchmarkCalls(b *testing.B) {
	for mode, cfg := range modes {
		for _, n := range []int{128, 1 << 20} {
			b.Run(fmt.Sprint(mode, "/", n), func(b *testing.B) {
				e := newEnds(b, cfg)
				ctx := b.Context()
				go func() {
					for {
						m, err := e.conn[1].Recv(ctx)
						if err != nil {
							return
						}
						_ = m.PostReply(ctx, &Message{}, nil)
						m.Release()
					}
				}()
				b.SetBytes(int64(n))
				b.ResetTimer()
				var callers sync.WaitGroup
				for w := range 8 {
					callers.Go(func() {
						for range (b.N + w) / 8 {
							m, err := e.conn[0].NewMessage(ctx, n)
							lab.Must(b, err)
							r, err := e.conn[0].Call(ctx, m)
							lab.Must(b, err)
							r.Release()
						}
					})
				}
				callers.Wait()
				b.StopTimer()
				c := e.dev[0].Counters()
				b.ReportMetric(float64(c.WQEs)/float64(b.N), "WQEs/op")
				b.ReportMetric(float64(c.AcksReceived)/float64(b.N), "acks/op")
			})
		}
	}
}
