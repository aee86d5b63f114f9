package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"

	"roced.io/roced/drill/engine"
)

// The elements of JUnit XML that CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class      string          `xml:"classname,attr"`
		Name       string          `xml:"name,attr"`
		File       string          `xml:"file,attr"`
		Seconds    float64         `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Failure    *junitMessage   `xml:"failure"`
		Error      *junitMessage   `xml:"error"`
		Skipped    *junitMessage   `xml:"skipped"`
		Output     string          `xml:"system-out,omitempty"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit writes JUnit XML with all scripts. Scripts that are not applicable, have not run or fail as expected are skipped; a policy that
// differs is no failure. A script that is inconclusive or broken is an error.
func (s *summary) junit(w io.Writer) error {
	x := junitSuite{Name: "rocedrill " + s.DUT, Tests: len(s.Scripts), Failures: s.Failed, Errors: s.Inconclusive + s.Broken,
		Skipped: s.NotApplicable + s.Known + s.NotRun}
	for i := range s.Scripts {
		x.Cases = append(x.Cases, s.Scripts[i].junit())
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

func (r *report) junit() junitCase {
	c := junitCase{Class: filepath.Dir(r.Script), Name: filepath.Base(r.Script), File: r.Script, Seconds: r.Seconds, Properties: []junitProperty{
		{"rule", r.About}, {"section", r.Spec}, {"kind", map[bool]string{true: "must", false: "policy"}[r.Must]}, {"outcome", r.Outcome}, {"seed", fmt.Sprint(r.Seed)}}}
	for _, m := range r.Measured {
		c.Properties = append(c.Properties, junitProperty{fmt.Sprintf("line %d, seed %d: %s", m.Line, m.Seed, m.Name), m.Value})
	}
	why := &junitMessage{Message: r.place() + ": " + r.Reason, Text: fmt.Sprintf("seed %d\n%s", r.Seed, ladderText(r.Log))}
	switch r.Outcome {
	case engine.Passed.String():
	case engine.Failed.String():
		c.Failure = why
	case differs:
		c.Output = "the device differs from this policy: " + why.Message
	case known:
		c.Skipped = &junitMessage{Message: "known: " + r.Known + ": " + why.Message}
	case engine.NotApplicable.String(), engine.Stopped.String(), notRun:
		c.Skipped = &junitMessage{Message: r.Reason}
	default:
		c.Error = why
	}
	return c
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
