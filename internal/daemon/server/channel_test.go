package server

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// TestFullChannels leaves many events unread in many channels. The backlog costs no threads, no goroutines, and no
// memory per event. When the client finally reads, it gets every event.
func TestFullChannels(t *testing.T) {
	f, err := newFlusher()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	const channels, cqs, each = 100, 3, 1000
	goroutines, tasks := runtime.NumGoroutine(), threads(t)
	var list []*channel
	var ends []int
	counts := make([]atomic.Uint32, channels*cqs)
	for i := range channels {
		ch, end, err := newChannel(f)
		if err != nil {
			t.Fatal(err)
		}
		list, ends = append(list, ch), append(ends, end)
		for k := range cqs * each {
			c := k % cqs
			ch.send(newNotice([]byte{byte(c), 1, 2, 3, 4, 5, 6, 7}, &counts[i*cqs+c]))
		}
		if len(ch.order) > cqs {
			t.Fatalf("%d notices wait of %d kinds", len(ch.order), cqs)
		}
	}
	if g, n := runtime.NumGoroutine(), threads(t); g > goroutines || n > tasks+4 {
		t.Errorf("%d goroutines and %d threads before, %d and %d with full channels", goroutines, tasks, g, n)
	}
	for i, end := range ends {
		got := [cqs]int{}
		var b [16]byte
		for range cqs * each {
			if n, err := unix.Read(end, b[:]); err != nil || n != 8 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			got[b[0]]++
		}
		if got != [cqs]int{each, each, each} {
			t.Errorf("channel %d: %v", i, got)
		}
		for c := range cqs {
			if n := list[i].forget(&counts[i*cqs+c]); n != each {
				t.Errorf("%d counted as written", n)
			}
		}
		list[i].close()
		unix.Close(end)
	}
}

// TestForgottenEvents destroys an object with queued events. None arrives afterwards, and the reported count matches
// the events that the client can read.
func TestForgottenEvents(t *testing.T) {
	f, err := newFlusher()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ch, end, err := newChannel(f)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	defer ch.close()
	var gone, stays atomic.Uint32
	for range 500 {
		ch.send(newNotice([]byte("gone"), &gone))
		ch.send(newNotice([]byte("stay"), &stays))
	}
	written := ch.forget(&gone)
	if written == 0 || written >= 500 {
		t.Fatalf("%d written: the channel has no bound, or room for nothing", written)
	}
	got := map[string]uint32{}
	for range 500 + written {
		var b [16]byte
		n, err := unix.Read(end, b[:])
		if err != nil {
			t.Fatal(err)
		}
		got[string(b[:n])]++
	}
	if got["gone"] != written || got["stay"] != 500 {
		t.Errorf("%v, %d counted", got, written)
	}
}
