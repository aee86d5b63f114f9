package server

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/lab/withheld"
)

// hoard sends the descriptors on n connections of a raw client, which does not read the answers.
func (h *host) hoard(t *testing.T, n int, fds ...int) {
	t.Helper()
	for range n {
		conn, err := uverbs.Dial(h.path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go conn.Call(uverbs.Command(uverbs.ExtSetProfile, 4096, uverbs.SetProfile{}), fds)
	}
}

// used returns the descriptors in the account of the only user.
func (h *host) used() int64 {
	if u := h.srv.cfg.Quota.Usage(); len(u) == 1 {
		return u[0].Used[quota.Descriptors]
	}
	return 0
}

// TestBlockingDescriptors sends a descriptor whose close blocks, on many connections of a user. Few threads of the
// daemon wait, and the descriptors count against the user's quota until they are closed.
func TestBlockingDescriptors(t *testing.T) {
	const connections, slots = 40, 16
	file, fd := withheld.Unclosable(t)
	limits := testLimits
	limits.Connections = connections
	h := distrust(t, limits)[0]
	before := threads(t)
	h.hoard(t, connections, fd)
	<-file.Waited()
	eventually(t, "the descriptors counted", func() bool { return h.used() >= connections*connectionFiles+slots })
	if n := threads(t) - before; n > slots+8 { // Go's runtime starts others
		t.Errorf("%d more threads", n)
	}
	h.turn(t)
	file.Release()
	eventually(t, "an end of all closes", func() bool { return h.used() == connections*connectionFiles })
}

// TestBlockingDescriptorsAtTheEnd closes a server while a close blocks.
func TestBlockingDescriptorsAtTheEnd(t *testing.T) {
	file, fd := withheld.Unclosable(t)
	h := distrust(t, testLimits)[0]
	h.hoard(t, 4, fd)
	<-file.Waited()
	closed := make(chan error, 1)
	go func() { closed <- h.srv.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server waits")
	}
	file.Release()
}

// TestDescriptorsInFlight sends more descriptors than the quota allows.
func TestDescriptorsInFlight(t *testing.T) {
	var all quota.Amounts
	all[quota.Descriptors] = connectionFiles + 2
	h := distrust(t, testLimits, quota.New(quota.Amounts{}, all, nil))[0]
	conn, err := uverbs.Dial(h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		fds  []int
		want error
	}{{[]int{0, 0}, nil}, {[]int{0, 0, 0}, unix.EMFILE}, {[]int{0, 0}, nil}} {
		_, _, err := conn.Call(uverbs.Command(uverbs.ExtSetProfile, 4096, uverbs.SetProfile{}), c.fds)
		if !errors.Is(err, c.want) {
			t.Errorf("%d descriptors: %v, want %v", len(c.fds), err, c.want)
		}
	}
	if n := h.used(); n != connectionFiles {
		t.Errorf("%d descriptors left in the account", n)
	}
}
