// Package interrupt ends commands at SIGINT and SIGTERM, also those that are busy.
package interrupt

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Code is the exit code of an interrupted command.
const Code = 130

// Times in which a command, and a part of it, may end by themselves, with partial results.
const (
	grace     = 800 * time.Millisecond
	partGrace = 400 * time.Millisecond
)

// Error is the error of an interrupted command. It is a context.Canceled.
type Error string

// Errorf returns an Error that says what is kept.
func Errorf(format string, args ...any) error { return Error(fmt.Sprintf(format, args...)) }

// Error returns the text.
func (e Error) Error() string { return "interrupted: " + string(e) }

// Unwrap returns context.Canceled.
func (e Error) Unwrap() error { return context.Canceled }

// Run runs a command with a context that the signals end. If the command does not end then, Run leaves it behind: the program
// exits.
func Run(command func(ctx context.Context) error) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return await(ctx, grace, func() error { return command(ctx) })
}

// Await returns the error of f, a part of a command. If f has not returned a moment after the end of ctx, f goes on behind, and Await returns an
// Error.
func Await(ctx context.Context, f func() error) error { return await(ctx, partGrace, f) }

func await(ctx context.Context, grace time.Duration, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return Errorf("no results")
	}
}
