package engine

import (
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
)

// String returns the outcome as reports show it.
func (o Outcome) String() string {
	return [...]string{"passed", "failed", "not applicable", "bad script", "broken"}[o]
}

// Result is the outcome of a run with its reason.
type Result struct {
	Outcome Outcome
	Pos     script.Pos // of the statement that decided
	Text    string     // reason, empty if passed
	Wanted  string     // packets that the script expected when it failed, in its notation
	Log     []Entry    // packets, commands and answers in order
}

// Direction tells whether an entry went to or came from the device.
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
}

// finish ends the run. The first reason counts.
func (e *Engine) finish(o Outcome, pos script.Pos, text string) {
	if e.result == nil {
		e.result = &Result{Outcome: o, Pos: pos, Text: text, Wanted: e.wanted, Log: e.log}
		e.command = nil
	}
}
