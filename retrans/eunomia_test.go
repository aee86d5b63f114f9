package retrans

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// TestEunomiaAgent: a NACK or a timeout triggers recovery, a SACK never does (3.2.2, 3.2.3).
func TestEunomiaAgent(t *testing.T) {
	sack := func(p uint32) *reorder.Feedback {
		return &reorder.Feedback{Expected: psn(10), HasSACK: true, SACK: psn(p)}
	}
	for _, c := range []struct {
		name  string
		p     Params
		after []int // retransmissions after the NACK
		late  []int // retransmissions after a timeout
	}{
		{"go-back-N", nil, []int{10, 11, 12, 13, 14}, []int{10, 11, 12, 13, 14}},
		{"selective repeat", Params{"selective_repeat": 1}, []int{10, 13, 14}, []int{10}},
	} {
		r, err := New("eunomia", c.p)
		if err != nil {
			t.Fatal(err)
		}
		r.SetTimeout(100)
		r.Reset(psn(10))
		for i := range uint32(5) {
			r.OnSent(1, psn(10+i), 1, false)
		}
		marks := uint32(0)
		if c.p != nil {
			marks = 1
		}
		for _, p := range []uint32{11, 12} {
			if out := r.OnFeedback(2, sack(p)); out != (Outcome{Delivered: marks}) {
				t.Errorf("%s: SACK of %d: %+v", c.name, p, out)
			}
		}
		if out := r.OnFeedback(2, sack(11)); out != (Outcome{}) {
			t.Errorf("%s: SACK of 11 again: %+v", c.name, out)
		}
		if p, ok := r.NextRetransmit(); ok {
			t.Errorf("%s: a SACK makes %v be sent again", c.name, p)
		}
		refused := sack(14)
		refused.Refused = true
		if out := r.OnFeedback(3, refused); int(out.Lost) != len(c.after) {
			t.Errorf("%s: NACK: %+v", c.name, out)
		}
		again(t, c.name, r, c.after)
		if out := r.OnTimeout(200); int(out.Lost) != len(c.late) {
			t.Errorf("%s: timeout: %+v", c.name, out)
		}
		again(t, c.name+" after a timeout", r, c.late)
		if out := r.OnFeedback(4, &reorder.Feedback{Expected: psn(15)}); out != (Outcome{Acked: 5, Delivered: 5 - 2*marks}) || r.InFlight() != 0 {
			t.Errorf("%s: ACK: %+v, %d in flight", c.name, out, r.InFlight())
		}
	}
}

// again compares the retransmissions with want.
func again(t *testing.T, what string, r Recovery, want []int) {
	t.Helper()
	for _, w := range want {
		p, ok := r.NextRetransmit()
		if !ok || p != psn(uint32(w)) {
			t.Fatalf("%s: %v %v is sent again, want %d", what, p, ok, w)
		}
		r.OnSent(3, p, 1, true)
	}
	if p, ok := r.NextRetransmit(); ok {
		t.Fatalf("%s: %v too is sent again", what, p)
	}
}

// TestEunomiaTimeout: the recovery's own timeout replaces the queue pair's.
func TestEunomiaTimeout(t *testing.T) {
	for _, c := range []struct{ us, want float64 }{{0, 67}, {320, 320}} {
		r, err := New("eunomia", Params{"rto_us": c.us})
		if err != nil {
			t.Fatal(err)
		}
		r.SetTimeout(67 * time.Microsecond)
		r.Reset(psn(0))
		r.OnSent(1, psn(0), 1, false)
		if d := r.Deadline(); d != mono.Time(1).Add(time.Duration(c.want)*time.Microsecond) {
			t.Errorf("rto_us %v: deadline %d", c.us, d)
		}
	}
}

// TestEunomiaAfterTimeout: an acknowledgement beyond the retransmitted packets is no reason to stop. The receiver may have
// had those packets in its bitmap, and may lack later ones.
func TestEunomiaAfterTimeout(t *testing.T) {
	r, err := New("eunomia", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Reset(psn(0))
	for i := range uint32(6) {
		r.OnSent(1, psn(i), 1, false)
	}
	r.OnTimeout(2)
	r.OnSent(2, psn(0), 1, true)
	r.OnFeedback(3, &reorder.Feedback{Expected: psn(3)}) // 1 and 2 had arrived
	next(t, r, 3)
}

// TestSelectiveModel compares selective repeat with a set of marks.
func TestSelectiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 64
		s := NewSelective(window)
		s.SetTimeout(100)
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		s.Reset(psn(first))
		at := func(i int) bth.PSN { return psn(first + uint32(i)) }
		una, nxt, nakSeen, probed := 0, 0, false, none
		marked, waiting := map[int]bool{}, map[int]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			i := una + rapid.IntRange(-2, 80).Draw(t, "packet")
			switch rapid.SampledFrom([]string{"send", "send", "send", "again", "mark", "ack", "nak", "timeout"}).Draw(t, "op") {
			case "send":
				s.OnSent(1, at(nxt), 1, false)
				nxt++
			case "again":
				if p, ok := s.NextRetransmit(); ok {
					s.OnSent(1, p, 1, true)
					delete(waiting, int(p.Diff(at(0))))
				}
			case "mark":
				s.Mark(at(i))
				if i >= una && i < nxt && i < una+window {
					marked[i] = true
					delete(waiting, i)
				}
			case "ack":
				s.OnFeedback(2, &reorder.Feedback{Expected: at(i)})
				if i > una && i <= nxt {
					answered := probed != none && i == una+1
					una, nakSeen = i, false
					maps.DeleteFunc(marked, func(k int, _ bool) bool { return k < una })
					maps.DeleteFunc(waiting, func(k int, _ bool) bool { return k < una })
					if answered {
						repeat(una, evident(marked, waiting, probed), marked, waiting)
					}
					probed = none
				}
			case "nak":
				s.OnFeedback(2, &reorder.Feedback{Expected: at(una), Gap: true})
				if !nakSeen {
					nakSeen = repeat(una, nxt, marked, waiting)
				}
			case "timeout":
				s.OnTimeout(9)
				if len(marked) == 0 && una != nxt {
					probed = nxt
				}
				repeat(una, min(nxt, evident(marked, waiting, una+1)), marked, waiting)
				nakSeen = false
			}
			checkSelective(t, s, at, una, nxt, marked, waiting)
		}
	})
}

// none stands for no packet.
const none = -1

// evident returns the end of the packets that are retransmitted without a NAK.
func evident(marked, waiting map[int]bool, end int) int {
	if len(marked) > 0 {
		end = slices.Max(slices.Collect(maps.Keys(marked)))
	}
	for i := range waiting {
		end = max(end, i+1)
	}
	return end
}

// TestSelectiveProbes: a timeout without a mark retransmits the oldest packet. Only an answer to that packet alone
// shows that the rest is lost. Without probing, a timeout retransmits all unmarked packets, including those behind
// the highest mark.
func TestSelectiveProbes(t *testing.T) {
	for _, c := range []struct {
		name     string
		expected uint32 // then acknowledged
		marked   int
		again    []int
	}{
		{"the timer was early", 2, none, nil},
		{"everything was late", 5, none, nil},
		{"all is lost", 1, none, []int{1, 2, 3, 4}},
		{"one has arrived", 1, 3, []int{1, 2}},
	} {
		s := NewSelective(64)
		s.Reset(psn(0))
		for i := range uint32(5) {
			s.OnSent(1, psn(i), 1, false)
		}
		for range 2 {
			if out := s.OnTimeout(100); out.Lost != 1 {
				t.Errorf("%s: timeout: %+v", c.name, out)
			}
			again(t, c.name, s, []int{0})
		}
		s.OnSent(101, psn(5), 1, false)
		if c.marked != none {
			s.Mark(psn(uint32(c.marked)))
		}
		if out := s.OnFeedback(102, &reorder.Feedback{Expected: psn(c.expected)}); int(out.Lost) != len(c.again) {
			t.Errorf("%s: %+v", c.name, out)
		}
		again(t, c.name, s, c.again)
	}
	for name, p := range map[string]Params{"selective": {"probe": 0}, "eunomia": {"probe": 0, "selective_repeat": 1}} {
		r, err := New(name, p)
		if err != nil {
			t.Fatal(err)
		}
		r.Reset(psn(0))
		for i := range uint32(5) {
			r.OnSent(1, psn(i), 1, false)
		}
		r.OnTimeout(100)
		again(t, name+" without a mark", r, []int{0, 1, 2, 3, 4})
		marker, ok := r.(Marker)
		if e, below := r.(*Eunomia); below {
			marker, ok = e.marker, true
		}
		if !ok || !marker.Mark(psn(2)) {
			t.Fatalf("%s: nothing is marked", name)
		}
		r.OnTimeout(200)
		again(t, name+" with a mark", r, []int{0, 1, 3, 4})
	}
}

// repeat queues all unmarked packets for retransmission.
func repeat(una, nxt int, marked, waiting map[int]bool) (lost bool) {
	for i := una; i < nxt; i++ {
		if !marked[i] && !waiting[i] {
			waiting[i], lost = true, true
		}
	}
	return lost
}

func checkSelective(t *rapid.T, s *Selective, at func(int) bth.PSN, una, nxt int, marked, waiting map[int]bool) {
	next, inflight := -1, uint32(0)
	for i := nxt - 1; i >= una; i-- {
		switch {
		case waiting[i]:
			next = i
		case !marked[i]:
			inflight++
		}
	}
	p, ok := s.NextRetransmit()
	if ok != (next >= 0) || ok && p != at(next) || s.InFlight() != inflight || s.Una() != at(una) {
		t.Fatalf("%v %v is sent again, %d in flight, una %v; want %d, %d, %d", p, ok, s.InFlight(), s.Una(), next, inflight, una)
	}
	if idle := s.Deadline() == mono.Never; idle != (una == nxt || next == una) {
		t.Fatalf("deadline %d, una %d, nxt %d, next %d", s.Deadline(), una, nxt, next)
	}
}

// TestSelectiveWide checks a READ of 2 GiB at the smallest MTU.
func TestSelectiveWide(t *testing.T) {
	s := NewSelective(64)
	s.Reset(psn(0xfffff0))
	s.OnSent(1, psn(0xfffff0), 1<<23, false)
	if n := s.InFlight(); n != 1<<23 {
		t.Fatalf("%d in flight", n)
	}
	if out := s.OnFeedback(2, &reorder.Feedback{Expected: psn(5), Gap: true}); out != (Outcome{Acked: 21, Delivered: 21, Lost: 1<<23 - 21}) {
		t.Fatalf("%+v", out)
	}
	s.OnSent(3, psn(5), 1<<23-21, true)
	if p, ok := s.NextRetransmit(); ok {
		t.Fatalf("%v is sent again", p)
	}
}

// TestRecoveriesAllocateNothing checks all schemes.
func TestRecoveriesAllocateNothing(t *testing.T) {
	for _, name := range Names() {
		r, err := New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(name, Params{"no such parameter": 1}); err == nil {
			t.Errorf("%s takes any parameter", name)
		}
		r.SetTimeout(100)
		p, said := psn(0xffff00), new(reorder.Feedback)
		r.Reset(p)
		if n := testing.AllocsPerRun(1000, func() {
			for k := range 4 {
				r.OnSent(1, p.Add(k), 1, false)
			}
			*said = reorder.Feedback{Expected: p, HasSACK: true, SACK: p.Add(2)}
			r.OnFeedback(2, said)
			*said = reorder.Feedback{Expected: p.Next(), HasSACK: true, SACK: p.Add(3), Refused: true}
			r.OnFeedback(2, said)
			if again, ok := r.NextRetransmit(); ok {
				r.OnSent(3, again, 1, true)
			}
			r.OnTimeout(r.Deadline())
			r.InFlight()
			p = p.Add(4)
			*said = reorder.Feedback{Expected: p}
			r.OnFeedback(4, said)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for name, p := range map[string]Params{"mp-rdma": {"early_retransmit": 3}, "selective": {"window_packets": 1}, "eunomia": {"selective_repeat": 0.5}} {
		if _, err := New(name, p); err == nil {
			t.Errorf("%s with %v is possible", name, p)
		}
	}
}

// TestSelectiveAllMarked: a peer marks all packets as received but does not advance. The sender waits for it, timeout
// after timeout (soak seed 600022058).
func TestSelectiveAllMarked(t *testing.T) {
	s := NewSelective(64)
	s.Reset(psn(7))
	s.SetTimeout(time.Millisecond)
	s.OnSent(0, psn(7), 2, false)
	s.Mark(psn(7))
	s.Mark(psn(8))
	for range 3 {
		now := s.Deadline()
		if out := s.OnTimeout(now); out.Lost != 0 || s.Deadline() != now.Add(time.Millisecond) {
			t.Fatalf("at %v: %+v, the next timeout is at %v", now, out, s.Deadline())
		}
	}
}
