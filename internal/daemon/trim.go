package daemon

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The daemon returns memory to the kernel after more than trimAfter allocated bytes since the last time. It waits for
// an interval of trimEvery with fewer than trimCalm allocated bytes.
const (
	trimEvery = time.Second
	trimAfter = 1 << 20
	trimCalm  = 64 << 10
)

// trimmer returns memory of former clients to the kernel. The garbage collector keeps up to as much free memory as is
// in use until the next collection. That collection may never come, because packets allocate no memory.
type trimmer struct {
	free            func()
	trimmed, before uint64 // total allocated bytes at that time
}

// look takes the total of allocated bytes since the start.
func (t *trimmer) look(allocated uint64) {
	calm := allocated-t.before < trimCalm
	t.before = allocated
	if calm && allocated-t.trimmed > trimAfter {
		t.free()
		t.trimmed = allocated
	}
}

// trim returns memory to the kernel at intervals until ctx ends.
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
