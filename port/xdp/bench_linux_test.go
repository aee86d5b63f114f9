package xdp

import (
	"fmt"
	"testing"
)

// BenchmarkPort sends and receives batches on one core. The time per frame is the total cost of a frame, including the
// kernel.
func BenchmarkPort(b *testing.B) {
	for _, m := range modes {
		for _, size := range []int{64, 1040, 4112} {
			b.Run(fmt.Sprintf("%s/%d", m.name, size), func(b *testing.B) {
				bed := veth(b, 9000, 1)
				from, to := open(b, bed, 0, m.cfg), open(b, bed, 1, m.cfg)
				f, buf := roce(0, false, 1, size), make([]byte, 1<<16)
				b.SetBytes(int64(f.Len))
				b.ReportAllocs()
				for sent := 0; sent < b.N; {
					n := min(txBatch, b.N-sent)
					for range n {
						if err := from.Send(clock(), f); err != nil {
							b.Fatal(err)
						}
					}
					from.flush(clock())
					for range n {
						if _, _, err := to.Recv(clock(), buf); err != nil {
							b.Fatal(err)
						}
					}
					sent += n
				}
			})
		}
	}
}
