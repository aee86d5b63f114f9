package shard

import (
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
)

// together keeps the shard's thread on the core of its program during a ping-pong, if threads outnumber cores. On one core
// a switch hands over from one to the other. On two cores both wait for threads that have nothing to do with the message.
// While the thread is bound, the kernel moves other threads, which separates two programs that share a core. The affinities
// of programs stay as they are, and so does that of the thread when the ping-pong ends.
type together struct {
	next  mono.Time     // time of the next check
	every time.Duration // between checks
	asked bool          // the client has been asked for its core
	bound bool          // the thread is bound to a core
	own   unix.CPUSet   // affinity before that
	only  unix.CPUSet   // that core
}

const (
	// togetherFrom is the number of exchanges of a ping-pong before the first check.
	togetherFrom = 64
	// checkOften and checkSeldom limit the interval between checks. It doubles while the loop does not poll without yields.
	checkOften, checkSeldom = 10 * time.Millisecond, 20 * time.Millisecond
)

// join binds the thread to the core of the client of b if a check is due and threads outnumber cores. It unbinds the thread
// if they do not.
func (s *Shard) join(now mono.Time, b *Bell) {
	t := &s.together
	switch {
	case s.pong.exchanges < togetherFrom || !t.asked && now < t.next:
		return
	case !t.asked:
		if t.every = min(2*t.every, checkSeldom); s.pong.on() || t.every == 0 {
			t.every = checkOften
		}
		t.asked, t.next = true, now.Add(t.every+time.Duration(now)%t.every) // both sides do not move at once
		b.askCore()
		return
	}
	t.asked = false
	if core, ok := b.core(); ok && s.oversubscribed() {
		t.bind(core)
	} else {
		t.unbind()
	}
}

// oversubscribed reports whether threads that want to run outnumber the cores of the machine (proc_loadavg(5)). Else threads
// that spin have a core each.
func oversubscribed() bool {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buf [64]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return false
	}
	return runnable(string(buf[:n])) > runtime.NumCPU()
}

// runnable returns the number of threads that want to run from a line like "0.20 0.18 0.12 1/80 11206".
func runnable(loadavg string) (n int) {
	if f := strings.Fields(loadavg); len(f) > 3 {
		before, _, _ := strings.Cut(f[3], "/")
		n, _ = strconv.Atoi(before) // 0 for a line that this function does not know
	}
	return n
}

// bind binds the calling thread to a core if its affinity permits that. An error leaves the thread where it is.
func (t *together) bind(core int) {
	if t.bound && t.only.IsSet(core) {
		return
	}
	t.unbind()
	t.only.Zero()
	t.only.Set(core)
	if unix.SchedGetaffinity(0, &t.own) == nil && t.own.IsSet(core) && t.own.Count() > 1 {
		t.bound = unix.SchedSetaffinity(0, &t.only) == nil
	}
}

// unbind restores the affinity, unless the administrator has changed it meanwhile.
func (t *together) unbind() {
	if !t.bound {
		return
	}
	t.bound = false
	var is unix.CPUSet
	if unix.SchedGetaffinity(0, &is) == nil && is == t.only {
		_ = unix.SchedSetaffinity(0, &t.own)
	}
}

func (b *Bell) coreWord() *uint32 { return (*uint32)(unsafe.Pointer(&b.mem[uverbs.DoorbellCore])) }

// askCore asks the client to store its core with its next doorbell.
func (b *Bell) askCore() { atomic.StoreUint32(b.coreWord(), uverbs.CoreAsked) }

// core returns the client's answer to askCore. ok is false without one. The client may store anything.
func (b *Bell) core() (n int, ok bool) {
	v := atomic.LoadUint32(b.coreWord())
	return int(v) - 1, v != 0 && v != uverbs.CoreAsked
}
