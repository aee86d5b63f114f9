package qp_test

import (
	"fmt"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
)

// TestReadResourcesChange: max_dest_rd_atomic may be modified in SQD. The queue pair keeps the newest answers.
func TestReadResourcesChange(t *testing.T) {
	l := newLone(t, qp.RC, qp.RTS, false, loneAttr)
	if err := l.q.Modify(l.now, qp.Attr{State: qp.SQD}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint8) {
		if err := l.q.Modify(l.now, qp.Attr{MaxDestRdAtomic: n}, qp.AttrMaxDestRdAtomic); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		limit uint8
		rx    string
		tx    string
	}{
		{4, "fetch_add psn=100 value=1", "100 RC_ATOMIC_ACKNOWLEDGE ACK msn=1 orig=0\n"},
		{4, "fetch_add psn=101 value=1", "101 RC_ATOMIC_ACKNOWLEDGE ACK msn=2 orig=1\n"},
		{2, "fetch_add psn=102 value=1", "102 RC_ATOMIC_ACKNOWLEDGE ACK msn=3 orig=2\n"},
		{2, "fetch_add psn=101", "101 RC_ATOMIC_ACKNOWLEDGE ACK msn=3 orig=1\n"},
		{2, "fetch_add psn=100", ""},
		{7, "read psn=103", "103 RC_RDMA_READ_RESPONSE_ONLY ACK msn=4 []\n"},
		{7, "fetch_add psn=102", "102 RC_ATOMIC_ACKNOWLEDGE ACK msn=4 orig=2\n"},
		{0, "fetch_add psn=104", "104 RC_ACKNOWLEDGE NAK invalid request msn=4\n"},
	}
	for _, s := range steps {
		limit(s.limit)
		l.rx(t, s.rx)
		if tx := l.tx(); tx != s.tx {
			t.Fatalf("%s: %s, want %s", s.rx, tx, s.tx)
		}
	}
}

// TestForeignPackets: the queue pair drops packets that are no requests of its service, in any state. RC answers a
// peer with an extended transport, but only if its request is the expected one. An attacker who guesses gets no
// answer.
func TestForeignPackets(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		l := newLone(t, typ, qp.RTS, false, loneAttr)
		for op := range 256 {
			p := bth.Packet{Opcode: bth.Opcode(op), PSN: bth.MakePSN(101), DETH: bth.DETH{QKey: 0x1111}}
			if own := p.Opcode.Transport() == transports[typ]; own && p.Opcode.Valid() && p.Opcode.IsRequest() {
				continue
			}
			d := l.q.Receive(l.now, &p, qp.RxMeta{})
			if (p.Opcode.IsExt() || p.Opcode.IsMRC()) != (d == qp.DropProfile) || d != qp.DropProfile && d != qp.DropOpcode && d != qp.DropStaleAck {
				t.Errorf("%v: %v: %v", typ, p.Opcode, d)
			}
		}
		if tx := l.tx(); tx != "" || l.q.State() != qp.RTS || l.news() != "" {
			t.Errorf("%v: answers %s, state %v", typ, tx, l.q.State())
		}
	}
}

// TestReceivingStates: the queue pair accepts requests in RTR, RTS and SQD (IBTA vol.1 10.3.1), and raises COMM_EST
// once, in RTR.
func TestReceivingStates(t *testing.T) {
	for state := qp.Reset; state <= qp.Err; state++ {
		if state == qp.SQE {
			continue
		}
		l := newLone(t, qp.RC, min(state, qp.RTS), false, loneAttr)
		if state > qp.RTS {
			if err := l.q.Modify(l.now, qp.Attr{State: state}, qp.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		want, wantTx, wantNews := qp.DropState, "", ""
		if state >= qp.RTR && state <= qp.SQD {
			want, wantTx = qp.Accepted, "101 RC_ACKNOWLEDGE ACK msn=2\n"
		}
		if state == qp.RTR {
			wantNews = "event COMM_EST\n"
		}
		l.news()
		for psn := 100; psn < 102; psn++ {
			if d := l.rx(t, fmt.Sprintf("write_only psn=%d ackreq", psn)); d != want {
				t.Errorf("%v: %v, want %v", state, d, want)
			}
		}
		if tx, news := l.tx(), l.news(); tx != wantTx || news != wantNews {
			t.Errorf("%v: answers %q, events %q", state, tx, news)
		}
	}
}
