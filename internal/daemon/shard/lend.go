package shard

import (
	"runtime/debug"
	"slices"

	"roced/mono"
	"roced/rocev2"
)

// lend lets callers of Do have the NIC while the loop waits in wait. The mutex is the loop's at
// all other times, so that no packet waits for one.
func (s *Shard) lend(wait func()) {
	s.loops.Unlock()
	wait()
	s.loops.Lock()
}

// borrow runs f here if the loop sleeps, and reports whether it has: that spares two threads
// which wake each other, several times what most closures take. If wake is set the loop wakes up then
// for what f has left it to do, but nobody waits for that. Bells that have been rung come before f
// (see loop), and only the loop hears them.
func (s *Shard) borrow(f func(mono.Time, *rocev2.NIC), wake bool) (done bool) {
	if !s.loops.TryLock() {
		return false
	}
	if slices.ContainsFunc(s.bells, (*Bell).ringing) {
		s.loops.Unlock()
		return false // Do wakes the loop
	}
	if wake {
		defer s.ep.wake()
	}
	defer s.loops.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	s.stats.Calls++
	done = true // also if it faults
	f(Now(), s.nic)
	return done
}
