package tap

import (
	"fmt"
	"runtime"
)

// Inside is an OS thread that stays in a network namespace: sockets can be made there
// when the privilege to enter it has been given up.
type Inside struct{ calls chan func() }

// Enter starts a thread in a namespace, a path or a name as ip-netns(8) has them; the
// empty one is the caller's.
func Enter(netns string) (*Inside, error) {
	i := &Inside{calls: make(chan func())}
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

// Do runs f on the thread and waits for it.
func (i *Inside) Do(f func()) {
	done := make(chan struct{})
	i.calls <- func() {
		f()
		close(done)
	}
	<-done
}

// Close ends the thread.
func (i *Inside) Close() { close(i.calls) }
