package server

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// worker carries out the accesses to memory of one client that is not shared with the daemon,
// one after another. An access waits as long as the client's process likes: for a page of a
// file on a server of his own, say, or for a lock of his address space. Then his queue pairs
// wait, and a thread of the daemon, of which a user has few; the NIC goes on.
//
// Clients of root and of the daemon's own user, who could end the daemon anyway, have no
// worker: the NIC accesses their memory itself, which is faster.
type worker struct {
	c     *client
	mu    sync.Mutex
	ended sync.Cond // an access
	queue []*rocev2.MemoryAccess
	busy  bool // somebody works

	begun, done uint64 // accesses
}

// remote is memory that a worker accesses.
type remote struct {
	rocev2.Memory // nil: of its methods none is called
	w             *worker
	mem           rocev2.Distant
	proc          *process
	last          uint64 // its last access, by number
}

func newWorker(c *client) *worker {
	w := &worker{c: c}
	w.ended.L = &w.mu
	return w
}

// trusted reports whether the NIC may wait for the memory of the client's processes.
func (c *client) trusted() bool { return !c.srv.cfg.Distrust && quota.Privileged(c.cred.Uid) }

// deferred makes memory of a process be accessed by the client's worker if the client is not
// trusted.
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
	w.queue = append(w.queue, a) // a queue pair has few
	if !w.busy {
		w.busy = true
		go w.work()
	}
}

// work carries out what is in the queue.
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
		if w.c.account.Enter(w.c.srv.ctx.Done()) {
			a.Run(r.mem)
			w.c.account.Leave()
		} // else everything is ending
		// A shard that has ended has no queue pairs.
		w.c.always(func(now mono.Time, n *rocev2.NIC) { n.Accessed(now, a) })
		r.proc.release()
		w.mu.Lock()
		w.done++
		w.ended.Broadcast()
		w.mu.Unlock()
	}
}

// wait returns when no access to the memory is under way any more, or the server ends.
func (r *remote) wait() {
	r.w.wait(&r.last)
}

// settle returns when all accesses have ended that were under way when it was called, or the
// server ends. A queue pair that goes leaves some behind.
func (w *worker) settle() {
	w.wait(&w.begun)
}

// wait returns when the access that last says now and those before it have ended, or the server
// ends.
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

// look checks memory of a process for a region, which may wait for the process too. It does
// not wait for longer than the server lives.
func (c *client) look(p *process, start, length uint64, write bool) error {
	if c.here != nil {
		return unix.EAGAIN // the shard does not wait for files of /proc
	}
	if c.trusted() {
		return p.Check(start, length, write)
	}
	if !c.account.Enter(c.srv.ctx.Done()) {
		return unix.EIO
	}
	p.refs.Add(1)
	done := make(chan error, 1)
	go func() {
		defer p.release()
		defer c.account.Leave()
		done <- p.Check(start, length, write)
	}()
	select {
	case err := <-done:
		return err
	case <-c.srv.ctx.Done():
		return unix.EIO
	}
}
