package retrans

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// multipath is a recovery of MP-RDMA with helpers for scripts.
type multipath struct {
	*testing.T
	*MPRDMA
}

func newMultipath(t *testing.T, first uint32, p Params) multipath {
	r, err := New("mp-rdma", p)
	if err != nil {
		t.Fatal(err)
	}
	r.SetTimeout(100)
	r.Reset(psn(first))
	return multipath{t, r.(*MPRDMA)}
}

// send sends n new packets from first on.
func (m multipath) send(first, n uint32) {
	for i := range n {
		m.OnSent(1, psn(first+i), 1, false)
	}
}

// ack passes the acknowledgement of one packet.
func (m multipath) ack(expected, sack uint32) Outcome {
	return m.OnFeedback(2, &reorder.Feedback{Expected: psn(expected), HasSACK: true, SACK: psn(sack)})
}

// nack passes the NACK of a packet that overflowed the bitmap.
func (m multipath) nack(expected, refused uint32) Outcome {
	return m.OnFeedback(2, &reorder.Feedback{Expected: psn(expected), HasSACK: true, SACK: psn(refused), Gap: true, Refused: true})
}

// want compares the packets in flight and the packet to retransmit; -1 means none.
func (m multipath) want(what string, inflight uint32, retransmit, early int) {
	m.Helper()
	next := func(p bth.PSN, ok bool) int {
		if !ok {
			return -1
		}
		return int(p.Uint32())
	}
	if n := m.InFlight(); n != inflight {
		m.Fatalf("%s: %d in flight, want %d", what, n, inflight)
	}
	if p := next(m.NextRetransmit()); p != retransmit {
		m.Fatalf("%s: retransmission %d, want %d", what, p, retransmit)
	}
	if p := next(m.NextEarly()); p != early {
		m.Fatalf("%s: early retransmission %d, want %d", what, p, early)
	}
}

// TestMPRDMAInflate: awnd = cwnd + inflate - (snd_nxt - snd_una). An acknowledgement adds one to inflate; an advance
// of snd_una reduces inflate by the same number (3.2).
func TestMPRDMAInflate(t *testing.T) {
	m := newMultipath(t, 0xfffffe, nil)
	m.want("nothing", 0, -1, -1)
	m.send(0xfffffe, 6)
	m.want("sent", 6, -1, 0xfffffe)
	m.ack(0xfffffe, 0)
	m.ack(0xfffffe, 1)
	m.want("two ahead", 4, -1, 0xfffffe)
	if out := m.ack(0, 0xfffffe+1); out != (Outcome{Acked: 2, Delivered: 1}) {
		t.Fatalf("%+v", out)
	}
	m.want("the acknowledgement of the oldest is late", 4-1+0, -1, 0)
	m.ack(0, 0xfffffe)
	m.want("... and comes", 2, -1, 0)
	if out := m.ack(9, 9); out != (Outcome{}) {
		t.Fatalf("beyond what was sent: %+v", out)
	}
	if out := m.ack(0xfffff0, 0); out != (Outcome{Delivered: 1}) {
		t.Fatalf("behind: %+v", out)
	}
	m.want("what is stale", 2, -1, 0)
	for range 9 {
		m.ack(0, 3)
	}
	m.want("copies", 0, -1, 0)
	m.ack(4, 3)
	m.want("all", 0, -1, -1)
}

// published has the arithmetic of sections 3.2 and 3.5.
var published = Params{"count_retransmits": 0, "bound_inflate": 0, "renew_recovery": 2}

// TestMPRDMAPublished: in the published arithmetic only acknowledgements change inflate (3.2). It may exceed the packets
// outstanding. Each NACK sets snd_retx and recovery (3.5).
func TestMPRDMAPublished(t *testing.T) {
	m := newMultipath(t, 0, published)
	m.send(0, 8)
	m.ack(0, 1)
	m.nack(0, 7)
	m.want("a NACK is one acknowledgement", 6, 0, -1)
	m.OnSent(3, psn(0), 1, true)
	m.OnSent(3, psn(1), 1, true)
	m.want("retransmissions do not count", 6, 2, -1)
	m.send(8, 2)
	m.nack(0, 9)
	m.want("a NACK in recovery mode", 7, 0, -1)
	for range 9 {
		m.ack(0, 1)
	}
	m.want("copies have no limit", 0, 0, -1)
	m.ack(9, 0)
	if m.inflate != 4 {
		t.Errorf("inflate %d: 13 acknowledgements, and an advance by 9", m.inflate)
	}
	m.send(10, 4)
	m.want("it is carried over", 1, 9, -1)
	m.ack(14, 13)
	m.want("nothing is outstanding", 0, -1, -1)

	m = newMultipath(t, 0, published)
	m.send(0, 8)
	m.ack(6, 5)
	m.send(8, 9)
	m.ack(16, 15)
	if m.inflate != -14 {
		t.Errorf("inflate %d after lost acknowledgements: it does not restart", m.inflate)
	}
}

// TestMPRDMARenewal: without renewal a NACK in recovery mode changes nothing.
func TestMPRDMARenewal(t *testing.T) {
	for renewal, want := range []int{-1, -1, 0} {
		m := newMultipath(t, 0, Params{"renew_recovery": float64(renewal)})
		m.send(0, 2)
		m.nack(0, 1)
		m.OnSent(3, psn(0), 1, true)
		m.OnSent(3, psn(1), 1, true)
		m.nack(0, 1)
		if p, ok := m.NextRetransmit(); ok != (want == 0) || ok && p != psn(0) {
			t.Errorf("renew_recovery %d: %v, %v", renewal, p, ok)
		}
		m.send(2, 1)
		m.nack(0, 2)
		if _, ok := m.NextRetransmit(); ok != (renewal != renewNone) {
			t.Errorf("renew_recovery %d: a NACK behind all retransmissions: %v", renewal, ok)
		}
	}
}

// TestMPRDMADrift: a loss with a bitmap of L = 8 and 8 packets in flight. The receiver drops the packets of a round trip
// and gets the first one as often again. Both kinds are acknowledged twice, and leave the published inflate too large. The
// rule for retransmissions, the limit or a restart at the end of recovery mode prevents that.
func TestMPRDMADrift(t *testing.T) {
	for _, c := range []struct {
		name   string
		params Params
		want   uint32 // in flight at the end, of 7
	}{
		{"published", published, 0},
		{"limited", Params{"count_retransmits": 0, "renew_recovery": 2}, 7},
		{"counted", Params{"bound_inflate": 0, "renew_recovery": 2}, 7},
		{"deflated", Params{"count_retransmits": 0, "bound_inflate": 0, "renew_recovery": 2, "deflate": 1}, 7},
	} {
		m := newMultipath(t, 0, c.params)
		m.send(0, 8)
		for p := uint32(1); p <= 8; p++ { // packet 0 is lost; each acknowledgement clocks out a packet
			m.ack(0, p)
			m.send(7+p, 1)
		}
		for p := uint32(9); p <= 15; p++ { // beyond the bitmap
			m.nack(0, p)
			m.OnSent(3, psn(0), 1, true)
		}
		m.ack(9, 0) // retransmissions of packet 0 arrive
		for range 6 {
			m.ack(9, 0)
		}
		for p := uint32(9); p <= 15; p++ {
			m.OnSent(3, psn(p), 1, true)
		}
		for p := uint32(9); p <= 15; p++ {
			m.ack(p+1, p)
			m.send(p+7, 1)
		}
		if n := m.InFlight(); n != c.want || c.want == 0 && m.inflate != 13 {
			t.Errorf("%s: %d in flight, want %d; inflate is %d", c.name, n, c.want, m.inflate)
		}
	}
}

// TestMPRDMAOvertaken: an acknowledged packet has left the network, even if faster acknowledgements have already
// reported a higher expected PSN.
func TestMPRDMAOvertaken(t *testing.T) {
	m := newMultipath(t, 0xfffffe, nil)
	m.send(0xfffffe, 6)
	m.ack(2, 1)
	m.want("three are late", 5, -1, 2)
	if out := m.ack(0xffffff, 0xfffffe); out != (Outcome{Delivered: 1}) {
		t.Fatalf("%+v", out)
	}
	m.ack(1, 0)
	m.ack(0, 0xffffff)
	m.want("and come", 2, -1, 2)
	if out := m.nack(0xfffffe, 0); out != (Outcome{}) {
		t.Fatalf("NACK of what has been acknowledged since: %+v", out)
	}
	if out := m.nack(0, 3); out != (Outcome{Lost: 2}) {
		t.Fatalf("NACK of what is outstanding: %+v", out)
	}
	m.Reset(psn(0))
	m.send(0, 3)
	if out := m.nack(1<<24-MaxLate-1, 1); out != (Outcome{}) {
		t.Fatalf("stale: %+v", out)
	}
	m.want("stale", 3, -1, 0)
}

// TestMPRDMARecovery: recovery = snd_nxt, snd_retx = the PSN of the NACK. Each acknowledgement clocks out a
// retransmission in place of a new packet. Recovery ends when snd_una passes recovery (3.5).
func TestMPRDMARecovery(t *testing.T) {
	m := newMultipath(t, 0, nil)
	m.send(0, 8)
	for p := uint32(1); p < 5; p++ {
		m.ack(0, p)
	}
	m.want("a gap alone is no loss", 4, -1, 0)
	if out := m.nack(0, 5); out != (Outcome{Lost: 8}) {
		t.Fatalf("NACK: %+v", out)
	}
	m.want("the packet refused and that named have left", 2, 0, -1)
	m.OnSent(3, psn(0), 1, true)
	m.want("retransmission", 3, 1, -1)
	if out := m.nack(0, 6); out != (Outcome{}) {
		t.Fatalf("NACK of a packet sent before: %+v", out)
	}
	m.want("the same loss", 2, 1, -1)
	m.OnSent(3, psn(1), 1, true)
	if out := m.ack(5, 0); out != (Outcome{Acked: 5, Delivered: 1}) {
		t.Fatalf("gap filled: %+v", out)
	}
	m.want("what has arrived is skipped, 7 and the copy of 1 are in flight", 2, 5, -1)
	m.OnSent(3, psn(5), 1, true)
	m.OnSent(3, psn(6), 1, true)
	m.OnSent(3, psn(7), 1, true)
	if _, again := m.NextRetransmit(); again {
		t.Fatal("everything has been sent again")
	}
	m.ack(7, 5)
	if !m.recovering {
		t.Fatal("recovery is over, with 7 missing")
	}
	m.ack(8, 7)
	m.want("recovery is over", 0, -1, -1)
	m.send(8, 2)
	if out := m.nack(8, 9); out != (Outcome{Lost: 2}) {
		t.Fatalf("recovery begins anew: %+v", out)
	}
}

// TestMPRDMAEarly: without new data, the sender retransmits unacknowledged packets once (FUSO, 3.5).
func TestMPRDMAEarly(t *testing.T) {
	m := newMultipath(t, 0, nil)
	m.send(0, 3)
	m.want("all of them", 3, -1, 0)
	m.OnSent(2, psn(0), 1, true)
	m.want("the next, and the window is used", 4, -1, 1)
	m.ack(2, 1)
	m.want("not what has arrived", 3, -1, 2)
	m.OnSent(2, psn(2), 1, true)
	m.want("once", 4, -1, -1)
	m.send(3, 1)
	m.want("until something new is sent", 5, -1, 2)
	m.OnTimeout(9)
	m.want("what is lost comes first", 0, 2, -1)

	m = newMultipath(t, 0, Params{"early_retransmit": 0})
	m.send(0, 3)
	m.want("switched off", 3, -1, -1)
}

// TestMPRDMATimeout: a timeout retransmits all unacknowledged packets.
func TestMPRDMATimeout(t *testing.T) {
	m := newMultipath(t, 0, nil)
	check := func(what string, want mono.Time) {
		t.Helper()
		if d := m.MPRDMA.Deadline(); d != want {
			t.Fatalf("%s: deadline %d, want %d", what, d, want)
		}
	}
	check("nothing sent", mono.Never)
	m.send(0, 4)
	check("from the oldest", 101)
	m.ack(1, 0)
	check("progress", 102)
	m.ack(1, 2)
	check("no progress", 102)
	if out := m.OnTimeout(102); out != (Outcome{Lost: 3}) {
		t.Fatalf("timeout: %+v", out)
	}
	m.want("all have left", 0, 1, -1)
	check("nothing can be missing", mono.Never)
	m.OnSent(150, psn(1), 1, true)
	check("sent again", 250)
	m.ack(1, 3)
	m.want("a late acknowledgement", 0, 2, -1)
	if out := m.OnTimeout(250); out != (Outcome{Lost: 3}) {
		t.Fatalf("again: %+v", out)
	}
	m.OnSent(260, psn(1), 1, true)
	// In recovery mode the oldest packet waits for an acknowledgement clock that may be lost.
	m.nack(1, 3)
	check("in recovery mode", 360)
	m.SetTimeout(0)
	check("infinite", mono.Never)

	m = newMultipath(t, 0, nil)
	m.send(0, 4)
	m.OnTimeout(101)
	m.OnSent(150, psn(0), 1, true)
	m.want("one of all", 1, 1, -1)
	m.ack(1, 0)
	m.want("... has arrived", 0, 1, -1)
}

// TestMPRDMALostAgain: once snd_retx reaches recovery, new packets leave. A NACK of a new packet shows that a
// retransmission is lost too; a NACK of an older packet does not (3.5).
func TestMPRDMALostAgain(t *testing.T) {
	m := newMultipath(t, 0xfffffe, nil)
	m.send(0xfffffe, 4)
	m.nack(0xfffffe, 1)
	for p := range uint32(4) {
		m.OnSent(3, psn(0xfffffe+p), 1, true)
		if m.Cap() < 4 {
			t.Fatal("nothing new may be sent")
		}
	}
	m.send(2, 3)
	m.ack(0xfffffe, 2)
	for _, p := range []uint32{1, 0xffffff, 5} {
		if out := m.nack(0xfffffe, p); out.Lost != 0 {
			t.Fatalf("NACK of %d: %+v", p, out)
		}
	}
	m.want("nothing is sent again", 5, -1, 0xfffffe)
	if out := m.nack(0xfffffe, 4); out != (Outcome{Lost: 7}) {
		t.Fatalf("NACK of a packet sent after the retransmissions: %+v", out)
	}
	m.want("all is", 3, 0xfffffe, -1)
}

// TestMPRDMASyncEarly: the sender retransmits an early synchronise operation, and sends nothing new until it has
// arrived. No packet before it is lost (3.4).
func TestMPRDMASyncEarly(t *testing.T) {
	m := newMultipath(t, 0, nil)
	m.send(0, 4)
	m.ack(0, 3)
	early := reorder.Feedback{Expected: psn(0), HasSACK: true, SACK: psn(2), Refused: true}
	if out := m.OnFeedback(2, &early); out != (Outcome{Lost: 4}) || m.Cap() != 0 {
		t.Fatalf("%+v, cap %d", out, m.Cap())
	}
	m.want("the packet that came early has left the network, and 3 has", 2, 0, -1)
	m.OnSent(3, psn(0), 1, true)
	if out := m.OnFeedback(2, &early); out != (Outcome{}) {
		t.Fatalf("the same operation: %+v", out)
	}
	m.ack(4, 0)
	if m.want("it has arrived", 0, -1, -1); m.Cap() == 0 {
		t.Error("nothing new is sent after recovery")
	}
}

// TestMPRDMACopies: duplicate acknowledgements do not open the window permanently.
func TestMPRDMACopies(t *testing.T) {
	m := newMultipath(t, 0, nil)
	m.send(0, 64)
	for p := uint32(0); p < 1000; p++ {
		m.ack(p+1, p)
		m.ack(p+1, p)
		m.send(64+p, 1)
		if n := m.InFlight(); n != 64 {
			t.Fatalf("%d: %d in flight, want 64", p, n)
		}
	}
}

// TestMPRDMALostAcks: inflate is reset if it stays below zero for a window.
func TestMPRDMALostAcks(t *testing.T) {
	m := newMultipath(t, 0, nil)
	m.send(0, 4)
	nxt := uint32(4)
	for p := uint32(0); p < 400; p++ {
		if p%10 != 0 { // one of ten acknowledgements is lost
			m.ack(p+1, p)
		}
		if p < 396 {
			m.send(nxt, 1)
			nxt++
		}
		if n := m.InFlight(); n > m.outstanding()+2 {
			t.Fatalf("%d: %d in flight of %d outstanding", p, n, m.outstanding())
		}
	}
	m.want("all", 0, -1, -1)
}

// TestMPRDMAReads: a READ uses many PSNs, and a response acknowledges no single packet.
func TestMPRDMAReads(t *testing.T) {
	m := newMultipath(t, 5, nil)
	m.OnSent(1, psn(5), 1<<23, false)
	m.want("sent", 1<<23, -1, 5)
	if out := m.OnFeedback(2, &reorder.Feedback{Expected: psn(9)}); out != (Outcome{Acked: 4, Delivered: 4}) {
		t.Fatalf("%+v", out)
	}
	m.want("four responses", 1<<23-4, -1, 9)
	if out := m.OnFeedback(2, &reorder.Feedback{Expected: psn(9), Gap: true}); out.Lost != 1<<23-4 {
		t.Fatalf("an implied NAK: %+v", out)
	}
	m.OnSent(3, psn(9), 1<<23-4, true)
	if _, again := m.NextRetransmit(); again {
		t.Fatal("the rest has been asked for")
	}
	m.OnFeedback(4, &reorder.Feedback{Expected: psn(5 + 1<<23)})
	m.want("all", 0, -1, -1)
}

// TestMPRDMAHostile: counts stay in range for any feedback.
func TestMPRDMAHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, _ := New("mp-rdma", nil)
		m := r.(*MPRDMA)
		m.SetTimeout(100)
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		m.Reset(psn(first))
		nxt, sent := psn(first), uint32(0)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			p := m.Una().Add(rapid.IntRange(-3, 20).Draw(t, "psn"))
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				m.OnSent(1, nxt, 1, false)
				nxt, sent = nxt.Next(), sent+1
			case 1:
				again, ok := m.NextRetransmit()
				if !ok {
					again, ok = m.NextEarly()
				}
				if ok {
					if again.Since(m.Una()) >= nxt.Since(m.Una()) {
						t.Fatalf("%v is to be sent again, una %v, nxt %v", again, m.Una(), nxt)
					}
					m.OnSent(1, again, 1, true)
					sent++
				}
			case 2:
				m.OnFeedback(2, &reorder.Feedback{
					Expected: m.Una().Add(rapid.IntRange(-2, 12).Draw(t, "expected")), SACK: p,
					HasSACK: rapid.Bool().Draw(t, "has"), Refused: rapid.Bool().Draw(t, "refused"),
					Gap: rapid.Bool().Draw(t, "gap"), ReTx: rapid.Bool().Draw(t, "retx"),
				})
			case 3:
				if m.Deadline() != mono.Never {
					m.OnTimeout(m.Deadline())
				}
			}
			if m.Una().Since(psn(first)) > nxt.Since(psn(first)) {
				t.Fatalf("una %v beyond %v", m.Una(), nxt)
			}
			if n := m.InFlight(); n > 2*sent {
				t.Fatalf("%d in flight of %d ever sent", n, sent)
			}
			if m.Una() != nxt && m.Deadline() == mono.Never {
				if p, ok := m.NextRetransmit(); !ok || p != m.Una() {
					t.Fatal("something is outstanding, and nothing will happen")
				}
			}
		}
	})
}

// TestMPRDMAFootprint: with the paths' 26 bytes, the window's 4 and the receiver's 17, the state needs at most the 66
// of table 1.
func TestMPRDMAFootprint(t *testing.T) {
	m := newMultipath(t, 0, nil)
	if n := m.Footprint(); n+26+4+17 > 66 {
		t.Errorf("%d bytes", n)
	}
}
