package tap

import (
	"fmt"
	"runtime"
)

// inside is an OS thread that stays in a network namespace: sockets can be made there
// when the privilege to enter it has been given up.
type inside struct{ calls chan func() }

// enter starts a thread in a namespace, a path or a name as ip-netns(8) has them; the
// empty one is the caller's.
func enter(netns string) (*inside, error) {
	i := &inside{calls: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, err := enterNetns(netns)
		entered <- err
		if err != nil {
			return
		}
		for f := range i.calls {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", netns, err)
	}
	return i, nil
}

// do runs f on the thread and waits for it.
func (i *inside) do(f func()) {
	done := make(chan struct{})
	i.calls <- func() {
		f()
		close(done)
	}
	<-done
}

// close ends the thread.
func (i *inside) close() { close(i.calls) }
