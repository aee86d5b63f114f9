package rxering

import (
	"encoding/binary"
	"testing"
	"time"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// TestArmLayout: where the word is, and its bits, are part of the protocol.
func TestArmLayout(t *testing.T) {
	r, c, mem := cqPair(t, 3)
	c.RequestEvent(rxe.ArmAny)
	if got := binary.NativeEndian.Uint32(mem[260:]); got != 1 || r.Armed() != rocev2.ArmAny {
		t.Errorf("armed: %d in memory, %d", got, r.Armed())
	}
	c.RequestEvent(rxe.ArmSolicited)
	if got := binary.NativeEndian.Uint32(mem[260:]); got != 3 {
		t.Errorf("armed twice: %d in memory", got)
	}
	if r.Disarm(); binary.NativeEndian.Uint32(mem[260:]) != 0 || r.Armed() != 0 {
		t.Error("still armed")
	}
}

// TestArmIsNotMissed lets a client that sleeps whenever it finds nothing run against
// a daemon: it must be woken for every completion that it has not seen.
func TestArmIsNotMissed(t *testing.T) {
	const total = 200_000
	r, c, _ := cqPair(t, 63)
	wake := make(chan struct{}, total)
	go func() {
		for i := 0; i < total; {
			if !r.Push(&qp.CQE{WRID: uint64(i)}) {
				continue
			}
			i++
			if r.Armed() != 0 {
				r.Disarm()
				wake <- struct{}{}
			}
		}
	}()
	end := time.After(time.Minute)
	var e qp.CQE
	poll := func(seen int) int {
		for next(c, &e) {
			if e.WRID != uint64(seen) {
				t.Fatalf("completion %d is %d", seen, e.WRID)
			}
			seen++
		}
		c.Release()
		return seen
	}
	for seen := 0; seen < total; {
		seen = poll(seen)
		c.RequestEvent(rxe.ArmAny)
		if now := poll(seen); now != seen || now == total {
			seen = now
			continue
		}
		select {
		case <-wake:
		case <-end:
			t.Fatalf("asleep after %d completions", seen)
		}
	}
}
