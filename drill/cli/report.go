package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/output"
)

// report is the outcome of a script.
type report struct {
	Script  string  `json:"script"`
	About   string  `json:"about"`
	Spec    string  `json:"spec"`
	Must    bool    `json:"must"`
	Outcome string  `json:"outcome"`
	Seed    uint64  `json:"seed"` // of the last run
	Line    int     `json:"line,omitempty"`
	Column  int     `json:"column,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Known   string  `json:"known,omitempty"`  // why the failure is expected (--known)
	Wanted  string  `json:"wanted,omitempty"` // packets that the script expected
	Seconds float64 `json:"seconds"`
	Log     []entry `json:"log,omitempty"`          // of a failed script, its last entries
	Others  int     `json:"other_frames,omitempty"` // of other traffic on the link
	// Measured has the values that the script measured, seed by seed.
	Measured []measured `json:"measured,omitempty"`

	script *script.Script
	result *engine.Result
	notes  []note
}

// entry is a packet, a command or an answer of a run.
type entry struct {
	Time float64 `json:"time"` // seconds since the first entry
	From string  `json:"from"` // tester or dut
	// Packet is in the script's notation; Text is a command, or what the agent says.
	Packet string `json:"packet,omitempty"`
	Text   string `json:"text,omitempty"`
	Line   int    `json:"line"` // statement that ran
}

// measured is a value that a script measured.
type measured struct {
	Line    int     `json:"line"`
	Seed    uint64  `json:"seed"`
	Name    string  `json:"name"`
	Value   string  `json:"value"`
	Seconds float64 `json:"seconds,omitempty"` // of a time
}

// Outcomes of scripts beside those of the engine.
const (
	differs = "differs" // a policy, which the device may choose
	known   = "known"   // an expected failure
	notRun  = "not run"
)

// summary is the outcome of all scripts.
type summary struct {
	DUT           string   `json:"dut"`
	Passed        int      `json:"passed"`
	Failed        int      `json:"failed"`
	NotApplicable int      `json:"not_applicable"`
	Differs       int      `json:"differs"`
	Known         int      `json:"known"`
	Inconclusive  int      `json:"inconclusive"`
	Broken        int      `json:"broken"`
	NotRun        int      `json:"not_run"`
	Slack         float64  `json:"slack,omitempty"`      // seconds
	Lost          string   `json:"lost,omitempty"`       // why the run ended before its last script
	Unexpected    []string `json:"unexpected,omitempty"` // scripts of --known that passed
	Notes         []note   `json:"notes,omitempty"`
	Scripts       []report `json:"scripts"`

	bad *script.Error // the first error of a script
}

// note is a choice of the device that no rule forbids. The first script that shows it is named.
type note struct {
	Rule   string `json:"rule"`
	Text   string `json:"text"`
	Script string `json:"script"`
	Seed   uint64 `json:"seed"`
}

// set takes the outcome of a run.
func (r *report) set(d *engine.Result, seed uint64) {
	r.Outcome, r.Seed, r.result = d.Outcome.String(), seed, d
	r.Others += d.Others
	for _, n := range d.Notes {
		r.notes = append(r.notes, note{n.Rule, n.Text, r.Script, seed})
	}
	for _, m := range d.Measured {
		r.Measured = append(r.Measured, measured{m.Pos.Line, seed, m.Text, m.Value, m.Time.Seconds()})
	}
	if d.Outcome == engine.Passed {
		return
	}
	r.Line, r.Column, r.Reason, r.Wanted = d.Pos.Line, d.Pos.Col, d.Text, d.Wanted
	for _, x := range d.Log[max(len(d.Log)-maxLog, 0):] {
		e := entry{Time: x.At.Sub(d.Log[0].At).Seconds(), From: "tester", Text: x.Text, Line: x.Pos.Line}
		if x.Dir == engine.FromDUT {
			e.From = "dut"
		}
		if x.Frame != nil {
			e.Packet = x.Frame.String()
		}
		r.Log = append(r.Log, e)
	}
}

// maxLog is the number of the last entries that a report has.
const maxLog = 10_000

// place names the statement that decided.
func (r *report) place() string { return fmt.Sprintf("%s:%d:%d", r.Script, r.Line, r.Column) }

// settle replaces the outcome of a failure that is known, or that a policy permits.
func (r *report) settle(reasons knownFailures) {
	if r.Outcome != engine.Failed.String() {
		return
	}
	if r.Known = reasons.reason(r.Script); r.Known != "" {
		r.Outcome = known
	} else if !r.Must {
		r.Outcome = differs
	}
}

// count returns the sum of an outcome.
func (s *summary) count(outcome string) *int {
	return map[string]*int{engine.Passed.String(): &s.Passed, engine.Failed.String(): &s.Failed, engine.NotApplicable.String(): &s.NotApplicable,
		engine.Inconclusive.String(): &s.Inconclusive, engine.Broken.String(): &s.Broken, engine.BadScript.String(): &s.Broken,
		engine.Stopped.String(): &s.NotRun, differs: &s.Differs, known: &s.Known, notRun: &s.NotRun}[outcome]
}

func (s *summary) add(r report) {
	*s.count(r.Outcome)++
	s.Scripts = append(s.Scripts, r)
	if r.Outcome == engine.BadScript.String() && s.bad == nil {
		s.bad = &script.Error{Path: r.Script, Pos: r.result.Pos, Text: r.Reason}
	}
	for _, n := range r.notes {
		if !slices.ContainsFunc(s.Notes, func(old note) bool { return old.Rule == n.Rule }) {
			s.Notes = append(s.Notes, n)
		}
	}
}

// line prints the outcome of a script.
func (a *app) line(r report) {
	fmt.Fprintf(a.out, "%-14s %s\n", r.Outcome, r.Script)
	if r.Outcome == engine.NotApplicable.String() {
		fmt.Fprintf(a.out, "%15s%s\n", "", r.Reason)
	} else if r.Reason != "" {
		fmt.Fprintf(a.out, "%15s%s: (seed %d) %s\n", "", r.place(), r.Seed, r.Reason)
	}
	if r.Known != "" {
		fmt.Fprintf(a.out, "%15sknown: %s\n", "", r.Known)
	}
	for _, m := range r.Measured {
		fmt.Fprintf(a.out, "%15sline %d, seed %d: %s %s\n", "", m.Line, m.Seed, m.Name, m.Value)
	}
}

// printLog prints the packets and commands of a run.
func (a *app) printLog(r *engine.Result) {
	for _, e := range r.Log {
		text := e.Text
		if e.Frame != nil {
			text = e.Frame.String()
		}
		fmt.Fprintf(a.diag, "%12.6f %s %s\n", float64(e.At)/1e9, [...]string{"<", ">"}[e.Dir], text)
	}
}

// print prints the sums, or everything in JSON.
func (a *app) print(s *summary) error {
	if a.json {
		return output.JSON(a.out, s)
	}
	others := 0
	for _, r := range s.Scripts {
		others += r.Others
	}
	for _, n := range s.Notes {
		fmt.Fprintf(a.out, "%-14s %s: %s (first in %s, seed %d)\n", "note", n.Rule, n.Text, n.Script, n.Seed)
	}
	if others > 0 {
		fmt.Fprintf(a.out, "%-14s %d frames of other traffic did not count\n", "note", others)
	}
	for _, script := range s.Unexpected {
		fmt.Fprintf(a.out, "%-14s %s is a known failure, but has passed\n", "note", script)
	}
	_, err := fmt.Fprintln(a.out, s.sums())
	return err
}

// sums returns the number of scripts by outcome; the later outcomes only if there are any.
func (s *summary) sums() string {
	text := fmt.Sprintf("%d passed, %d failed, %d not applicable", s.Passed, s.Failed, s.NotApplicable)
	for _, c := range []struct {
		n    int
		name string
	}{{s.Differs, "differ by policy"}, {s.Known, "known"}, {s.Inconclusive, "inconclusive"}, {s.Broken, "broken"}, {s.NotRun, "not run"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.name)
		}
	}
	return text
}

// write writes a file of a report and closes it. Without a file it writes nothing.
func (s *summary) write(f *os.File, format func(*summary, io.Writer) error) error {
	if f == nil {
		return nil
	}
	return errors.Join(format(s, f), f.Close())
}
