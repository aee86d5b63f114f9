// Package netns runs functions in other network namespaces.
//
// A namespace is given by its path or by its name as in ip-netns(8). The empty string means the namespace of the
// caller.
package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namedDir holds the named namespaces of iproute2.
const namedDir = "/run/netns"

// path returns the file of a namespace.
func path(ns string) string {
	if strings.ContainsRune(ns, '/') {
		return ns
	}
	return filepath.Join(namedDir, ns)
}

// ID identifies a namespace for as long as it exists.
type ID struct{ dev, ino uint64 }

// Identify returns the ID of the namespace that now has this path or name. The ID of the empty string is zero.
func Identify(ns string) (ID, error) {
	if ns == "" {
		return ID{}, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path(ns), &st); err != nil {
		return ID{}, &os.PathError{Op: "stat", Path: path(ns), Err: err}
	}
	return ID{uint64(st.Dev), st.Ino}, nil
}

// enter moves the calling thread into a namespace.
func enter(ns string) error {
	if ns == "" {
		return nil
	}
	f, err := os.Open(path(ns))
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", ns, err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: setns: %w", ns, err)
	}
	return nil
}

// Do runs f in a namespace, on a new OS thread that ends with the call.
func Do(ns string, f func() error) error {
	t, err := Enter(ns)
	if err != nil {
		return err
	}
	defer t.Close()
	t.Do(func() { err = f() })
	return err
}

// Thread is an OS thread in a network namespace. It can open sockets there after the process has dropped the
// privilege to enter the namespace.
type Thread struct{ calls chan func() }

// Enter starts a thread in a namespace. It needs CAP_SYS_ADMIN unless ns is empty.
func Enter(ns string) (*Thread, error) {
	t := &Thread{calls: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime destroys the thread with the goroutine
		err := enter(ns)
		entered <- err
		if err != nil {
			return
		}
		for f := range t.calls {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, err
	}
	return t, nil
}

// Do runs f on the thread and waits for it.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() {
		f()
		close(done)
	}
	<-done
}

// Close ends the thread.
func (t *Thread) Close() { close(t.calls) }
