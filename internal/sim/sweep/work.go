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
)

// Note is what run.json says of a run.
type Note struct {
	Run     int               `json:"run"`
	Set     map[string]string `json:"set"`
	Seconds float64           `json:"seconds"`
	// Error is what went wrong in the simulation, such as messages that never ended; it would go
	// wrong again.
	Error string `json:"error,omitempty"`
}

const noteFile = "run.json"

// Failed is an error that belongs to the run: it is kept as its result.
type Failed struct{ Err error }

// Error implements error.
func (f Failed) Error() string { return f.Err.Error() }

// Unwrap returns the error itself.
func (f Failed) Unwrap() error { return f.Err }

// Note returns what is known of a run, nil if it has not been done.
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

// Progress is how far work has come.
type Progress struct {
	Done, Failed, All int
	Left              time.Duration // estimate; zero if nothing is known yet
}

// Work is what Folder.Work does.
type Work struct {
	// Part of Parts does every Parts-th run, from Part on; zero Parts: all.
	Part, Parts int
	Parallel    int // runs at a time
	// Do does a run and writes what it finds into dir. The error is Failed if it belongs to the run.
	Do func(ctx context.Context, run int, dir string) error
	// Tell is told of the runs that are done, in the beginning and after each; may be nil.
	Tell func(p Progress)
}

// Work does the runs that are not done yet. It ends early with the first error that does not belong
// to a run, or when ctx does.
func (f *Folder) Work(ctx context.Context, w Work) error {
	p := Progress{}
	var left []int
	for i := w.Part; i < len(f.Plan.Runs); i += max(w.Parts, 1) {
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &state{f: f, w: &w, p: p, before: p.Done, began: time.Now(), stop: cancel}
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
	wait.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// state is that of Work.
type state struct {
	f      *Folder
	w      *Work
	began  time.Time
	before int // runs done by others
	stop   context.CancelCauseFunc

	mu sync.Mutex
	p  Progress
}

func (s *state) tell() {
	if s.w.Tell != nil {
		s.w.Tell(s.p)
	}
}

// do does a run, unless there is no time left.
func (s *state) do(ctx context.Context, run int) {
	if ctx.Err() != nil {
		return
	}
	failed, err := s.f.do(ctx, run, s.w.Do)
	if err != nil {
		s.stop(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p.Done++; failed {
		s.p.Failed++
	}
	each := float64(time.Since(s.began)) / float64(s.p.Done-s.before)
	s.p.Left = time.Duration(each * float64(s.p.All-s.p.Done)).Round(time.Second)
	s.tell()
}

// do does a run in a folder of another name, which becomes the run's when all that is in it is on
// the disk.
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
