package flor

import "testing"

// TestLandingShare: a single connection may hold half of the memory for messages by WRITE. If many connections hold
// their maximum, memory remains for another one, unless there are more connections than minimum-size blocks.
func TestLandingShare(t *testing.T) {
	const all, one = 64 << 20, 1 << 20
	l := &landings{d: &Device{cfg: Config{Landing: all}}}
	last := all
	for i := range 5 {
		c := &Conn{}
		for l.allows(c, one) {
			c.landed += one
			l.held += one
		}
		if i == 0 && c.landed != all/2 || c.landed < one || c.landed > last || l.held > all-one {
			t.Fatalf("connection %d has %d bytes, all have %d", i, c.landed, l.held)
		}
		last = c.landed
	}
	// Many connections that hold one message each, one after the other, get all places but one.
	l.held = 0
	n := 0
	for ; l.allows(&Conn{}, one); n++ {
		l.held += one
	}
	if n != 63 {
		t.Errorf("%d connections with a message each", n)
	}
}
