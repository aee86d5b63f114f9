package test

import (
	"bufio"
	"io"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestCharge checks in whose control group untouched memory of a program counts.
func TestCharge(t *testing.T) {
	lab.Long(t)
	const (
		size  = 32 << 20 // bytes of each of two regions in testdata/charge.c
		limit = 256 << 20
		slack = 4 << 20 // the kernel counts in batches
		more  = 16 << 20
	)
	for _, mode := range []struct {
		name, mr string
		early    bool // at the registration, not at the access
		used     int  // bytes that count in the end: a copy of untouched pages reads the kernel's page of zeros
	}{{"mapped", "auto", true, 2 * size}, {"copied", "pass", false, size}} {
		t.Run(mode.name, func(t *testing.T) {
			daemon, client := lab.NewGroup(t, "daemon", limit), lab.NewGroup(t, "client", limit)
			l := newLab(t)
			c := verbs(t, l, "charge")
			c.Env = append(c.Env, "ROCED_MR="+mode.mr)
			in, err := c.StdinPipe()
			lab.Must(t, err)
			out, err := c.StdoutPipe()
			lab.Must(t, err)
			lab.Must(t, c.Start())
			lines := bufio.NewScanner(out)
			step := func(name string) {
				t.Helper()
				if lines.Scan(); lines.Text() != name {
					t.Fatalf("the program prints %q, want %s", lines.Text(), name)
				}
			}
			next := func() { _, _ = io.WriteString(in, "\n") }
			grown := func(g *lab.Group, before int) int {
				if g == nil {
					return 0
				}
				return g.Bytes(t) - before
			}
			step("ready")
			if daemon == nil || client == nil {
				t.Log("this machine permits no control groups; only the data are checked")
				daemon, client = nil, nil
			} else {
				daemon.Add(t, l.Host[0].PID())
				client.Add(t, c.Process.Pid)
			}
			own, its := grown(daemon, 0), grown(client, 0)
			next()
			step("registered")
			if n := grown(client, its); client != nil && mode.early != (n >= 2*size-slack) {
				t.Errorf("the program has %d MiB more after the registration", n>>20)
			}
			next()
			step("written")
			if n := grown(client, its); client != nil && n < mode.used-slack {
				t.Errorf("the program has %d MiB more after all pages were in use", n>>20)
			}
			next()
			step("dropped")
			if n := grown(daemon, own); n > more {
				t.Errorf("the daemon has %d MiB more", n>>20)
			}
			next()
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
