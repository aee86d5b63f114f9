package qp_test

import (
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
)

// TestRefusals has one case for each rule of IBTA vol.1 9.7.4.1 and 9.9.3. The responder refuses the last packet. A
// NAK, if any, has its PSN and is the last answer.
func TestRefusals(t *testing.T) {
	const invalid, access, operational = bth.SyndromeInvalidRequest, bth.SyndromeRemoteAccessErr, bth.SyndromeRemoteOpErr
	for _, c := range []struct {
		name string
		rx   string // packets, separated by commas
		nak  bth.Syndrome
		drop qp.Drop
		news string // completion of the first receive, or event
	}{
		{"MIDDLE without FIRST", "send_middle psn=100 len=256", invalid, qp.DropOpcode, "event QP_REQ_ERR"},
		{"LAST without FIRST", "write_last psn=100 len=1", invalid, qp.DropOpcode, "event QP_REQ_ERR"},
		{"FIRST after FIRST", "send_first psn=100 len=256, send_first psn=101 len=256", invalid, qp.DropOpcode, "cqe wr=1 REM_INV_REQ_ERR"},
		{"ONLY after FIRST", "write_first psn=100 len=256 total=300, write_only psn=101", invalid, qp.DropOpcode, "event QP_REQ_ERR"},
		{"WRITE in a SEND", "send_first psn=100 len=256, write_last psn=101 len=1", invalid, qp.DropOpcode, "cqe wr=1 REM_INV_REQ_ERR"},
		{"SEND in a WRITE", "write_first psn=100 len=256 total=300, send_last psn=101 len=44", invalid, qp.DropOpcode, "event QP_REQ_ERR"},
		{"READ in a SEND", "send_first psn=100 len=256, read psn=101", invalid, qp.DropOpcode, "cqe wr=1 REM_INV_REQ_ERR"},
		{"atomic in a WRITE", "write_first psn=100 len=256 total=300, fetch_add psn=101", invalid, qp.DropOpcode, "event QP_REQ_ERR"},

		{"short FIRST", "send_first psn=100 len=255", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"long FIRST", "send_first psn=100 len=257", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"empty MIDDLE", "send_first psn=100 len=256, send_middle psn=101", invalid, qp.DropLength, "cqe wr=1 REM_INV_REQ_ERR"},
		{"empty LAST", "send_first psn=100 len=256, send_last psn=101", invalid, qp.DropLength, "cqe wr=1 REM_INV_REQ_ERR"},
		{"long LAST", "send_first psn=100 len=256, send_last psn=101 len=257", invalid, qp.DropLength, "cqe wr=1 REM_INV_REQ_ERR"},
		{"long ONLY", "send_only psn=100 len=257", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"WRITE ends early", "write_first psn=100 len=256 total=300, write_last psn=101 len=43", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"WRITE ends late", "write_first psn=100 len=256 total=300, write_last psn=101 len=45", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"WRITE goes on", "write_first psn=100 len=256 total=512, write_middle psn=101 len=256", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"WRITE is only FIRST", "write_first psn=100 len=256 total=256", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"ONLY WRITE says more", "write_only psn=100 len=5 total=6", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"ONLY WRITE says less", "write_only psn=100 len=5 total=0", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"WRITE beyond 2 GiB", "write_first psn=100 len=256 total=0x80000001", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"READ beyond 2 GiB", "read psn=100 total=0x80000001", invalid, qp.DropLength, "event QP_REQ_ERR"},

		{"WRITE key", "write_only psn=100 len=1 total=1 rkey=4", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"WRITE right", "write_only psn=100 len=1 total=1 rkey=6", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"WRITE end, seen at FIRST", "write_first psn=100 len=256 total=257 va=0x9f00", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"WRITE address wraps", "write_only psn=100 len=2 total=2 va=0xffffffffffffffff", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"READ key", "read psn=100 total=1 rkey=4", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"READ right", "read psn=100 total=1 rkey=7", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"READ end", "read psn=100 total=257 va=0x9f00", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic key", "fetch_add psn=100 rkey=4", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic right", "cmp_swap psn=100 rkey=6", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic end", "fetch_add psn=100 va=0xa000", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic alignment", "fetch_add psn=100 va=0x7004", invalid, qp.DropAccess, "event QP_REQ_ERR"},
		{"atomic WRITE key", "atomic_write psn=100 len=8 total=8 rkey=4", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic WRITE right", "atomic_write psn=100 len=8 total=8 rkey=6", access, qp.DropAccess, "event QP_ACCESS_ERR"},
		{"atomic WRITE alignment", "atomic_write psn=100 len=8 total=8 va=0x7004", invalid, qp.DropAccess, "event QP_REQ_ERR"},
		{"atomic WRITE says less", "atomic_write psn=100 len=8 total=4", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"atomic WRITE carries less", "atomic_write psn=100 len=4 total=8", invalid, qp.DropLength, "event QP_REQ_ERR"},
		{"key to invalidate", "send_only_inv psn=100 inv=4", 0, qp.DropAccess, "cqe wr=1 REM_INV_REQ_ERR"}, // class J
		{"WRITE key with immediate", "write_only_imm psn=100 len=5 total=5 rkey=4", access, qp.DropAccess, "cqe wr=1 LOC_ACCESS_ERR"},
		{"WRITE range with immediate", "write_only_imm psn=100 len=5 total=5 va=0xa000", access, qp.DropAccess, "cqe wr=1 LOC_ACCESS_ERR"},

		{"buffer too small", "send_first psn=100 len=256, send_middle psn=101 len=256, send_last psn=102 len=89",
			invalid, qp.DropLength, "cqe wr=1 LOC_LEN_ERR"},
		{"buffer not writable", "send_only psn=100 len=256, send_only psn=101 len=1", operational, qp.DropAccess, "cqe wr=2 LOC_PROT_ERR"},
		{"too many elements", "send_only psn=100, write_only_imm psn=101, send_only psn=102",
			operational, qp.DropAccess, "cqe wr=3 LOC_PROT_ERR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLone(t, qp.RC, qp.RTS, false, loneAttr)
			l.post(qp.RecvWQE{WRID: 1, SGEs: []qp.SGE{{localVA, 600, lkey}}})
			l.post(qp.RecvWQE{WRID: 2, SGEs: []qp.SGE{{localVA, 600, 2}}})
			l.post(qp.RecvWQE{WRID: 3, SGEs: make([]qp.SGE, 5)})
			l.refuses(t, c.rx, c.nak, c.drop)
			if news := l.news(); !strings.Contains(news, c.news+"\n") || !strings.Contains(news, "cqe wr=3") {
				t.Errorf("completions and events:\n%s, want %s", news, c.news)
			}
			if counted := l.ctr.RespRemoteInvalidRequest+l.ctr.RespRemoteAccessErrors == 1; counted == (c.nak == operational) {
				t.Errorf("counters %s", l.counters())
			}
		})
	}
}

// refuses delivers packets, of which the queue pair must refuse the last.
func (l *lone) refuses(t *testing.T, rx string, nak bth.Syndrome, drop qp.Drop) {
	t.Helper()
	lines := strings.Split(rx, ", ")
	for i, line := range lines {
		want := qp.Accepted
		if i == len(lines)-1 {
			want = drop
		}
		if got := l.rx(t, line); got != want {
			t.Fatalf("%s: %v, want %v", line, got, want)
		}
	}
	want, answers := fmt.Sprintf("%d RC_ACKNOWLEDGE %v msn=", 99+len(lines), nak), 1
	if nak == 0 {
		want, answers = "", 0
	}
	if tx := l.tx(); !strings.HasPrefix(tx, want) || strings.Count(tx, "\n") != answers {
		t.Errorf("answers:\n%s, want %s", tx, want)
	}
	if l.q.State() != qp.Err {
		t.Errorf("state %v", l.q.State())
	}
}

// TestOperationsNotEnabled: the queue pair has no remote access rights.
func TestOperationsNotEnabled(t *testing.T) {
	for _, rx := range []string{
		"write_only psn=100", "write_only_imm psn=100", "write_first psn=100 len=256 total=300", "read psn=100",
		"fetch_add psn=100", "cmp_swap psn=100",
	} {
		a := loneAttr
		a.AccessFlags = 0
		l := newLone(t, qp.RC, qp.RTS, false, a)
		l.refuses(t, rx, bth.SyndromeInvalidRequest, qp.DropAccess)
		if news := l.news(); news != "event QP_REQ_ERR\n" {
			t.Errorf("%s: %s", rx, news)
		}
	}
}

// TestNoReadResources: max_dest_rd_atomic is 0.
func TestNoReadResources(t *testing.T) {
	for _, rx := range []string{"read psn=100", "fetch_add psn=100"} {
		a := loneAttr
		a.MaxDestRdAtomic = 0
		l := newLone(t, qp.RC, qp.RTS, false, a)
		if d := l.rx(t, strings.Replace(rx, "100", "90", 1)); d != qp.DropDuplicate {
			t.Errorf("%v", d)
		}
		l.refuses(t, rx, bth.SyndromeInvalidRequest, qp.DropOpcode)
	}
}

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
			if p.Opcode.IsExt() != (d == qp.DropProfile) || d != qp.DropProfile && d != qp.DropOpcode && d != qp.DropStaleAck {
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

// TestResetForgets: after RESET the queue pair neither answers nor completes requests of the old connection, and its
// numbers start again.
func TestResetForgets(t *testing.T) {
	l := newLone(t, qp.RC, qp.RTS, false, loneAttr)
	l.post(qp.RecvWQE{WRID: 1, SGEs: []qp.SGE{{localVA, 600, lkey}}})
	l.rx(t, "read psn=100 total=5")
	l.rx(t, "send_first psn=101 len=256 ackreq")
	if err := l.q.Modify(l.now, qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if tx, news := l.tx(), l.news(); tx != "" || news != "" {
		t.Fatalf("answers %s, completions %s", tx, news)
	}
	connect(t, l, loneAttr)
	l.rx(t, "read psn=99 total=5")
	l.rx(t, "write_only psn=100 ackreq")
	if tx := l.tx(); tx != "100 RC_ACKNOWLEDGE ACK msn=1\n" {
		t.Errorf("answers %s", tx)
	}
}

// TestDuplicatesAckNoAnswers: the acknowledgement of a duplicate ends before READs and atomics, because the peer may
// lack their answers. Linux's rxe takes an acknowledgement with the PSN of an atomic for its answer.
func TestDuplicatesAckNoAnswers(t *testing.T) {
	l := newLone(t, qp.RC, qp.RTS, false, loneAttr)
	steps := []struct{ rx, tx string }{
		{"write_only psn=100", ""},
		{"write_only psn=101", ""},
		{"fetch_add psn=102 value=1", "102 RC_ATOMIC_ACKNOWLEDGE ACK msn=3 orig=0\n"},
		{"write_only psn=100", "101 RC_ACKNOWLEDGE ACK msn=3\n"},
		{"write_only psn=103", ""},
		{"read psn=104", "104 RC_RDMA_READ_RESPONSE_ONLY ACK msn=5 []\n"},
		{"write_only psn=103", "103 RC_ACKNOWLEDGE ACK msn=5\n"},
		{"write_only psn=101", "101 RC_ACKNOWLEDGE ACK msn=5\n"},
		{"write_only psn=105", ""},
		{"write_only psn=103", "103 RC_ACKNOWLEDGE ACK msn=6\n"},
		{"write_only psn=105", "105 RC_ACKNOWLEDGE ACK msn=6\n"},
	}
	for i, s := range steps {
		l.rx(t, s.rx)
		if tx := l.tx(); tx != s.tx {
			t.Errorf("%d, %s: %s, want %s", i, s.rx, tx, s.tx)
		}
	}
}
