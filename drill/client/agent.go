// Package client is the tester's side of a connection to rocedrill-agent, which drives verbs on a device (drill/agent).
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"roced.io/roced/drill/engine"
	"roced.io/roced/qp"
)

// Conn is a connection to an agent.
type Conn struct {
	rwc   io.ReadWriteCloser
	lines chan string
	late  error // the reason why an answer may belong to an earlier command
}

// ErrEnded means that the agent has closed the connection.
var ErrEnded = errors.New("the agent has ended")

// New starts to read the agent's lines from rwc, which the connection owns.
func New(rwc io.ReadWriteCloser) *Conn {
	c := &Conn{rwc: rwc, lines: make(chan string, 64)}
	go c.read()
	return c
}

func (c *Conn) read() {
	defer close(c.lines)
	r := bufio.NewScanner(c.rwc)
	r.Buffer(nil, 4<<20)
	for r.Scan() {
		c.lines <- r.Text()
	}
}

// Lines returns the channel of answers and reports. It is closed when the agent has ended.
func (c *Conn) Lines() <-chan string { return c.lines }

// Send sends a command. The caller takes the answer from Lines.
func (c *Conn) Send(command string) error {
	if _, err := io.WriteString(c.rwc, command+"\n"); err != nil {
		return ErrEnded
	}
	return nil
}

// Command sends a command and returns the fields of its answer. It calls report for each report before the answer. After
// one late answer, all commands fail.
func (c *Conn) Command(ctx context.Context, command string, report func(line string)) (map[string]string, error) {
	if c.late != nil {
		return nil, c.late
	}
	if err := c.Send(command); err != nil {
		return nil, err
	}
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return nil, ErrEnded
			}
			switch word, rest, _ := strings.Cut(line, " "); word {
			case "ok":
				return engine.Fields(rest), nil
			case "error":
				return nil, fmt.Errorf("the agent answers %q to %q", rest, command)
			default:
				report(line)
			}
		case <-ctx.Done():
			c.late = fmt.Errorf("the agent does not answer %q: %w", command, ctx.Err())
			return nil, c.late
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
