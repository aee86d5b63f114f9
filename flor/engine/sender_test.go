package engine

import (
	"slices"
	"testing"
)

// TestHint: a WQE that does not fill the window has no hint, even as the last one to send.
func TestHint(t *testing.T) {
	s, c := newScript(t, Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 4 << 10}})
	for i := range 4 {
		s.send(t, c, 1, uint64(i), 1<<10)
		if h := s.header(i); h.Hint != (i == 3) {
			t.Errorf("SEND %d: hint %v", i, h.Hint)
		}
	}
}

// TestQuarter: small acknowledgements do not lead to small chunks.
func TestQuarter(t *testing.T) {
	s, c := newScript(t, Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 32 << 10}})
	c.chunker = fixedChunks(2 << 10)
	s.send(t, c, 1, 1, 32<<10)
	if len(s.wqes) != 16 {
		t.Fatalf("%d WQEs", len(s.wqes))
	}
	c.chunker = smallest{8 << 10}
	s.send(t, c, 1, 2, 32<<10)
	for i := range 4 {
		s.left(2, i, 2)
		if s.ack(2, 2, 0, s.wqes[i].ID); len(s.wqes) != 16+(i+1)/4 {
			t.Errorf("%d WQEs after %d acknowledgements", len(s.wqes), i+1)
		}
	}
	if n := len(s.wqes[len(s.wqes)-1].Data.Data); n != 8<<10 {
		t.Errorf("a chunk of %d bytes", n)
	}
}

// smallest is a chunker that returns the free window, up to a fixed size.
type smallest struct{ fixedChunks }

func (c smallest) Size(acwnd uint64) uint32 { return uint32(min(acwnd, uint64(c.fixedChunks))) }

// TestDisconnected: the engine abandons a queue pair that the peer has abandoned, and moves its WQEs to a backup.
func TestDisconnected(t *testing.T) {
	s, c := newScript(t, Config{})
	s.send(t, c, 1, 1, 1<<10)
	s.e.Disconnected(2, 1)
	if !slices.Equal(s.gone, []QPN{1}) || c.Primary() != 2 || len(s.wqes) != 2 || s.qps[1] != 2 {
		t.Errorf("disconnected %v, sends by %d, %d WQEs", s.gone, c.Primary(), len(s.wqes))
	}
	if s.e.Disconnected(3, 1); len(s.gone) != 1 {
		t.Error("left twice")
	}
}

// TestLastAck: the engine acknowledges all arrivals before a connection ends.
func TestLastAck(t *testing.T) {
	s, c := newScript(t, Config{})
	s.receive(1, Header{Kind: KindMessage, RN: 0, GN: 5, Message: 1, Length: 1, Tag: 7}, "x", 0)
	if len(s.acks) != 0 {
		t.Fatal("acknowledged at once")
	}
	c.Close(2)
	if len(s.acks) != 1 || s.acks[0].Len() != 1 {
		t.Errorf("%+v", s.acks)
	}
}

// TestTimeoutMakesRoom: the engine retransmits a lost WQE at once after a timeout, although the shrunken window is less
// than the bytes in flight.
func TestTimeoutMakesRoom(t *testing.T) {
	s, c := newScript(t, Config{Congestion: "swift", CongestionWith: map[string]float64{"initial_cwnd_packets": 64, "min_cwnd_packets": 16}})
	for id := range uint64(64) {
		s.send(t, c, 1, id, 1<<10)
	}
	sent := len(s.wqes)
	for i := range s.wqes {
		s.left(2, i, 2)
	}
	s.e.OnTimeout(s.e.NextTimeout())
	if b, window := c.InFlight(); len(s.wqes) == sent || b > window || window >= 64<<10 {
		t.Errorf("%d WQEs, and %d after a timeout; %d bytes in flight, the window has %d", sent, len(s.wqes), b, window)
	}
}

// TestStuck: after Stuck consecutive timeouts on a queue pair the engine switches to a backup.
func TestStuck(t *testing.T) {
	for _, acked := range []bool{false, true} {
		s, c := newScript(t, Config{Stuck: 2})
		s.send(t, c, 1, 1, 1<<10)
		s.send(t, c, 1, 2, 1<<10)
		for i := range 2 {
			for k := range s.wqes {
				s.left(2, k, 2)
			}
			now := s.e.NextTimeout()
			s.e.OnTimeout(now)
			if i == 0 && len(s.gone) > 0 {
				t.Fatal("left after a timeout")
			}
			if acked {
				s.ack(now, now, 0, s.wqes[len(s.wqes)-1].ID)
				s.send(t, c, now, 3, 1<<10)
			}
		}
		if left := slices.Equal(s.gone, []QPN{1}) && c.Primary() == 2 && s.qps[len(s.qps)-1] == 2; left == acked {
			t.Errorf("answers: %t, left %v, sends by %d", acked, s.gone, c.Primary())
		}
	}
}
