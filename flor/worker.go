package flor

import "sync"

// worker runs the verbs that wait for the daemon in order, so that the loop never blocks.
type worker struct {
	mu     sync.Mutex
	cond   *sync.Cond
	jobs   []func()
	closed bool
	done   sync.WaitGroup
}

func newWorker() *worker {
	w := &worker{}
	w.cond = sync.NewCond(&w.mu)
	w.done.Go(w.run)
	return w
}

// do queues f.
func (w *worker) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, f)
	w.cond.Signal()
}

func (w *worker) run() {
	for {
		w.mu.Lock()
		for len(w.jobs) == 0 && !w.closed {
			w.cond.Wait()
		}
		jobs := w.jobs
		w.jobs = nil
		w.mu.Unlock()
		if len(jobs) == 0 {
			return
		}
		for _, f := range jobs {
			f()
		}
	}
}

// close waits for all queued functions.
func (w *worker) close() {
	w.mu.Lock()
	w.closed = true
	w.cond.Signal()
	w.mu.Unlock()
	w.done.Wait()
}
