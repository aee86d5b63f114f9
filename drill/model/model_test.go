package model

import (
	"flag"
	"os"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/lab"
)

// steps runs the model on a device.
func steps(t *testing.T, d Device, o Options) *Report {
	t.Helper()
	o.Failures, o.Over, o.Progress = 1, func() bool { return false }, func(*Report) {}
	r, err := Run(t.Context(), d, o)
	lab.Must(t, err)
	return r
}

// TestNIC: our NIC breaks no rule, and each rule is checked.
func TestNIC(t *testing.T) {
	n := 4000
	if !testing.Short() {
		n = 100_000
	}
	r := steps(t, dut.Virtual{}, Options{Seed: 1, Steps: n})
	for _, f := range r.Failures {
		t.Errorf("%s: %s\n%s", f.Rule, f.Reason, f.Script)
	}
	for _, rule := range Rules {
		if r.Checks[rule.ID] == 0 {
			t.Errorf("no statement checks %s", rule.ID)
		}
	}
}

// TestSeed: a seed determines its sequence, and the choices of a sequence determine its script.
func TestSeed(t *testing.T) {
	for seed := range uint64(20) {
		s, text := Generate(seed, 20)
		_, again := Generate(seed, 20)
		if text.Source("", nil) != again.Source("", nil) || text.Source("", nil) != s.Script().Source("", nil) {
			t.Errorf("seed %d: the scripts differ", seed)
		}
	}
}

var update = flag.Bool("update", false, "write docs/reference/drill-model.md")

// TestReference checks that the page of rules is that of the code.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/drill-model.md"
	var b strings.Builder
	WriteReference(&b)
	if *update {
		lab.Must(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	page, err := os.ReadFile(path)
	lab.Must(t, err)
	if b.String() != string(page) {
		t.Error("the page differs: run go test ./drill/model -run TestReference -update")
	}
}

// TestCitations: the suite's table has the section of each rule.
func TestCitations(t *testing.T) {
	table, err := os.ReadFile("../suite/SPEC.md")
	lab.Must(t, err)
	seen := map[string]bool{}
	for _, r := range Rules {
		if !strings.Contains(string(table), "\n| "+r.Spec+" | ") {
			t.Errorf("%s cites %s, which SPEC.md lacks", r.ID, r.Spec)
		}
		if seen[r.ID] || r.Text == "" {
			t.Errorf("%s has no text, or comes twice", r.ID)
		}
		seen[r.ID] = true
	}
}

// losing returns a NIC whose answers of a kind never arrive.
func losing(kind func(f *frame.Frame) bool) dut.Virtual {
	return dut.Virtual{Tamper: func(toDUT bool, b []byte) []byte {
		if f, err := frame.Parse(b); !toDUT && err == nil && kind(f) {
			return nil
		}
		return b
	}}
}

// TestDefects: the model finds the defects of NICs. The script that it keeps is short, fails on the defective NIC and passes on ours.
func TestDefects(t *testing.T) {
	syndrome := func(f *frame.Frame) bth.Syndrome {
		v, _ := f.Get("syndrome")
		return bth.Syndrome(v)
	}
	for rule, defect := range map[string]func(f *frame.Frame) bool{
		"gap":     func(f *frame.Frame) bool { return syndrome(f) == bth.SyndromePSNSeqErr },
		"access":  func(f *frame.Frame) bool { return syndrome(f) == bth.SyndromeRemoteAccessErr },
		"rnr":     func(f *frame.Frame) bool { return syndrome(f).IsRNR() },
		"read":    func(f *frame.Frame) bool { return f.Opcode == bth.OpReadRespMiddle },
		"request": func(f *frame.Frame) bool { return f.Opcode == bth.OpSendLastInv },
		"atomic":  func(f *frame.Frame) bool { return f.Opcode == bth.OpAtomicAck },
	} {
		r := steps(t, losing(defect), Options{Steps: 5000})
		if len(r.Failures) != 1 || r.Failures[0].Rule != rule || !r.Failures[0].Reproduced {
			t.Errorf("%s: %+v", rule, r.Failures)
			continue
		}
		const longest = 30 // lines; 12 make the queue pair
		f := r.Failures[0]
		if n := strings.Count(f.Script, "\n"); n > longest {
			t.Errorf("%s: %d lines:\n%s", rule, n, f.Script)
		}
		s, err := script.Parse("kept.drill", f.Script)
		lab.Must(t, err)
		for device, want := range map[*dut.Virtual]engine.Outcome{{}: engine.Passed, new(losing(defect)): engine.Failed} {
			if result, err := device.Run(t.Context(), s, 7); err != nil || result.Outcome != want {
				t.Errorf("%s: %v, %v, want %v\n%s", rule, result.Outcome, err, want, f.Script)
			}
		}
	}
}

// TestKnown: the report has a known failure once, and the run goes on.
func TestKnown(t *testing.T) {
	lost := losing(func(f *frame.Frame) bool {
		v, _ := f.Get("syndrome")
		return bth.Syndrome(v) == bth.SyndromePSNSeqErr
	})
	o := Options{Steps: 2000, Known: map[string]string{"gap": "it sends no NAK"}}
	if r := steps(t, lost, o); r.Failed() != 0 || r.Steps != o.Steps || len(r.Failures) != 1 || r.Failures[0].Known != o.Known["gap"] || r.Failures[0].Script != "" {
		t.Errorf("%d steps: %+v", r.Steps, r.Failures)
	}
}
