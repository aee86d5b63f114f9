package path_test

import (
	"testing"
	"time"

	"roced/bth"
)

func TestDbg(t *testing.T) {
	l := newLoop(7, bth.MakePSN(0xffff00), 100_000, change(equal(4), func(k *link) { k.perByte *= 40 }))
	mprdma(t, l, 7, 64, nil)
	for i := range 50 {
		una, rtx, ref, last := l.rec.Una(), l.rtx, l.refused, l.links[3].taken
		for until := l.now.Add(time.Millisecond); l.now < until && !l.done(); {
			l.step()
		}
		t.Logf("%d ms: %.1f Gb/s rtx %d refused %d slow %d cwnd %d inflight %d outstanding %d", i, float64(l.rec.Una().Diff(una))*8192/1e6, l.rtx-rtx, l.refused-ref, l.links[3].taken-last, l.window().Packets, l.rec.InFlight(), int(l.sent)-l.rec.Una().Diff(l.first))
	}
}
