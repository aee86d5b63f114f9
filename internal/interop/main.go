// Command interop tests the NIC against the Linux kernel's Soft-RoCE, rdma_rxe,
// which runs in a virtual machine: every operation in both directions, behaviour
// under tc netem and in errors, stock programs, and the speed of both on the same
// emulated processor. It writes docs/interop.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"roced/internal/interop/vm"
	"roced/verbs"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the programs")
	out := flag.String("out", "", "document to write; none if empty")
	short := flag.Bool("short", false, "fewer cases: minutes")
	only := flag.String("only", "", "one part: matrix, errors, netem, programs or speed")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the data")
	flag.Parse()
	r := &report{log: os.Stdout}
	if err := run(r, *bin, *short, *only, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	if *out != "" {
		if err := r.write(*out); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			os.Exit(1)
		}
	}
	if len(r.failures) > 0 {
		fmt.Fprintf(os.Stderr, "interop: %d failures\n", len(r.failures))
		os.Exit(1)
	}
}

// exitSkip is how scripts/setup-vm.sh says that it may not install what is needed.
const exitSkip = 77

// image builds the machine, or says why that cannot be.
func image(bin string) (im vm.Image, skip bool, err error) {
	dir, err := vm.CacheDir()
	if err != nil {
		return im, false, err
	}
	c := exec.Command("scripts/setup-vm.sh", dir)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return im, c.ProcessState != nil && c.ProcessState.ExitCode() == exitSkip, fmt.Errorf("scripts/setup-vm.sh: %w", err)
	}
	im, err = vm.Build(dir)
	return im, false, err
}

// run runs the parts.
func run(r *report, bin string, short bool, only string, seed uint64) error {
	im, skip, err := image(bin)
	if skip {
		fmt.Fprintln(r.log, "interop: skipped:", err)
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	l, err := newLab(bin, dir, im, min(2, runtime.NumCPU()))
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintf(r.log, "machine up after %v, seed %d\n", time.Since(begin).Round(time.Millisecond), seed)
	m := &matrix{links: []int{linkUnix, linkTAP}, mtus: []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096}, large: !short, seed: seed}
	n := netem{lines: netemLines, time: 4 * time.Second, seed: seed}
	if short {
		n.time = time.Second
	}
	parts := []struct {
		name string
		run  func(*lab, *report)
	}{{"matrix", m.run}, {"errors", runTrials}, {"netem", n.run}}
	for _, p := range parts {
		if only == "" || only == p.name {
			begin := time.Now()
			p.run(l, r)
			fmt.Fprintf(r.log, "%s: %v\n", p.name, time.Since(begin).Round(time.Millisecond))
		}
	}
	return nil
}
