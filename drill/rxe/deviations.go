package main

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:embed deviations.txt
var deviationsText string

// deviation is the reason why scripts fail on devices.
type deviation struct {
	duts, scripts []string
	reason        string
}

type deviations []deviation

// parseDeviations parses lines "DUT... : SCRIPT... : REASON". Lines that begin with "#" are comments.
func parseDeviations(text string) (list deviations, err error) {
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, ": ", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("deviations.txt:%d: must be DUT...: SCRIPT...: REASON", i+1)
		}
		list = append(list, deviation{strings.Fields(f[0]), strings.Fields(f[1]), strings.TrimSpace(f[2])})
	}
	return list, nil
}

// reason returns the reason why a script fails on a device, empty if none is known.
func (l deviations) reason(dut, script string) string {
	for _, d := range l {
		if slices.Contains(d.duts, dut) && slices.Contains(d.scripts, script) {
			return d.reason
		}
	}
	return ""
}

// sometimes begins the reason of a script that does not fail in each run.
const sometimes = "Sometimes: "

// bad reports whether a script failed, or the device hung.
func (s *outcome) bad() bool {
	return s.Outcome == "failed" || s.Outcome == "differs" || s.Outcome == hung
}

// check compares the failures of a device with the known ones.
func (l deviations) check(d *device) error {
	var errs []error
	for _, s := range d.Scripts {
		switch known := l.reason(d.Name, s.Script) != ""; {
		case s.bad() && !known:
			errs = append(errs, fmt.Errorf("%s: %s fails at line %d, and deviations.txt has no reason: %s", d.Name, s.Script, s.Line, s.Reason))
		case !s.bad() && s.Outcome != "inconclusive" && known && !strings.HasPrefix(l.reason(d.Name, s.Script), sometimes):
			errs = append(errs, fmt.Errorf("%s: %s is in deviations.txt, but has not failed (%s)", d.Name, s.Script, s.Outcome))
		}
	}
	return errors.Join(errs...)
}
