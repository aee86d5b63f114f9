package tap

import "runtime"

// InNetns runs f on an OS thread of its own inside a network namespace, a path or a name
// as ip-netns(8) has them; the empty one is the caller's. The thread ends with the call.
func InNetns(netns string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, err := enterNetns(netns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
