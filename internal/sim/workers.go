package sim

import (
	"sync"
	"sync/atomic"
)

// workers run the parts of a simulation on a goroutine each, the first one on the caller's (engine.Workers).
type workers struct {
	parts   int
	round   func(part int)
	stops   bool
	all     sync.WaitGroup
	rounds  turnstile
	arrived turnstile
}

// Start implements engine.Workers.
func (w *workers) Start(round func(part int)) {
	w.round, w.stops = round, false
	begun := w.rounds.n.Load()
	for i := 1; i < w.parts; i++ {
		w.all.Go(func() { w.work(i, begun) })
	}
}

// Round implements engine.Workers.
func (w *workers) Round() {
	arrived := w.arrived.n.Load()
	w.rounds.pass()
	w.round(0)
	w.arrived.await(arrived + uint32(w.parts) - 1)
}

// Stop implements engine.Workers.
func (w *workers) Stop() {
	w.stops = true
	w.rounds.pass()
	w.all.Wait()
}

// work is the goroutine of a part.
func (w *workers) work(part int, round uint32) {
	for {
		round++
		if w.rounds.await(round); w.stops {
			return
		}
		w.round(part)
		w.arrived.pass()
	}
}

// turnstile counts passes; goroutines wait for a count. Waiting first spins, because windows may be short.
type turnstile struct {
	n    atomic.Uint32
	mu   sync.Mutex
	wake sync.Cond
}

// spins is how often a goroutine looks before it sleeps: for some 20 us.
const spins = 20_000

func (t *turnstile) pass() {
	t.mu.Lock()
	t.n.Add(1)
	if t.wake.L != nil {
		t.wake.Broadcast()
	}
	t.mu.Unlock()
}

func (t *turnstile) await(n uint32) {
	for range spins {
		if int32(t.n.Load()-n) >= 0 {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake.L = &t.mu
	for int32(t.n.Load()-n) < 0 {
		t.wake.Wait()
	}
}
