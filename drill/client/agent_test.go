package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake returns a connection to an agent that answers each command with the text that f returns, with the command's number for "N".
// It ends after "end".
func fake(t *testing.T, f func(command string) string) *Conn {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		for r := bufio.NewScanner(far); r.Scan(); {
			number, command, _ := strings.Cut(r.Text(), " ")
			if command == "end" {
				return
			}
			fmt.Fprint(far, strings.ReplaceAll(f(command), "N ", number+" "))
		}
	}()
	c := New(near)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestCommand: an answer has fields, reports before it are passed on, and a refusal names the command.
func TestCommand(t *testing.T) {
	c := fake(t, func(command string) string {
		if command == "bad" {
			return "cqe wr=3\nN error it is not open: Invalid argument\n"
		}
		return "cqe wr=1\nevent on=qp\nN ok num=17 state=RTS\ncqe wr=2\n"
	})
	var reports []string
	report := func(line string) { reports = append(reports, line) }
	a, err := c.Command(t.Context(), "query on=qp", report)
	if err != nil || a["num"] != "17" || a["state"] != "RTS" {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := c.Command(t.Context(), "bad", report); err == nil || err.Error() != `the agent answers "it is not open: Invalid argument" to "bad"` {
		t.Error(err)
	}
	if want := []string{"cqe wr=1", "event on=qp", "cqe wr=2", "cqe wr=3"}; !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
	if _, err := c.Command(t.Context(), "end", report); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
	if err := c.Send("more"); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestLate: the answer to a command that is out of time is not taken for that to the next one.
func TestLate(t *testing.T) {
	asked := make(chan struct{})
	c := fake(t, func(command string) string {
		<-asked
		return "N ok to=" + command + "\n"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Command(ctx, "first", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"first"`) {
		t.Error(err)
	}
	close(asked)
	if a, err := c.Command(t.Context(), "second", nil); err != nil || a["to"] != "second" {
		t.Errorf("%v, %v", a, err)
	}
}

// TestClose: Close ends a connection whose agent reports more than anyone has taken.
func TestClose(t *testing.T) {
	c := fake(t, func(string) string { return strings.Repeat("cqe\n", 1000) })
	if err := c.Send("go"); err != nil {
		t.Fatal(err)
	}
	<-c.Lines()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := <-c.Lines(); ok {
		t.Error("Lines is open")
	}
}
