package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/base/interrupt/cut"
)

// interruptedBy runs rocesim, with a context that ends when it first writes to out or diag.
func interruptedBy(t *testing.T, args ...string) (out, diag string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o, d := cut.Output{}, cut.Output{Cancel: cancel}
	c := newCommand(&o, &d)
	c.SetArgs(args)
	err = c.ExecuteContext(ctx)
	return o.String(), d.String(), err
}

// TestInterrupted: an interrupt ends a run that would take hours, with the results until then, and one that builds its network.
func TestInterrupted(t *testing.T) {
	endless := []string{"run", scenarios + "websearch.yaml", "--set", "workload.0.until=100s", "--out", filepath.Join(t.TempDir(), "o"), "--force"}
	out, _, err := interruptedBy(t, endless...)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted: the results of 1 of 1 runs are those until then, after ") || !strings.Contains(out, "messages done") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(endless[5], "flows.csv")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &app{out: &bytes.Buffer{}, diag: &bytes.Buffer{}, force: true, set: []string{"topology={kind: fat-tree, k: 40, host_rate: 100Gbps}"}}
	if err := r.runAll(ctx, scenarios+"permutation.yaml", &runOptions{format: "csv", quiet: true}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no message has been sent yet") {
		t.Errorf("before it has built the network: %v", err)
	}
}
