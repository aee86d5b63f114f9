package engine

import (
	"fmt"
	"time"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// Outcome is the outcome of a run.
type Outcome uint8

// Outcomes.
const (
	Passed        Outcome = iota
	Failed                // the device does not do what the script expects
	NotApplicable         // the device lacks a capability that the script needs
	BadScript             // the script is wrong
	Broken                // the agent or the device does not answer
	Stopped               // the caller interrupted the run
	Inconclusive          // the tester was late
)

// String returns the outcome as reports show it.
func (o Outcome) String() string {
	return [...]string{"passed", "failed", "not applicable", "bad script", "broken", "interrupted", "inconclusive"}[o]
}

// Result is the outcome of a run with its reason.
type Result struct {
	Outcome Outcome
	Pos     script.Pos    // of the statement that decided
	Text    string        // reason, empty if passed
	Wanted  string        // packets that the script expected when it failed, in its notation
	Log     []Entry       // packets, commands and answers in order
	Notes   []Note        // choices of the device that no rule forbids
	Timed   bool          // a late device can be the reason: it failed by a bound of time, by a retransmission, or after a quiet statement
	Early   time.Duration // by this time the device was too early, zero if it was not
	// Measured are the times and values that the script measured: of print, and of packets and reports with a lower bound.
	Measured []Measure
	// AckTimeout is the shortest acknowledgement timeout that the script sets, zero if none. A tester that answers later makes
	// the device retransmit.
	AckTimeout time.Duration
	Others     int // frames on the link that are not the device's, or not of this script
}

// untimely fails the run because the device was late or early.
func (e *Engine) untimely(pos script.Pos, format string, args ...any) {
	if e.result == nil {
		e.finish(Failed, pos, fmt.Sprintf(format, args...))
		e.result.Timed = true
	}
}

// early fails the run because the device was too early.
func (e *Engine) early(pos script.Pos, what any, d, after time.Duration) {
	if e.result == nil {
		e.untimely(pos, "%v came after %v, too early: at least %v are needed", what, d, after)
		e.result.Early = after - d
	}
}

// Measure is a value that a script measured.
type Measure struct {
	Pos  script.Pos
	Text string
	// Value is as scripts write it. Time is set if it is a duration.
	Value string
	Time  time.Duration
}

// mostMeasured bounds the values of a run.
const mostMeasured = 1000

// measure records a value for the report.
func (e *Engine) measure(at script.Pos, text string, v value) {
	if len(e.measured) == mostMeasured {
		return
	}
	m := Measure{Pos: at, Text: text, Value: v.String()}
	if v.kind == isDuration {
		m.Time = time.Duration(v.num)
	} else if v.kind == isNumber {
		m.Value = fmt.Sprint(v.num)
	}
	e.measured = append(e.measured, m)
}

// Inconclusive replaces the outcome: the tester could not keep the times.
func (r *Result) Inconclusive(why string) {
	if r.Text != "" {
		why += "; " + r.Text
	}
	r.Outcome, r.Text = Inconclusive, why
}

// Direction is the direction of an entry: to or from the device.
type Direction uint8

// Directions.
const (
	ToDUT Direction = iota
	FromDUT
)

// Entry is a packet, a command or an answer of a run.
type Entry struct {
	At    mono.Time
	Dir   Direction
	Frame *frame.Frame // nil for commands and answers
	Text  string
	Pos   script.Pos // statement that ran then
}

// record appends an entry to the log.
func (e *Engine) record(now mono.Time, d Direction, f *frame.Frame, text string) {
	e.log = append(e.log, Entry{now, d, f, text, e.pos()})
	size := entryBytes + len(text)
	if f != nil {
		size += len(f.Bytes)
	}
	switch {
	case e.result != nil || e.fits(uint64(size)):
	case d == FromDUT:
		e.finish(Broken, e.pos(), fmt.Sprintf("the device's packets and reports, with values and regions, exceed %d bytes; --force records more", e.o.Memory))
	default:
		e.finish(BadScript, e.pos(), fmt.Sprintf("the recorded packets and commands, with values and regions, exceed %d bytes; --force records more", e.o.Memory))
	}
}

// entryBytes is the memory of an entry besides the frame and the text.
const entryBytes = 600

// fits counts n more bytes of memory, if there is room for them.
func (e *Engine) fits(n uint64) bool {
	if n > e.o.Memory-e.used {
		return false
	}
	e.used += n
	return true
}

// uses counts bytes of a value or a region. It ends the run if there is no room for them.
func (e *Engine) uses(at script.Pos, what string, n uint64) {
	if !e.fits(n) {
		e.fail(at, "%s needs %d bytes, beside %d bytes of other values, regions and packets: more than %d bytes need --force", what, n, e.used, e.o.Memory)
	}
}

// finish ends the run. The first reason counts.
func (e *Engine) finish(o Outcome, pos script.Pos, text string) {
	if e.result == nil {
		e.result = &Result{
			Outcome: o, Pos: pos, Text: text, Wanted: e.wanted, Log: e.log, Notes: e.notes, Measured: e.measured, AckTimeout: e.shortest, Others: e.others,
			Timed: e.quiet || len(e.frames) > 0 && e.frames[0].repeated,
		}
		e.command = nil
	}
}
