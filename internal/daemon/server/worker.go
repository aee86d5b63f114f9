package server

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// worker accesses unshared memory of one client, one access at a time. The client's process can block an access for
// any time, for example with a page of a file on its own server, or with a lock of its address space. Then only that
// client's queue pairs and one thread of the daemon wait; each user may occupy few threads. The NIC continues.
//
// Clients of root and of the daemon's own user have no worker, since these users could stop the daemon anyway. The
// NIC accesses their memory itself, which is faster.
type worker struct {
	c     *client
	mu    sync.Mutex
	ended sync.Cond // signals the end of an access
	queue []*rocev2.MemoryAccess
	busy  bool // work is running

	begun, done uint64 // numbers of accesses
}

// remote is memory that a worker accesses.
type remote struct {
	rocev2.Memory // nil: its methods are never called
	w             *worker
	mem           rocev2.Distant
	proc          *process
	last          uint64 // number of its last access
}

func newWorker(c *client) *worker {
	w := &worker{c: c}
	w.ended.L = &w.mu
	return w
}

// trusted reports whether the NIC may block on the memory of the client's processes.
func (c *client) trusted() bool { return !c.srv.cfg.Distrust && quota.Privileged(c.cred.Uid) }

// deferred makes the client's worker access the memory if the client is not trusted.
func (c *client) deferred(p *process, mem rocev2.Distant) (rocev2.Memory, *remote) {
	if c.trusted() {
		return mem, nil
	}
	r := &remote{w: c.worker, mem: mem, proc: p}
	return r, r
}

// Start implements rocev2.Deferred.
func (r *remote) Start(a *rocev2.MemoryAccess) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun++
	r.last = w.begun
	r.proc.refs.Add(1)
	w.queue = append(w.queue, a) // each queue pair has few accesses in progress
	if !w.busy {
		w.busy = true
		go w.work()
	}
}

// work runs the queued accesses.
func (w *worker) work() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue, w.busy = nil, false
			w.mu.Unlock()
			return
		}
		a := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		r := a.Mem.(*remote)
		if w.c.account.Accesses().Enter(w.c.srv.ctx.Done()) {
			a.Run(r.mem)
			w.c.account.Accesses().Leave()
		} // else the server is closing
		// A closed shard has no queue pairs.
		w.c.always(func(now mono.Time, n *rocev2.NIC) { n.Accessed(now, a) })
		r.proc.release()
		w.mu.Lock()
		w.done++
		w.ended.Broadcast()
		w.mu.Unlock()
	}
}

// wait blocks until no access to the memory is in progress, or the server closes.
func (r *remote) wait() {
	r.w.wait(&r.last)
}

// settle blocks until all accesses begun before the call have ended, or the server closes. A destroyed queue pair
// leaves some behind.
func (w *worker) settle() {
	w.wait(&w.begun)
}

// wait blocks until access number *last and all earlier accesses have ended, or the server closes. It reads *last
// once.
func (w *worker) wait(last *uint64) {
	ctx := w.c.srv.ctx
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended.Broadcast()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for upto := *last; w.done < upto && ctx.Err() == nil; {
		w.ended.Wait()
	}
}

// look checks memory of a process for a region, which may block on the process. It returns at the latest when the
// server closes.
func (c *client) look(p *process, start, length uint64, write bool) error {
	if c.here != nil {
		return unix.EAGAIN // the shard does not wait for files of /proc
	}
	if c.trusted() {
		return p.Check(start, length, write)
	}
	if !c.mayWork() || !c.account.Accesses().Enter(c.srv.ctx.Done()) {
		return unix.EIO
	}
	p.refs.Add(1)
	done := make(chan error, 1)
	go func() {
		defer p.release()
		defer c.account.Accesses().Leave()
		done <- c.work(func() error { return p.Check(start, length, write) })
	}()
	select {
	case err := <-done:
		return err
	case <-c.srv.ctx.Done():
		return unix.EIO
	}
}

// mayWork waits until the user has repaid the processor time that the daemon has spent for it. It returns false if the server
// closes.
func (c *client) mayWork() bool {
	for d := c.account.Debt(time.Now()); d > 0; d = c.account.Debt(time.Now()) {
		select {
		case <-time.After(d):
		case <-c.srv.ctx.Done():
			return false
		}
	}
	return true
}

// work charges the processor time of f to the user.
func (c *client) work(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadTime()
	err := f()
	c.account.Spend(time.Now(), threadTime()-begin)
	return err
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
