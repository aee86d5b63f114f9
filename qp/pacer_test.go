package qp

import (
	"testing"
	"time"

	"roced/mono"
)

// TestPacerIsExact sends a million packets at a rate whose packet time is no
// whole number of nanoseconds.
func TestPacerIsExact(t *testing.T) {
	const rate, size, n = 7_777_777_777, 1106, 1_000_000
	var p pacer
	now := mono.Time(1)
	for range n {
		for !p.ready(now) {
			p.nothing()
			now = p.deadline()
		}
		p.charge(now, size, rate, Software.PacerCredit)
	}
	want := mono.Time(1 + n*size*8*1_000_000_000/rate)
	if d := p.next - want; d < -2 || d > 2 {
		t.Fatalf("next packet at %d, want %d", p.next, want)
	}
}

func TestPacerCredit(t *testing.T) {
	const rate = 8_000_000_000 // a byte per nanosecond
	var p pacer
	send := func(now mono.Time) (sent int) {
		for p.ready(now) {
			p.charge(now, 1000, rate, Software.PacerCredit)
			sent++
		}
		p.nothing()
		return sent
	}
	if n := send(10_000); n != 1 {
		t.Fatalf("%d at once after idling", n)
	}
	if n := send(15_000); n != 5 {
		t.Fatalf("%d made up for, want 5", n)
	}
	if n := send(15_000 + mono.Time(time.Second)); n != int(Software.PacerCredit/1000)+1 {
		t.Fatalf("%d after a second", n)
	}
	p.waiting = false
	p.nothing()
	if n := send(3 * mono.Time(time.Second)); n != 1 {
		t.Fatalf("%d after having had nothing to send", n)
	}
	p.unlimited()
	if !p.ready(0) {
		t.Fatal("unlimited but held")
	}
}

func TestRateLimitAttribute(t *testing.T) {
	q, h := newAt(t, RC, RTS)
	if err := q.Modify(0, Attr{RateLimit: 1000}, AttrRateLimit); err != nil { // 1 Mb/s
		t.Fatal(err)
	}
	h.queue = append(h.queue, SendWQE{Opcode: WRSend}, SendWQE{Opcode: WRSend})
	var tr Transmit
	if !q.PollTransmit(0, &tr) || q.PollTransmit(0, &tr) {
		t.Fatal("not paced")
	}
	if want := mono.Time(58 * 8 * 1000); q.NextTimeout() != want {
		t.Fatalf("next at %d, want %d", q.NextTimeout(), want)
	}
}
