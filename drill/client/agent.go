// Package client is the tester's side of a connection to rocedrill-agent, which drives verbs on a device (drill/agent).
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/drill/engine"
	"roced.io/roced/qp"
)

// Conn is a connection to an agent.
type Conn struct {
	rwc   io.ReadWriteCloser
	lines chan string
	sent  uint64        // commands: the number of the newest
	ended chan struct{} // closed before lines
	err   error         // why, if ended is closed
}

// ErrEnded means that the agent has closed the connection.
var ErrEnded = errors.New("the agent has ended")

// New starts to read the agent's lines from rwc, which the connection owns.
func New(rwc io.ReadWriteCloser) *Conn {
	c := &Conn{rwc: rwc, lines: make(chan string, 64), ended: make(chan struct{})}
	go c.read()
	return c
}

// maxLine is the longest line of an agent, in bytes.
const maxLine = 4 << 20

func (c *Conn) read() {
	defer close(c.lines)
	r := bufio.NewScanner(c.rwc)
	r.Buffer(nil, maxLine)
	for r.Scan() {
		c.lines <- r.Text()
	}
	switch err := r.Err(); err {
	case nil:
		c.err = ErrEnded
	case bufio.ErrTooLong:
		c.err = fmt.Errorf("the agent sent a line of more than %d bytes", maxLine)
	default:
		c.err = fmt.Errorf("%w: %w", ErrEnded, err)
	}
	close(c.ended)
}

// Err returns why the connection ended, after Lines is closed or a write failed.
func (c *Conn) Err() error {
	select {
	case <-c.ended:
		return c.err
	case <-time.After(time.Second): // it still sends
		return ErrEnded
	}
}

// Lines returns the channel of answers and reports, which Answer reads. It is closed when the agent has ended.
func (c *Conn) Lines() <-chan string { return c.lines }

// Send sends a command. The caller takes the answer from Lines.
func (c *Conn) Send(command string) error {
	c.sent++
	if _, err := fmt.Fprintf(c.rwc, "%d %s\n", c.sent, command); err != nil {
		return c.Err()
	}
	return nil
}

// Answer returns a line without its number. ok is false for an answer to a command before the newest, whose caller has given it
// up. Reports have no number.
func (c *Conn) Answer(line string) (text string, ok bool) {
	number, rest, _ := strings.Cut(line, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return line, true
	}
	return rest, n == c.sent
}

// Command sends a command and returns the fields of its answer. It calls report for each report before the answer,
// and drops late answers to earlier commands.
func (c *Conn) Command(ctx context.Context, command string, report func(line string)) (map[string]string, error) {
	if err := c.Send(command); err != nil {
		return nil, err
	}
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return nil, c.Err()
			}
			text, current := c.Answer(line)
			if !current {
				continue
			}
			switch word, rest, _ := strings.Cut(text, " "); word {
			case "ok":
				return engine.Fields(rest), nil
			case "error":
				return nil, fmt.Errorf("the agent answers %q to %q", rest, command)
			default:
				report(text)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("the agent does not answer %q: %w", command, ctx.Err())
		}
	}
}

// Close closes the connection, upon which the agent ends.
func (c *Conn) Close() error {
	drained := make(chan struct{})
	go func() {
		for range c.lines { // an agent that cannot write would not end
		}
		close(drained)
	}()
	err := c.rwc.Close()
	<-drained
	return err
}

// StatusNames are the names of completion statuses in reports: those of ibv_wc_status without IBV_WC_.
var StatusNames = map[qp.Status]string{
	qp.StatusSuccess: "SUCCESS", qp.StatusLocLenErr: "LOC_LEN_ERR", qp.StatusLocQPOpErr: "LOC_QP_OP_ERR", qp.StatusLocProtErr: "LOC_PROT_ERR",
	qp.StatusWRFlushErr: "WR_FLUSH_ERR", qp.StatusMWBindErr: "MW_BIND_ERR", qp.StatusBadRespErr: "BAD_RESP_ERR",
	qp.StatusLocAccessErr: "LOC_ACCESS_ERR", qp.StatusRemInvReqErr: "REM_INV_REQ_ERR", qp.StatusRemAccessErr: "REM_ACCESS_ERR",
	qp.StatusRemOpErr: "REM_OP_ERR", qp.StatusRetryExcErr: "RETRY_EXC_ERR", qp.StatusRNRRetryExcErr: "RNR_RETRY_EXC_ERR",
	qp.StatusRemAbortErr: "REM_ABORT_ERR", qp.StatusFatalErr: "FATAL_ERR", qp.StatusRespTimeoutErr: "RESP_TIMEOUT_ERR",
	qp.StatusGeneralErr: "GENERAL_ERR",
}
