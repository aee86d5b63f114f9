package main

import (
	"strings"
	"testing"
)

// TestKnown: deviations.txt can be read.
func TestKnown(t *testing.T) {
	if _, err := parseDeviations(deviationsText); err != nil {
		t.Error(err)
	}
	if _, err := parseDeviations("rxe-6.1: x"); err == nil || err.Error() != "deviations.txt:1: must be DUT...: SCRIPT...: REASON" {
		t.Error(err)
	}
}

// results are two devices. Device b fails two scripts and hangs in a third.
func results() []device {
	list := []device{{Name: "a"}, {Name: "b"}}
	names := []string{"x/one", "x/two", "y/three", "y/four"}
	for i, outcomes := range [][]string{{"passed", "passed", "passed", "passed"}, {"failed", "failed", hung, "not applicable"}} {
		for j, o := range outcomes {
			list[i].Scripts = append(list[i].Scripts, outcome{Script: names[j], About: "A rule.", Spec: "IBTA 9.7", Must: true, Outcome: o})
		}
	}
	return list
}

const reasons = "# comment\nb: x/one y/three: It is so.\na: x/one y/five: Stale.\na: x/two: Sometimes: It is late.\n"

// TestCheck: a failure needs a reason, and a reason needs a failure.
func TestCheck(t *testing.T) {
	known, err := parseDeviations(reasons)
	if err != nil {
		t.Fatal(err)
	}
	d := results()
	d[0].Scripts = append(d[0].Scripts, outcome{Script: "y/five", Outcome: "inconclusive"})
	if err := known.check(&d[0]); err == nil || err.Error() != "a: x/one is in deviations.txt, but has not failed (passed)" {
		t.Error(err)
	}
	if err := known.check(&d[1]); err == nil || !strings.HasPrefix(err.Error(), "b: x/two fails at line 0, and deviations.txt has no reason") || strings.Count(err.Error(), "\n") > 0 {
		t.Error(err)
	}
}

// TestDocument: the tables of the page.
func TestDocument(t *testing.T) {
	known, err := parseDeviations(reasons)
	if err != nil {
		t.Fatal(err)
	}
	page := document(results(), known, []section{{"IBTA 9.7", 4, 0, []string{"gap"}}})
	for _, want := range []string{
		"| group | a | b |\n|---|---|---|\n| x | 2 | 0, 2 failed |\n| y | 2 | 0, 1 failed (1) |\n| **all** | 4 | 0, 3 failed (1) |\n",
		"| x/one | b | A rule. (IBTA 9.7) | It is so. |\n| x/two | b | A rule. (IBTA 9.7) | not known |\n",
		"| y/three | b | A rule. (IBTA 9.7) | It is so. Afterwards the device does not answer. |\n",
		"| IBTA 9.7 | 4 | 0 | 1 |\n| **1 sections** | 4 | 0 | 1 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, page)
		}
	}
}
