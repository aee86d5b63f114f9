package main

import (
	"strings"
	"testing"
)

// TestExitCodes checks that wrong command lines end with 2 before any measurement, and help with 0.
func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"--help": 0, "nic --help": 0, "": 2, "nonsense": 2, "nic more": 2, "nic --nonsense": 2, "compare": 2,
		"loss --rounds 0": 2, "flor --only nonsense": 2, "worker": 1,
	} {
		if code := run(strings.Fields(line)); code != want {
			t.Errorf("bench %s: exit code %d, want %d", line, code, want)
		}
	}
}
