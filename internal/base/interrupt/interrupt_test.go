package interrupt

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestRun: a signal ends a command that looks at its context, and one that does not.
func TestRun(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		signalled := func(ctx context.Context) {
			if err := syscall.Kill(os.Getpid(), sig); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
		}
		if err := Run(func(ctx context.Context) error { signalled(ctx); return Errorf("2 of 3") }); err == nil || err.Error() != "interrupted: 2 of 3" {
			t.Errorf("%v: %v", sig, err)
		}
		forever := make(chan int)
		defer close(forever)
		if err := Run(func(ctx context.Context) error { signalled(ctx); <-forever; return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, busy: %v", sig, err)
		}
	}
	if err := Run(func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}
