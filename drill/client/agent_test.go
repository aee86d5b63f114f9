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

// TestTooLong: a line that is too long is not the end of the agent.
func TestTooLong(t *testing.T) {
	c := fake(t, func(string) string { return strings.Repeat("x", maxLine+1) })
	if _, err := c.Command(t.Context(), "query", nil); err == nil || err.Error() != "the agent sent a line of more than 4194304 bytes" {
		t.Error(err)
	}
}

// broken is a channel whose reads fail.
type broken struct{ net.Conn }

func (broken) Read([]byte) (int, error) { return 0, errors.New("exit status 7") }

// TestReason: the error of a channel says why the agent has ended, also if a write meets the end first.
func TestReason(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	c := New(broken{near})
	defer c.Close()
	if err := c.Send("query"); !errors.Is(err, ErrEnded) || err.Error() != "the agent has ended: exit status 7" {
		t.Error(err)
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
