package shard

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// TestTurn: a program that calls Turn runs the NIC's work on its own thread. The end of the NIC ends that.
func TestTurn(t *testing.T) {
	n := newShard(t, 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	on := 0
	eventually(t, "Turn runs no work, or the loop runs it all", func() bool {
		c := &call{f: func(mono.Time, *rocev2.NIC) { on = unix.Gettid() }, done: make(chan struct{})}
		n.calls <- c // without Wake
		for {
			select {
			case <-c.done:
				return on == unix.Gettid()
			default:
				n.Turn()
			}
		}
	})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n.Turn() {
		t.Error("a NIC works after its end")
	}
}

// TestVisited: the loop stays away while turns come, and until one pause has none.
func TestVisited(t *testing.T) {
	n := alone(&NIC{})
	s := n.shard
	s.loops.Lock()
	if s.visited() {
		t.Error("the loop waits for turns that nobody runs")
	}
	s.visits.Store(3)
	if !s.visited() || s.known != 3 {
		t.Errorf("the loop has not seen the turns of a caller: it knows %d", s.known)
	}
	if s.loops.TryLock() {
		t.Error("the loop has not got its NIC back")
	}
	if s.visited() {
		t.Error("the loop waits for turns that have ended")
	}
}
