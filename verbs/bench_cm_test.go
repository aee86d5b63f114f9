package verbs_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// BenchmarkDial sets up and closes connections by rdma_cm, eight at a time, each with its own queue pairs. Two daemons
// run in this process. The processor time is that of both daemons and both programs.
func BenchmarkDial(b *testing.B) {
	h := lab(b)
	x, y := h[0].open(b), h[1].open(b)
	cm, err := verbs.OpenCM("", verbs.WithRunDir(h[0].dir))
	must(b, err)
	defer cm.Close()
	listening, err := verbs.OpenCM("", verbs.WithRunDir(h[1].dir))
	must(b, err)
	defer listening.Close()
	l, err := listening.Listen(netip.AddrPortFrom(h[1].addr, 0), 64)
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			r, err := l.Next(ctx)
			if err != nil {
				return
			}
			serving.Go(func() {
				q := y.newQP(verbs.QPInitAttr{Type: verbs.RC})
				c, err := r.Accept(ctx, q, verbs.CMParams{})
				if err != nil {
					b.Error(err)
					return
				}
				_ = c.Wait(ctx)
				c.Close()
				must(b, q.Destroy())
			})
		}
	})
	b.ReportAllocs()
	before, begun := processorTime(b), time.Now()
	b.SetParallelism(4)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			q := x.newQP(verbs.QPInitAttr{Type: verbs.RC})
			c, err := cm.Dial(ctx, l.Addr, q, verbs.CMParams{})
			if err != nil {
				b.Error(err)
				return
			}
			must(b, c.Disconnect())
			_ = c.Wait(ctx)
			c.Close()
			must(b, q.Destroy())
		}
	})
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "conn/s")
	cancel()
	serving.Wait()
}

// processorTime returns the processor time used by this process.
func processorTime(b *testing.B) time.Duration {
	var r unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
