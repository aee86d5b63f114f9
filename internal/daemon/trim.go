package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Memory is given back when the daemon has allocated trimAfter bytes since it last was, and
// less than trimCalm in the last trimEvery.
const (
	trimEvery = time.Second
	trimAfter = 1 << 20
	trimCalm  = 64 << 10
)

// trimmer gives memory back to the kernel that clients have left behind. The collector by
// itself keeps as much again as is in use, for as long as nobody asks for more; and nobody
// does, since packets take none.
type trimmer struct {
	free            func()
	trimmed, before uint64 // bytes allocated until then
}

// look is told how many bytes have been allocated in all.
func (t *trimmer) look(allocated uint64) {
	calm := allocated-t.before < trimCalm
	t.before = allocated
	if calm && allocated-t.trimmed > trimAfter {
		t.free()
		t.trimmed = allocated
	}
}

// trim gives memory back from time to time.
func trim(ctx context.Context) {
	t := trimmer{free: debug.FreeOSMemory}
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}; ; {
		select {
		case <-tick.C:
			metrics.Read(sample)
			t.look(sample[0].Value.Uint64())
		case <-ctx.Done():
			return
		}
	}
}
