package shard

import (
	"runtime/debug"
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// lend lets callers of Do use the NICs while the loop blocks in wait. At all other times the loop holds the mutex, so
// that no packet waits for a lock. After wait returns, the loop waits for at most one closure.
func (s *Shard) lend(wait func()) {
	s.loops.Unlock()
	wait()
	s.wanted.Store(true)
	for range lockAttempts {
		if s.loops.TryLock() {
			s.wanted.Store(false)
			return
		}
		yield()
	}
	s.loops.Lock()
	s.wanted.Store(false)
}

// lockAttempts is the number of attempts to take the NIC back before the loop blocks on the mutex. A wakeup from the
// mutex takes longer than most closures.
const lockAttempts = 64

// borrow runs f on the caller's thread if the loop is idle, and reports whether it has. This avoids two thread
// wakeups, which cost several times as much as most closures.
//
// If f changes state, borrow also does the resulting work and wakes the loop only if more work remains. Pending
// doorbells come before f (see loop) and only the loop handles them.
func (n *NIC) borrow(f func(mono.Time, *rocev2.NIC), changes bool) (done bool) {
	s := n.shard
	if s.wanted.Load() || !s.loops.TryLock() {
		return false
	}
	if n.gone || slices.ContainsFunc(n.bells, (*Bell).ringing) {
		s.loops.Unlock()
		return false // Do wakes the loop
	}
	wake := changes // also after a fault
	defer func() {
		if wake {
			s.ep.wake()
		}
	}()
	defer s.loops.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	s.current = n
	n.stats.Calls++
	done = true // also after a fault
	now := Now()
	f(now, n.nic)
	if changes {
		wake = n.follow(now)
	}
	return done
}

// follow does the loop's work after a closure that may have changed state. It reports whether the loop has more to
// do before its planned wakeup.
func (n *NIC) follow(now mono.Time) bool {
	s := n.shard
	s.touched = now
	n.transmit()
	n.forwardQueries()
	return s.wakeup || n.unsent || s.due() < s.until
}
