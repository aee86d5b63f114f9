package rocev2_test

import (
	"testing"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestGuessingKeys: a UC peer may write with wrong keys occasionally, but cannot search for keys. The NIC counts
// wrong keys, and breaks the queue pair with one event.
func TestGuessingKeys(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1})
	guess := func(pause time.Duration, times int) (broken bool) {
		a, b := p.UC()
		src, dst := p.A.Buffer(64), p.B.Buffer(64)
		counted, events := p.B.Counter("resp_remote_access_errors"), len(p.B.Events)
		for i := range times {
			w := nictest.Write(uint64(i), dst.At(0), src.SGE())
			w.RKey += uint32(i + 1)
			a.Post(w)
			a.WaitSend(uint64(i))
			p.Run(pause + 100*time.Microsecond)
			if b.State() == qp.Err {
				break
			}
		}
		broken = b.State() == qp.Err
		if got := p.B.Counter("resp_remote_access_errors") - counted; got != uint64(times) {
			t.Errorf("%d guesses were counted as %d", times, got)
		}
		if got := len(p.B.Events) - events; broken && got != 1 || !broken && got != 0 {
			t.Errorf("%d events", got)
		}
		return broken
	}
	if guess(0, 500) {
		t.Error("500 writes that were under way when a region went broke the queue pair")
	}
	if !guess(0, 512) {
		t.Error("one may try 512 keys")
	}
	if guess(time.Second, 1500) {
		t.Error("an error a second broke the queue pair")
	}
	if n := p.B.Counter("rkey_guess_errors"); n != 1 {
		t.Errorf("%d queue pairs were broken", n)
	}
}
