// Package perf implements roceperf. It measures and verifies data transfer between two NICs, as perftest does.
package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// Params are the parameters that both sides share. The client sends them to the server.
type Params struct {
	Test       string        `json:"test"`
	Connection string        `json:"connection"`
	Size       int           `json:"size"` // bytes of each message
	QPs        int           `json:"qps"`
	Duration   time.Duration `json:"duration_ns,omitempty"` // 0: Iters limits the test
	Iters      int           `json:"iters,omitempty"`       // of each queue pair
	MTU        int           `json:"mtu"`                   // path MTU in bytes; 0: the port's
	TxDepth    int           `json:"tx_depth"`
	RxDepth    int           `json:"rx_depth"`
	CQMod      int           `json:"cq_mod"` // interval of signaled messages
	Inline     int           `json:"inline"`
	Timeout    int           `json:"timeout"`
	RetryCnt   int           `json:"retry_cnt"`
	Events     bool          `json:"events"` // sleep until a completion event
	Verify     bool          `json:"verify"`
	Both       bool          `json:"bidirectional"`
	Profile    string        `json:"profile,omitempty"`
}

// Options are the options of one side.
type Options struct {
	Params
	Host     string // empty: run as the server
	Port     int
	OOB      string // unix:PATH instead of TCP
	RunDir   string
	Local    string // configuration of NICs in this process; empty: those of a daemon
	Device   string
	GIDIndex int // -1: the device's default
	Forever  bool
	JSON     bool
	Quiet    bool
	All      bool // sweep over sizes
}

// Tests are the names of the tests.
var Tests = []string{"write-bw", "read-bw", "send-bw", "write-lat", "read-lat", "send-lat", "atomic-lat"}

// operations are the operations of the tests.
var operations = map[string]qp.WROpcode{"write": qp.WRWrite, "read": qp.WRRead, "send": qp.WRSend, "atomic": qp.WRFetchAdd}

// latency reports whether the test measures latency.
func (p *Params) latency() bool { return strings.HasSuffix(p.Test, "-lat") }

// op returns the operation: write, read, send or atomic.
func (p *Params) op() string { return p.Test[:strings.IndexByte(p.Test, '-')] }

const (
	maxSize  = 1 << 30
	maxQPs   = 4096
	maxDepth = 16384
)

// Validate returns all errors of the parameters.
func (p *Params) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			bad("--%s %d is not between %d and %d", name, v, low, high)
		}
	}
	if !slices.Contains(Tests, p.Test) {
		return fmt.Errorf("no test %q; there are %s", p.Test, strings.Join(Tests, ", "))
	}
	if !slices.Contains([]string{"rc", "uc", "ud"}, p.Connection) {
		bad("--connection %q is not rc, uc or ud", p.Connection)
	}
	switch op := p.op(); {
	case p.Connection == "ud" && op != "send":
		bad("UD only has SEND, not %s", op)
	case p.Connection == "uc" && (op == "read" || op == "atomic"):
		bad("UC has no %s", op)
	case p.Connection == "rc" && !profile.Supports(p.Profile, operations[op]):
		bad("profile %s has no %s; use write-bw or write-lat", p.Profile, op)
	}
	within("size", p.Size, 1, maxSize)
	within("qps", p.QPs, 1, maxQPs)
	within("tx-depth", p.TxDepth, 1, maxDepth)
	within("rx-depth", p.RxDepth, 1, maxDepth)
	within("cq-mod", p.CQMod, 1, p.TxDepth)
	within("inline", p.Inline, 0, 1024)
	within("timeout", p.Timeout, 0, 31)
	within("retry-cnt", p.RetryCnt, 0, 7)
	if !slices.Contains([]int{0, 256, 512, 1024, 2048, 4096}, p.MTU) {
		bad("--mtu %d is not 256, 512, 1024, 2048 or 4096", p.MTU)
	}
	if p.Duration < 0 || p.Iters < 0 || p.Duration == 0 && p.Iters == 0 {
		bad("neither --duration nor --iters")
	}
	if p.Both && p.latency() {
		bad("--bidirectional is for bandwidth tests")
	}
	if p.Both && p.Verify {
		bad("--verify tests one direction, so not with --bidirectional")
	}
	if p.latency() && p.QPs != 1 {
		bad("latency tests use one queue pair")
	}
	return errors.Join(errs...)
}

// parseSize parses the size of a message.
func parseSize(s string) (int, error) {
	n, err := quantity.ParseBytes(s)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > maxSize {
		return 0, fmt.Errorf("size %s: must be from 1 to 1g", s)
	}
	return int(n), nil
}
