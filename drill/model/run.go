package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

// Device is a device under test.
type Device interface {
	Run(ctx context.Context, s *script.Script, seed uint64) (*engine.Result, error)
}

// Options describe a run.
type Options struct {
	Seed     uint64
	Steps    int         // ends the run, unless it is 0
	Failures int         // number of failed rules that ends the run
	Over     func() bool // ends the run; required
	// Known are the reasons of expected failures, by rule.
	Known    map[string]string
	Progress func(*Report) // is called after each sequence; required
}

// Failure is the first failure of a rule.
type Failure struct {
	Rule       string `json:"rule"`
	Spec       string `json:"spec"`
	Policy     bool   `json:"policy"` // the device may do otherwise
	Seed       uint64 `json:"seed"`
	Reason     string `json:"reason"`
	Known      string `json:"known,omitempty"` // why it is expected
	Reproduced bool   `json:"reproduced"`      // the script fails again; otherwise it is as long as the sequence
	Script     string `json:"-"`
	File       string `json:"file,omitempty"`
}

// Report is the outcome of a run.
type Report struct {
	Seed          uint64         `json:"seed"`
	Sequences     int            `json:"sequences"`
	Steps         int            `json:"steps"`
	NotApplicable int            `json:"not_applicable"` // sequences
	Inconclusive  int            `json:"inconclusive"`   // sequences in which the tester was late
	Checks        map[string]int `json:"checks"`         // statements that can fail, by rule
	Failures      []Failure      `json:"failures"`
}

// Failed returns the number of demands that have failed unexpectedly.
func (r *Report) Failed() (n int) {
	for _, f := range r.Failures {
		if !f.Policy && f.Known == "" {
			n++
		}
	}
	return n
}

// failed reports whether a rule has failed.
func (r *Report) failed(rule string) bool {
	for _, f := range r.Failures {
		if f.Rule == rule {
			return true
		}
	}
	return false
}

// Run runs random sequences. The error is ctx's, or says that the device is lost.
func Run(ctx context.Context, d Device, o Options) (*Report, error) {
	r := &Report{Seed: o.Seed, Checks: map[string]int{}, Failures: []Failure{}}
	for seed := o.Seed; (o.Steps == 0 || r.Steps < o.Steps) && r.Failed() < o.Failures && !o.Over(); seed++ {
		steps := 5 + rand.New(rand.NewPCG(seed, 1)).IntN(40)
		if o.Steps > 0 {
			steps = min(steps, o.Steps-r.Steps)
		}
		s, text := Generate(seed, steps)
		result, err := run(ctx, d, text, seed)
		if err != nil {
			return r, err
		}
		r.Sequences, r.Steps = r.Sequences+1, r.Steps+steps
		switch result.Outcome {
		case engine.NotApplicable:
			r.NotApplicable++
		case engine.Inconclusive:
			r.Inconclusive++
		case engine.Failed:
			if rule := text.Rule(result.Pos.Line); !r.failed(rule) {
				f, err := o.failure(ctx, d, s, seed, rule, result.Text)
				if r.Failures = append(r.Failures, f); err != nil {
					return r, err
				}
			}
		default:
			for i, id := range text.rules {
				if id != "" && demands(text.lines[i]) {
					r.Checks[id]++
				}
			}
		}
		o.Progress(r)
	}
	return r, nil
}

// run runs a script.
func run(ctx context.Context, d Device, text *Text, seed uint64) (*engine.Result, error) {
	s, err := script.Parse(fmt.Sprintf("model-%d.drill", seed), text.Source("A random sequence.", nil))
	if err != nil {
		return nil, err
	}
	result, err := d.Run(ctx, s, seed)
	if err == nil && result.Outcome == engine.BadScript {
		err = &script.Error{Path: s.Path, Pos: result.Pos, Text: result.Text}
	}
	if err == nil && (result.Outcome == engine.Broken || result.Outcome == engine.Stopped) {
		err = fmt.Errorf("%s: line %d: %s", s.Path, result.Pos.Line, result.Text)
	}
	return result, err
}

// Bounds of the runs that make a failing sequence smaller.
const (
	mostRuns = 500
	mostTime = time.Minute
)

// failure describes a failure, with a small script unless it is known.
func (o *Options) failure(ctx context.Context, d Device, s Sequence, seed uint64, id, reason string) (Failure, error) {
	f := Failure{Rule: id, Seed: seed, Reason: reason, Known: o.Known[id]}
	if f.Known == "" {
		return reduce(ctx, d, s, seed, id, reason)
	}
	if r := rule(id); r != nil {
		f.Spec, f.Policy = r.Spec, r.Policy
	}
	return f, nil
}

// reduce returns a failure with a script that is as small as possible and still fails by the same rule.
func reduce(ctx context.Context, d Device, s Sequence, seed uint64, id, reason string) (Failure, error) {
	f := Failure{Rule: id, Seed: seed, Reason: reason}
	var lost error
	began := time.Now()
	fails := func(c Sequence) bool {
		if lost != nil || time.Since(began) > mostTime {
			return false
		}
		text := c.Script()
		result, err := run(ctx, d, text, seed)
		if lost = err; err != nil || result.Outcome != engine.Failed || text.Rule(result.Pos.Line) != id {
			return false
		}
		f.Reason, f.Reproduced = result.Text, true
		return true
	}
	if fails(s) {
		s = shrink(s, fails, mostRuns)
	}
	about := fmt.Sprintf("Found by rocedrill model, seed %d.", seed)
	if r := rule(id); r != nil {
		f.Spec, f.Policy, about = r.Spec, r.Policy, r.Text+" "+about
	}
	f.Script = s.Script().Source(about, rule(id))
	return f, lost
}
