// Command interop tests the NIC against the Linux kernel's Soft-RoCE, rdma_rxe, which runs in a virtual machine. It
// tests:
//
// - every operation in both directions
// - behaviour under tc netem and in errors
// - stock programs
// - the speed of both on the same emulated processors
// - every transport of ours under netem
//
// It writes the whole of docs/results/interop.md or docs/results/interop-trixie.md.
//
// If rights or Debian's packages are missing, so that the machine cannot be built, the command says so and succeeds.
// Once the machine is built, any failure is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/vm"
	"roced.io/roced/verbs"
)

// options are the command's options.
type options struct {
	bin  string
	out  string
	logs string
	only string
	// release is the Debian release whose kernel the machine has.
	release string
	short   bool
	cpu     string // of the machines for speed
	network string // of speed: selects the networks whose names contain it
	seed    uint64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the programs")
	flag.StringVar(&o.out, "out", "", "document to write; none if empty")
	flag.StringVar(&o.logs, "logs", "out/interop", "folder for the logs of machine and daemon after a failure")
	flag.BoolVar(&o.short, "short", false, "run a sample of each part")
	flag.StringVar(&o.release, "release", "bookworm", "Debian release whose kernel runs in the machine: bookworm (6.1) or trixie (6.12)")
	flag.StringVar(&o.only, "only", "", "run one part: matrix, errors, netem, profiles, flor, programs, tools, losses, speed-1, speed-2 or speed (both)")
	flag.StringVar(&o.cpu, "cpu", speedCPU, "QEMU's processor model for the part speed")
	flag.StringVar(&o.network, "network", "", `measure only networks whose names contain this, such as "16 QP" or "loss"; empty: all`)
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the data")
	flag.Parse()
	code, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs all parts and returns the exit code.
func run(o options) (int, error) {
	im, err := image(o.bin, o.release)
	if errors.Is(err, vm.ErrSkip) {
		fmt.Println("interop: skipped:", err)
		return 0, nil
	}
	if err != nil {
		return 1, err
	}
	if netlab.Own() == netlab.Unprivileged {
		code, err := namespace.RerunInUserNS(context.Background())
		if errors.Is(err, namespace.ErrNoUserNS) {
			fmt.Println("interop: skipped: network namespaces and TAP devices are not permitted")
			return 0, nil
		}
		return code, err
	}
	r := &report{log: os.Stdout, command: "make interop", seed: o.seed}
	if err := test(r, im, o); err != nil {
		return 1, err
	}
	fmt.Println(r.summary())
	if err := r.save(o.out); err != nil {
		return 1, err
	}
	if len(r.failures) > 0 {
		return 1, fmt.Errorf("%d failures; logs are in %s", len(r.failures), o.logs)
	}
	return 0, nil
}

// image builds the machine, with our programs in it.
func image(bin, release string) (vm.Image, error) {
	return vm.Make(release, "interop", os.Stdout, filepath.Join(bin, "roced"), filepath.Join(bin, "rocectl"), filepath.Join(bin, "libroced.so"),
		filepath.Join(bin, "roceperf"), filepath.Join(bin, agentProgram))
}

// test starts the machine and runs the parts.
func test(r *report, im vm.Image, o options) (err error) {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begin := time.Now()
	l, err := newLab(o.bin, dir, im, min(2, runtime.NumCPU()))
	if err != nil {
		return errors.Join(err, keepLogs(dir, o.logs))
	}
	closeOnSignal(l)
	defer func() {
		err = errors.Join(err, l.Close())
		if err != nil || len(r.failures) > 0 {
			err = errors.Join(err, keepLogs(dir, o.logs))
		}
	}()
	fmt.Fprintf(r.log, "machine up after %v, seed %d\n", time.Since(begin).Round(time.Millisecond), o.seed)
	if r.versions, err = versions(l); err != nil {
		return err
	}
	for _, p := range parts(o) {
		if o.only == "" || o.only == p.name || strings.HasPrefix(p.name, o.only+"-") {
			begin := time.Now()
			p.run(l, r)
			fmt.Fprintf(r.log, "%s: %v\n", p.name, time.Since(begin).Round(time.Millisecond))
		}
	}
	return nil
}

// closeOnSignal stops the daemon and the machine when a signal ends this program.
func closeOnSignal(l *lab) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-c
		l.Close()
		os.RemoveAll(l.dir)
		os.Exit(1)
	}()
}

// part is a part of the tests.
type part struct {
	name string
	run  func(*lab, *report)
}

func parts(o options) []part {
	m := &matrix{links: []int{linkUnix, linkTAP, linkSingle, linkUDP}, mtus: []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096}, large: !o.short, seed: o.seed}
	n := netem{lines: netemLines, time: 4 * time.Second, seed: o.seed}
	if o.short {
		m.sampled = []int{linkSingle, linkUDP}
		n.lines, n.time = shortNetemLines, time.Second
	}
	return append([]part{{"matrix", func(l *lab, r *report) {
		m.run(l, r)
		r.matrix().write(r.log)
		singleWrites(l, r)
		portTaken(l, r)
	}}, {"errors", runTrials}, {"netem", n.run}, {"profiles", newProfiles(o.short, o.logs).run},
		{"flor", newFlorPart(o.short).run},
		{"programs", func(l *lab, r *report) { runPrograms(l, r, o.short) }}, {"tools", runTools}, {"losses", runLosses}}, speedParts(o.short, o.cpu, o.network)...)
}

// versions returns the versions of the peer's software.
func versions(l *lab) ([]string, error) {
	kernel, err := l.vm.Shell(`uname -rv; rdma -V; echo perftest $(ib_write_bw --version)`, commandLimit)
	qemu, err2 := exec.Command("qemu-system-x86_64", "--version").Output()
	list := strings.Split(strings.TrimSpace(kernel), "\n")
	first, _, _ := strings.Cut(string(qemu), "\n")
	return append(list, first, fmt.Sprintf("%d emulated processors", l.vm.CPUs)), errors.Join(err, err2)
}

// keepLogs copies the logs from the folder that is deleted.
func keepLogs(from, to string) error {
	err := os.MkdirAll(to, 0o755)
	for _, name := range []string{"console.log", "roced.log", "user.log"} {
		text, readErr := os.ReadFile(filepath.Join(from, name))
		if readErr == nil { // else the run ended before it created the log
			err = errors.Join(err, os.WriteFile(filepath.Join(to, name), text, 0o644))
		}
	}
	return err
}
