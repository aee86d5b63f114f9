package shard

import (
	"runtime/debug"
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// lend lets callers of Do have the NIC while the loop waits in wait. The mutex is the loop's at
// all other times, so that no packet waits for one. When wait is over, the loop waits for one closure at most.
func (s *Shard) lend(wait func()) {
	s.loops.Unlock()
	wait()
	s.wanted.Store(true)
	for range patience {
		if s.loops.TryLock() {
			s.wanted.Store(false)
			return
		}
		yield()
	}
	s.loops.Lock()
	s.wanted.Store(false)
}

// patience is how often the loop looks for its NIC before it sleeps on the mutex: who wakes it then takes
// longer than most closures.
const patience = 64

// borrow runs f here if the loop is idle, and reports whether it has: that spares two threads
// which wake each other, several times what most closures take. If f changes something, what it has
// left to be done is done here, too, and the loop wakes up only if more is to come. Bells that have been
// rung come before f (see loop), and only the loop hears them.
func (s *Shard) borrow(f func(mono.Time, *rocev2.NIC), changes bool) (done bool) {
	if s.wanted.Load() || !s.loops.TryLock() {
		return false
	}
	if slices.ContainsFunc(s.bells, (*Bell).ringing) {
		s.loops.Unlock()
		return false // Do wakes the loop
	}
	wake := changes // also if it faults
	defer func() {
		if wake {
			s.ep.wake()
		}
	}()
	defer s.loops.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	s.stats.Calls++
	done = true // also if it faults
	now := Now()
	f(now, s.nic)
	if changes {
		wake = s.follow(now)
	}
	return done
}

// follow does what the loop does after a closure that may have changed anything, and reports whether
// the loop has to do more before it would wake up by itself.
func (s *Shard) follow(now mono.Time) bool {
	s.touched = now
	s.transmit()
	s.passQuestions()
	return s.rouse || s.unsent || s.due() < s.until
}
