package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/sim/progress"
)

// Note is the content of run.json.
type Note struct {
	Run     int               `json:"run"`
	Set     map[string]string `json:"set"`
	Seconds float64           `json:"seconds"`
	// Error is the error of the simulation, such as messages that never ended. A retry would fail again.
	Error string `json:"error,omitempty"`
}

const noteFile = "run.json"

// Failed is an error of the run itself, which is stored as its result.
type Failed struct{ Err error }

// Error implements error.
func (f Failed) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f Failed) Unwrap() error { return f.Err }

// Note returns the note of a run, nil if the run has not completed.
func (f *Folder) Note(run int) (*Note, error) {
	file := filepath.Join(f.Run(run), noteFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := new(Note)
	if err := json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// Progress counts the runs of a sweep.
type Progress struct {
	Done, Failed, All int
	Parts             float64       // completed parts of the runs under way
	Left              time.Duration // estimate; zero: unknown
}

// Work describes which runs to do, and how.
type Work struct {
	Shard    Shard
	Parallel int // runs at a time
	// Do does a run and writes its results into dir. It may report its completed part, from 0 to 1. An error of the run itself is
	// Failed.
	Do func(ctx context.Context, run int, dir string, report func(part float64)) error
	// Tell is called at the beginning, after each run and each report; may be nil.
	Tell func(p Progress)
}

// Work does the runs that have not completed. It ends early with the first error that is not Failed, or when ctx
// ends.
func (f *Folder) Work(whole context.Context, w Work) error {
	p := Progress{}
	var left []int
	for i := range f.Plan.Runs {
		if !w.Shard.Has(i) {
			continue
		}
		n, err := f.Note(i)
		if err != nil {
			return err
		}
		p.All++
		switch {
		case n == nil:
			left = append(left, i)
			continue
		case n.Error != "":
			p.Failed++
		}
		p.Done++
	}
	ctx, cancel := context.WithCancelCause(whole)
	defer cancel(nil)
	s := &state{f: f, w: &w, p: p, before: p.Done, stop: cancel, parts: map[int]float64{}}
	s.tell()
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(max(w.Parallel, 1), max(len(left), 1)) {
		wait.Go(func() {
			for run := range next {
				s.do(ctx, run)
			}
		})
	}
	for _, run := range left {
		select {
		case next <- run:
		case <-ctx.Done():
		}
	}
	close(next)
	_ = interrupt.Await(whole, func() error { wait.Wait(); return nil }) // what has not been done yet is done next time
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// state is the state of Work.
type state struct {
	f      *Folder
	w      *Work
	before int // runs completed before
	stop   context.CancelCauseFunc

	mu       sync.Mutex
	p        Progress
	parts    map[int]float64 // of the runs under way
	estimate progress.Estimate
}

func (s *state) tell() {
	s.p.Parts = 0
	for _, part := range s.parts {
		s.p.Parts += part
	}
	s.p.Left = 0
	if left := s.p.All - s.before; left > 0 {
		s.p.Left, _ = s.estimate.Left(time.Now(), (float64(s.p.Done-s.before)+s.p.Parts)/float64(left))
	}
	if s.w.Tell != nil {
		s.w.Tell(s.p)
	}
}

// reportInterval is the least time between two reports of a run.
const reportInterval = time.Second

// reports returns a function that records the completed part of a run.
func (s *state) reports(run int) func(part float64) {
	last := time.Now()
	return func(part float64) {
		now := time.Now()
		if now.Sub(last) < reportInterval {
			return
		}
		last = now
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parts[run] = part
		s.tell()
	}
}

// do does a run unless ctx has ended.
func (s *state) do(ctx context.Context, run int) {
	if ctx.Err() != nil {
		return
	}
	failed, err := s.f.do(ctx, run, func(ctx context.Context, run int, dir string) error { return s.w.Do(ctx, run, dir, s.reports(run)) })
	if err != nil {
		s.stop(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts, run)
	if s.p.Done++; failed {
		s.p.Failed++
	}
	s.tell()
}

// do does a run in a scratch folder and publishes it.
func (f *Folder) do(ctx context.Context, run int, do func(context.Context, int, string) error) (failed bool, err error) {
	dir := f.Run(run)
	tmp, lock, err := scratch(dir)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	defer os.RemoveAll(tmp)
	n := Note{Run: run, Set: map[string]string{}}
	for i, key := range f.Plan.Vary {
		n.Set[key] = f.Plan.Runs[run][i]
	}
	began := time.Now()
	err = do(ctx, run, tmp)
	n.Seconds = time.Since(began).Seconds()
	var own Failed
	if errors.As(err, &own) {
		n.Error = own.Error()
	} else if err != nil {
		return false, err
	}
	text, err := json.MarshalIndent(n, "", " ")
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(filepath.Join(tmp, noteFile), text, 0o644); err != nil {
		return false, err
	}
	return n.Error != "", publish(tmp, dir)
}
