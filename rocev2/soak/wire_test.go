package soak

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2/nictest"
)

// wire puts the fault engine on the link between a and b; "tx" is from a to b.
type wire struct {
	p     *nictest.Pair
	eng   fault.Engine
	delay time.Duration
	late  []lateFrame // frames that the engine held back, in transit again
	down  bool
	lost  int // while down
	trace []traceEntry
	shown io.Writer // nil: the trace is kept for a failure
}

type lateFrame struct {
	at    mono.Time
	to    *nictest.Node
	frame []byte
}

// traceEntry is a frame that was sent.
type traceEntry struct {
	at      mono.Time
	from    string
	p       bth.Packet
	size    int
	comment string
}

// traceLen is the number of frames that a failure shows.
const traceLen = 80

// hook decides the fate of a frame.
func (w *wire) hook(f *nictest.Flight) nictest.Fate {
	e := traceEntry{at: f.At, from: f.From.Name, size: len(f.Frame)}
	roce := f.RoCE(&e.p)
	dir := fault.Tx
	if f.From == w.p.B {
		dir = fault.Rx
	}
	v := w.eng.Process(f.At, dir, f.Frame)
	f.Frame = v.Frame
	e.comment = v.Comment
	drop := v.Copies == 0
	if w.down && !drop {
		w.lost++
		drop, e.comment = true, "link is down"
	}
	if !roce {
		e.p.Opcode = 0xff
	}
	w.note(e)
	w.collect(f.At)
	return nictest.Fate{Drop: drop, Copies: v.Copies - 1, CopyDelay: 3 * w.delay}
}

// collect puts frames that the engine releases on the link. They arrive after the frames that overtook them.
func (w *wire) collect(now mono.Time) {
	for _, d := range []fault.Dir{fault.Tx, fault.Rx} {
		to := w.p.B
		if d == fault.Rx {
			to = w.p.A
		}
		for frame, ok := w.eng.Release(now, d); ok; frame, ok = w.eng.Release(now, d) {
			w.late = append(w.late, lateFrame{now.Add(w.delay), to, bytes.Clone(frame)})
		}
	}
}

// deliver delivers the late frames that have arrived.
func (w *wire) deliver(now mono.Time) {
	w.collect(now)
	for len(w.late) > 0 && w.late[0].at <= now {
		l := w.late[0]
		w.late = w.late[1:]
		l.to.NIC.Receive(now, l.frame, 0)
	}
}

// next returns the time at which deliver has work.
func (w *wire) next() mono.Time {
	t := w.eng.NextTimeout()
	if len(w.late) > 0 {
		t = t.Min(w.late[0].at)
	}
	return t
}

func (w *wire) note(e traceEntry) {
	e.p.Payload = nil
	if w.shown != nil {
		fmt.Fprintln(w.shown, e)
		return
	}
	if len(w.trace) >= 2*traceLen {
		w.trace = append(w.trace[:0], w.trace[traceLen:]...)
	}
	w.trace = append(w.trace, e)
}

// String formats the frame on one line.
func (e traceEntry) String() string {
	s := fmt.Sprintf("%13v %s ", time.Duration(e.at), e.from)
	if e.p.Opcode == 0xff {
		s += "not RoCE"
	} else {
		s += fmt.Sprintf("qp=%#06x psn=%v %v", uint32(e.p.DestQP), e.p.PSN, e.p.Opcode)
	}
	o := e.p.Opcode
	switch {
	case o == 0xff:
	case o.HasRETH():
		s += fmt.Sprintf(" va=%#x rkey=%#x len=%d", e.p.RETH.VA, e.p.RETH.RKey, e.p.RETH.Length)
	case o.HasAETH():
		s += fmt.Sprintf(" %v msn=%d", e.p.AETH.Syndrome, e.p.AETH.MSN)
	}
	if e.p.AckReq {
		s += " ackreq"
	}
	s += fmt.Sprintf(" (%d bytes)", e.size)
	if e.comment != "" {
		s += "  <- " + e.comment
	}
	return s
}
