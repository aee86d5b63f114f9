package engine

import (
	"errors"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// TestStalled: a peer with granted memory that sends little of its messages loses the memory and the connection,
// whatever else it sends. A peer that sends enough keeps both, and so does a peer whose message is complete.
func TestStalled(t *testing.T) {
	const second = mono.Time(time.Second)
	for name, c := range map[string]struct {
		units, length uint32 // units per second; message length
		stalls        bool
	}{"nothing": {0, 200_000, true}, "little": {1, 200_000, true}, "enough": {32, 1 << 20, false}, "all": {40, 40_000, false}} {
		s, _ := newScript(t, Config{GiveUp: 2 * time.Second})
		for mid := range uint32(2) {
			s.receive(second, Header{Kind: KindRequest, RN: mid, GN: uint64(mid), Message: mid, Length: c.length}, "", second)
		}
		for i := range s.wqes {
			s.ack(second, second, 0, s.wqes[i].ID)
		}
		now := second
		for i := range uint32(8) {
			now += second
			s.receive(now, Header{Kind: KindMessage, RN: i + 2, GN: uint64(i + 2), Length: 1}, "x", now)
			if c.units > 0 && (i == 0 || c.length > 40_000) {
				for mid := range uint32(2) {
					s.written(now, MakeImm(false, mid, i*c.units), min(c.units<<10, c.length))
				}
			}
			if s.e.OnTimeout(now); s.e.Counters().Stalled > 0 {
				break
			}
		}
		for i := range s.wqes { // all WQEs have completed
			s.left(now, i, now)
		}
		switch n := s.e.Counters().Stalled; {
		case !c.stalls && (n != 0 || len(s.closed) != 0):
			t.Errorf("%s: %d connections have stalled, %v", name, n, s.closed)
		case c.stalls && (n != 1 || len(s.closed) != 1 || !errors.Is(s.closed[0], ErrStalled) || s.unused != 2 || len(s.revoked) != 2 || now != 3*second):
			t.Errorf("%s: %d connections have stalled after %v, %v; %d buffers are back, %d keys revoked", name, n, now, s.closed, s.unused, len(s.revoked))
		}
	}
}

// TestUngranted: the engine refuses a chunk of a message that waits for memory.
func TestUngranted(t *testing.T) {
	s, _ := newScript(t, Config{})
	s.poor = true
	s.receive(1, Header{Kind: KindRequest, Length: 100_000}, "", 1)
	s.written(2, MakeImm(false, 0, 0), 1024)
	if ctr := s.e.Counters(); ctr.BadImms != 1 {
		t.Errorf("%+v", ctr)
	}
}
