package sched

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

const credit = 200 * time.Microsecond

// TestPacerIsExact sends a million packets at a rate with a fractional packet time in nanoseconds.
func TestPacerIsExact(t *testing.T) {
	const rate, size, n = 7_777_777_777, 1106, 1_000_000
	var p Pacer
	now := mono.Time(1)
	for range n {
		for !p.Ready(now) {
			p.Nothing()
			now = p.Deadline()
		}
		p.Charge(now, size, rate, credit)
	}
	want := mono.Time(1 + n*size*8*1_000_000_000/rate)
	if d := p.Next - want; d < -2 || d > 2 {
		t.Fatalf("next packet at %d, want %d", p.Next, want)
	}
}

func TestPacerCredit(t *testing.T) {
	const rate = 8_000_000_000 // a byte per nanosecond
	var p Pacer
	send := func(now mono.Time) (sent int) {
		for p.Ready(now) {
			p.Charge(now, 1000, rate, credit)
			sent++
		}
		p.Nothing()
		return sent
	}
	if n := send(10_000); n != 1 {
		t.Fatalf("%d at once after idling", n)
	}
	if n := send(15_000); n != 5 {
		t.Fatalf("%d made up for, want 5", n)
	}
	if n := send(15_000 + mono.Time(time.Second)); n != int(credit/1000)+1 {
		t.Fatalf("%d after a second", n)
	}
	p.Waiting = false
	p.Nothing()
	if n := send(3 * mono.Time(time.Second)); n != 1 {
		t.Fatalf("%d after having had nothing to send", n)
	}
	p.Unlimited()
	if !p.Ready(0) {
		t.Fatal("unlimited but held")
	}
}
