package server

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
)

// BenchmarkWrite measures 8-byte WRITEs, one at a time, with doorbells by command, for several poll settings of the
// shards.
func BenchmarkWrite(b *testing.B) {
	for _, poll := range []time.Duration{0, 20 * time.Microsecond, 50 * time.Microsecond, 200 * time.Microsecond, -1} {
		b.Run(fmt.Sprint(poll), func(b *testing.B) {
			h := pair(b, testLimits)
			for _, x := range h {
				if err := x.shard.SetPoll(context.Background(), poll); err != nil {
					b.Fatal(err)
				}
			}
			x, y := connected(b, h)
			var c rxe.WC
			for b.Loop() {
				x.write(y.key, 8)
				x.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: x.qp})
				for !x.wc.Next(&c) {
					runtime.Gosched()
				}
				x.wc.Release()
			}
		})
	}
}
