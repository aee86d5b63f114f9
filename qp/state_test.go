package qp

import (
	"errors"
	"strings"
	"testing"

	"roced.io/roced/plugin/mono"
)

// TestFlushBeforeRTS: requests posted while the send queue is broken are flushed. Requests posted afterwards are sent
// (IBTA vol.1 10.3.1.7), even if a program posts them during the transition.
func TestFlushBeforeRTS(t *testing.T) {
	q, h := newAt(t, UD, SQE)
	for i := range 20 { // a ring of 16; posting continues as places are freed
		h.queue = append(h.queue, SendWQE{WRID: uint64(i), Opcode: WRSend, AH: 1})
	}
	if err := q.Modify(1, Attr{State: RTS}, AttrState); err != nil || h.cqes != 16 || strings.Count(h.log.String(), "WR_FLUSH_ERR") != 16 {
		t.Fatalf("%v, %d completions\n%s", err, h.cqes, &h.log)
	}
	sent, out := 0, Transmit{}
	for q.PollTransmit(1, &out) {
		sent++
	}
	if q.Flushed(1); sent != 4 || q.State() != RTS {
		t.Fatalf("%d packets in %v", sent, q.State())
	}
}

// TestDatagramWithoutHandle: ibv_wr_send() without ibv_wr_set_ud_addr() leaves the address handle 0.
func TestDatagramWithoutHandle(t *testing.T) {
	q, h := newAt(t, UD, RTS)
	h.queue = append(h.queue, SendWQE{WRID: 7, Opcode: WRSend})
	if out := (Transmit{}); q.PollTransmit(1, &out) || q.State() != SQE || !strings.Contains(h.log.String(), "LOC_QP_OP_ERR") {
		t.Errorf("%v\n%s", q.State(), &h.log)
	}
}

func newAt(t *testing.T, typ Type, state State) (*QP, *scriptHost) {
	t.Helper()
	h := newScriptHost(1 << 12)
	q := New(Config{Tuning: Software, Type: typ, QPN: 17, Host: h, MaxSendWR: 16, MaxSendSGE: 4, MaxInline: 64})
	a := Attr{PathMTU: 1, DestQPN: 99, SQPSN: 100, Timeout: 10, RetryCnt: 2, RNRRetry: 1, MaxRdAtomic: 2}
	last := min(state, RTS)
	for to := Init; to <= last; to++ {
		rule, _ := transition(to-1, to, typ)
		a.State = to
		if err := q.Modify(0, a, rule.required|AttrState); err != nil {
			t.Fatal(err)
		}
	}
	switch state {
	case SQD, Err:
		if err := q.Modify(0, Attr{State: state}, AttrState); err != nil {
			t.Fatal(err)
		}
	case SQE:
		if typ == RC {
			t.Skip("RC has no SQE")
		}
		q.enterSendError(0)
	}
	if q.State() != state {
		t.Fatalf("state %v, want %v", q.State(), state)
	}
	return q, h
}

// TestTransitions tries every transition of every service with exactly the required attributes, with one of them
// missing, and with an extra one.
func TestTransitions(t *testing.T) {
	allowed := map[[2]State]bool{
		{Reset, Init}: true, {Init, Init}: true, {Init, RTR}: true, {RTR, RTS}: true, {RTS, RTS}: true,
		{RTS, SQD}: true, {SQD, RTS}: true, {SQD, SQD}: true, {SQE, RTS}: true,
	}
	for _, typ := range []Type{RC, UC, UD} {
		for from := Reset; from <= Err; from++ {
			for to := Reset; to <= Err; to++ {
				t.Run(typ.String()+" "+from.String()+" "+to.String(), func(t *testing.T) {
					want := allowed[[2]State{from, to}] || to == Reset || to == Err
					testTransition(t, typ, from, to, want)
				})
			}
		}
	}
}

func testTransition(t *testing.T, typ Type, from, to State, allowed bool) {
	a := Attr{State: to, CurState: from, PathMTU: 3}
	q, _ := newAt(t, typ, from)
	r, ok := transition(from, to, typ)
	if ok != allowed {
		t.Fatalf("allowed: %v", ok)
	}
	if !ok {
		if err := q.Modify(1, a, AttrState); !errors.Is(err, ErrTransition) || q.State() != from {
			t.Fatalf("%v, state %v", err, q.State())
		}
		return
	}
	for bit := AttrMask(1); bit != 0; bit <<= 1 {
		q, _ := newAt(t, typ, from)
		before := q.Attr()
		mask, want := r.required|AttrState|bit, ErrNotAllowed
		switch {
		case bit == AttrState:
			continue
		case r.required&bit != 0:
			mask, want = mask&^bit, ErrMissing
		case r.optional&bit != 0:
			want = nil
		}
		err := q.Modify(1, a, mask)
		if !errors.Is(err, want) {
			t.Fatalf("with %v: %v, want %v", mask, err, want)
		}
		var m *ModifyError
		if err != nil && (!errors.As(err, &m) || m.Attrs != bit || q.Attr() != before) {
			t.Fatalf("with %v: %v, attributes %+v", mask, err, q.Attr())
		}
		if err == nil && q.State() != to {
			t.Fatalf("state %v", q.State())
		}
	}
}

func TestModifyValues(t *testing.T) {
	for _, c := range []struct {
		from State
		a    Attr
		m    AttrMask
		bad  AttrMask
	}{
		{Init, Attr{State: RTR, PathMTU: 0, MinRNRTimer: 1}, AttrState | rtrRC, AttrPathMTU},
		{Init, Attr{State: RTR, PathMTU: 6, MinRNRTimer: 32, DestQPN: 1 << 24}, AttrState | rtrRC,
			AttrPathMTU | AttrMinRNRTimer | AttrDestQPN},
		{RTR, Attr{State: RTS, Timeout: 32, RetryCnt: 8, RNRRetry: 8}, AttrState | rtsRC,
			AttrTimeout | AttrRetryCnt | AttrRNRRetry},
		{RTS, Attr{State: RTS, CurState: SQD}, AttrState | AttrCurState, AttrCurState},
	} {
		q, _ := newAt(t, RC, c.from)
		var m *ModifyError
		if err := q.Modify(1, c.a, c.m); !errors.As(err, &m) || m.Attrs != c.bad || !errors.Is(err, ErrValue) {
			t.Errorf("%v, want %v", err, c.bad)
		}
	}
	q, _ := newAt(t, RC, RTR)
	a := Attr{State: RTS, SQPSN: 0xff000005}
	if err := q.Modify(1, a, AttrState|rtsRC); err != nil || q.Attr().SQPSN != 5 {
		t.Errorf("%v, PSN %#x", err, q.Attr().SQPSN)
	}
	if err := q.Modify(1, Attr{State: 9}, AttrState); !errors.Is(err, ErrTransition) {
		t.Errorf("state 9: %v", err)
	}
	const want = "qp: modify RTS to RTS: attributes not allowed: PORT|DEST_QPN"
	if err := q.Modify(1, Attr{}, AttrPort|AttrDestQPN); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestSQDAttributesNeedDrain(t *testing.T) {
	q, h := newAt(t, RC, RTS)
	h.queue = append(h.queue, SendWQE{Opcode: WRSend})
	var tr Transmit
	if !q.PollTransmit(1, &tr) {
		t.Fatal("nothing sent")
	}
	if err := q.Modify(1, Attr{State: SQD}, AttrState); err != nil {
		t.Fatal(err)
	}
	change := func() error { return q.Modify(2, Attr{Timeout: 5}, AttrTimeout) }
	if err := change(); !errors.Is(err, ErrDraining) {
		t.Fatal(err)
	}
	ack := ackFor(tr.Packet.PSN)
	q.Receive(3, &ack, RxMeta{})
	if err := change(); err != nil || q.Attr().Timeout != 5 {
		t.Fatal(err)
	}
}

func TestResetDiscards(t *testing.T) {
	q, h := newAt(t, RC, RTS)
	for range 5 {
		h.queue = append(h.queue, SendWQE{Opcode: WRSend, Flags: SendSignaled})
	}
	var tr Transmit
	q.PollTransmit(1, &tr)
	q.PollTransmit(1, &tr)
	if err := q.Modify(2, Attr{State: Reset}, AttrState); err != nil {
		t.Fatal(err)
	}
	if h.cqes != 0 || h.retired != h.taken || q.Attr() != (Attr{}) || q.NextTimeout() != mono.Never {
		t.Fatalf("%d completions, %d of %d retired, %+v", h.cqes, h.retired, h.taken, q.Attr())
	}
	ack := ackFor(tr.Packet.PSN)
	if d := q.Receive(3, &ack, RxMeta{}); d != DropState || q.PollTransmit(4, &tr) {
		t.Fatalf("alive in RESET: %v", d)
	}
}
