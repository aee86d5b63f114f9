package shard

import (
	"runtime/debug"
	"time"
)

// A program with a NIC in its own process polls and posts at the price of a call: it runs the turns on its own thread
// (Turn). The loop stays away as long as turns come at least once in visitPause, and takes over after the last one.
const visitPause = 500 * time.Microsecond

// Turn runs a turn on the caller's thread if the loop is idle, and reports whether there was work. After a small frame
// it returns before the output: the caller may want to answer at once, and calls Turn again.
func (n *NIC) Turn() (busy bool) {
	s := n.shard
	if s.wanted.Load() || !s.loops.TryLock() {
		return false
	}
	defer s.loops.Unlock()
	if s.ending {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { s.faulted(recover()) }()
	s.visits.Add(1)
	now := Now()
	busy, answer := s.input(now)
	if answer {
		s.lastWork = now
		return true
	}
	busy, _ = s.rest(busy)
	return busy
}

// visited sleeps while callers of Turn run the turns. It reports whether there have been any since the last call.
func (s *Shard) visited() (any bool) {
	if s.visits.Load() == s.known {
		return false
	}
	s.lend(func() {
		for v := s.visits.Load(); v != s.known; v = s.visits.Load() {
			s.known = v
			time.Sleep(visitPause)
		}
	})
	return true
}
