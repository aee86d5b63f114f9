package cli

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
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
	Wanted  string  `json:"wanted,omitempty"` // packets that the script expected
	Seconds float64 `json:"seconds"`
	Log     []entry `json:"log,omitempty"`          // of a failed script, its last entries
	Others  int     `json:"other_frames,omitempty"` // of other traffic on the link

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

// summary is the outcome of all scripts.
type summary struct {
	DUT           string   `json:"dut"`
	Passed        int      `json:"passed"`
	Failed        int      `json:"failed"`
	NotApplicable int      `json:"not_applicable"`
	Lost          string   `json:"lost,omitempty"` // why the run ended before its last script
	Notes         []note   `json:"notes,omitempty"`
	Scripts       []report `json:"scripts"`
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

func (s *summary) add(r report) {
	switch r.Outcome {
	case engine.Passed.String():
		s.Passed++
	case engine.Failed.String():
		s.Failed++
	case engine.NotApplicable.String():
		s.NotApplicable++
	}
	if r.Outcome != "" {
		s.Scripts = append(s.Scripts, r)
	}
	for _, n := range r.notes {
		if !slices.ContainsFunc(s.Notes, func(old note) bool { return old.Rule == n.Rule }) {
			s.Notes = append(s.Notes, n)
		}
	}
}

// ended returns the number of scripts that were not interrupted.
func (s *summary) ended() (n int) {
	for _, r := range s.Scripts {
		if r.Outcome != engine.Stopped.String() {
			n++
		}
	}
	return n
}

// line prints the outcome of a script.
func (a *app) line(r report) {
	fmt.Fprintf(a.out, "%-14s %s\n", r.Outcome, r.Script)
	if r.Outcome == engine.NotApplicable.String() {
		fmt.Fprintf(a.out, "%15s%s\n", "", r.Reason)
	} else if r.Reason != "" {
		fmt.Fprintf(a.out, "%15s%s: (seed %d) %s\n", "", r.place(), r.Seed, r.Reason)
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
		return a.encode(s)
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
	_, err := fmt.Fprintf(a.out, "%d passed, %d failed, %d not applicable\n", s.Passed, s.Failed, s.NotApplicable)
	return err
}

// write writes a file of a report and closes it. Without a file it writes nothing.
func (s *summary) write(f *os.File, format func(*summary, io.Writer) error) error {
	if f == nil {
		return nil
	}
	return errors.Join(format(s, f), f.Close())
}

// The elements of JUnit XML that CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr"`
		Seconds float64       `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit writes JUnit XML. A script that is not applicable is skipped; one that cannot end because the device is lost fails.
func (s *summary) junit(w io.Writer) error {
	x := junitSuite{Name: "rocedrill " + s.DUT, Tests: len(s.Scripts), Skipped: s.NotApplicable, Failures: len(s.Scripts) - s.Passed - s.NotApplicable}
	for _, r := range s.Scripts {
		c := junitCase{Class: filepath.Dir(r.Script), Name: filepath.Base(r.Script), File: r.Script, Seconds: r.Seconds}
		switch r.Outcome {
		case engine.Passed.String():
		case engine.NotApplicable.String():
			c.Skipped = &junitMessage{Message: r.Reason}
		default:
			c.Failure = &junitMessage{Message: r.place() + ": " + r.Reason, Text: fmt.Sprintf("seed %d\n%s", r.Seed, ladderText(r.Log))}
		}
		x.Cases = append(x.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(x); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// ladderText lists the entries of a run.
func ladderText(log []entry) string {
	text := ""
	for _, e := range log {
		arrow := map[string]string{"tester": "tester -> dut", "dut": "dut -> tester"}[e.From]
		text += fmt.Sprintf("%12.6f %s %s%s\n", e.Time, arrow, e.Packet, e.Text)
	}
	return text
}
