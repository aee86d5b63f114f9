// Command demo shows the NIC at work. Two daemons, each with a NIC in its own network namespace, move and verify memory
// by every operation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the programs")
	out := flag.String("out", "out/demo", "folder for the capture and the logs")
	link := flag.String("link", "auto", "auto, tap, udp, unix or switch")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	code, err := run(ctx, *bin, *out, *link)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	os.Exit(code)
}

// run chooses the link between the NICs: TAPs need root or a user namespace.
func run(ctx context.Context, bin, out, link string) (int, error) {
	lab := netlab.LabOptions{Bin: bin}
	switch link {
	case "auto", "tap":
		switch netlab.Own() {
		case netlab.Root:
			fmt.Println("Network: two namespaces, each TAP - bridge - veth, made as root.")
			return 0, demo(ctx, out, lab)
		case netlab.UserNS:
			fmt.Println("Network: two namespaces, each TAP - bridge - veth, made without root in a user namespace.")
			return 0, demo(ctx, out, lab)
		}
		if code, err := namespace.RerunInUserNS(ctx); err == nil {
			return code, nil
		} else if link == "tap" {
			return 1, err
		}
		fmt.Println("This user may not make network namespaces with TAP devices.")
		fallthrough
	case "udp":
		fmt.Println("Network: UDP sockets on 127.0.0.2 and 127.0.0.3, which takes no privilege.")
		lab.Loopback = true
	case "unix":
		fmt.Println("Network: an AF_UNIX link.")
		lab.Unix = true
	case "switch":
		fmt.Println("Network: a switch in the memory of one daemon.")
		lab.Unix, lab.Switch = true, true
	default:
		return 2, fmt.Errorf("no link of type %q", link)
	}
	return 0, demo(ctx, out, lab)
}

// step is one operation that the demo shows.
type step struct {
	name string
	args []string
}

var steps = []step{
	{"RC SEND", []string{"send-bw", "-s", "64k"}},
	{"RC WRITE", []string{"write-bw", "-s", "64k"}},
	{"RC READ", []string{"read-bw", "-s", "64k"}},
	{"UC SEND", []string{"send-bw", "--connection", "uc", "-s", "64k"}},
	{"UC WRITE", []string{"write-bw", "--connection", "uc", "-s", "64k"}},
	{"UD SEND", []string{"send-bw", "--connection", "ud", "-s", "4k"}},
	{"RC WRITE, 16 QPs", []string{"write-bw", "-s", "64k", "-q", "16"}},
	{"RC WRITE, 64 B", []string{"write-bw", "-s", "64"}},
}

var latencies = []step{
	{"RC WRITE, 8 B", []string{"write-lat", "-s", "8"}},
	{"RC SEND, 8 B", []string{"send-lat", "-s", "8"}},
	{"RC READ, 8 B", []string{"read-lat", "-s", "8"}},
	{"RC FETCH_ADD", []string{"atomic-lat"}},
}

type demonstration struct {
	ctx context.Context
	lab *netlab.Lab
	out string
}

func demo(ctx context.Context, out string, o netlab.LabOptions) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp("", "roced-demo"); err != nil {
		return err
	}
	defer os.RemoveAll(o.Dir)
	lab, err := netlab.NewLab(o)
	if err != nil {
		return err
	}
	d := &demonstration{ctx, lab, out}
	defer func() { err = errors.Join(err, lab.Close(), d.keepLogs()) }()
	return d.show()
}

func (d *demonstration) show() error {
	if err := d.awaitLink(); err != nil {
		return err
	}
	if err := d.ctl("link", "show"); err != nil {
		return err
	}
	// The capture covers the verified part. The measured part runs without it.
	stop, err := d.capture()
	if err != nil {
		return err
	}
	fmt.Println("\nEvery byte verified:")
	for _, s := range append(steps, latencies...) {
		args := append([]string{}, s.args...)
		args = append(args, "-n", "20")
		if !strings.HasSuffix(s.args[0], "-lat") {
			args = append(args, "--verify")
		}
		if _, err := d.perf(args); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("  %-20s ok\n", s.name)
	}
	if err := stop(); err != nil {
		return err
	}
	if err := d.measure(); err != nil {
		return err
	}
	fmt.Println("\nCounters of the first NIC (those that are not zero):")
	if err := d.counters(); err != nil {
		return err
	}
	fmt.Printf("\nThe verified part was captured by the NIC itself: %s (open it in Wireshark).\n", d.pcap())
	return nil
}

func (d *demonstration) measure() error {
	fmt.Println("\nThroughput:")
	for _, s := range steps {
		r, err := d.perf(append(s.args[:len(s.args):len(s.args)], "-D", "1s"))
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("  %-20s %8.2f Gb/s %10.0f messages/s\n", s.name, r.Gbps, r.MessagesPerSecond)
	}
	fmt.Println("\nLatency:")
	for _, s := range latencies {
		r, err := d.perf(append(s.args[:len(s.args):len(s.args)], "-D", "1s"))
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("  %-20s %8.2f us median %8.2f us 99 %%\n", s.name, r.Latency.P50, r.Latency.P99)
	}
	return nil
}

// perf runs roceperf between the two hosts.
func (d *demonstration) perf(args []string) (netlab.PerfResult, error) {
	return d.lab.Perf(d.ctx, filepath.Join(d.lab.Dir, "oob"), args...)
}

// ctl shows the output of a rocectl command on the first host.
func (d *demonstration) ctl(args ...string) error {
	fmt.Printf("\n$ rocectl %s\n", strings.Join(args, " "))
	text, err := d.lab.Ctl(d.ctx, 0, args...)
	fmt.Print(text)
	return err
}

// awaitLink waits until the first NIC's link is up. On AF_UNIX the NIC may have looked for its peer before the peer
// existed.
func (d *demonstration) awaitLink() error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text, err := d.lab.Ctl(d.ctx, 0, "link", "show")
		if err != nil || strings.Contains(text, "state ACTIVE") || time.Now().After(deadline) {
			return err
		}
	}
}

func (d *demonstration) counters() error {
	text, err := d.lab.Ctl(d.ctx, 0, "stat")
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, " 0\n") {
			fmt.Print("  ", line)
		}
	}
	return err
}

func (d *demonstration) pcap() string { return filepath.Join(d.out, "demo.pcapng") }

// capture starts rocectl capture. The returned function ends it.
func (d *demonstration) capture() (stop func() error, err error) {
	ctx, cancel := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := d.lab.Interruptible(ctx, 0, d.lab.CtlArgs(0, "capture", d.lab.Host[0].Device, "-w", d.pcap()))
		done <- err
	}()
	stop = func() error {
		cancel()
		return <-done
	}
	if err := netlab.WaitFile(ctx, d.pcap()); err != nil {
		stop()
		return nil, fmt.Errorf("capture: %w", err)
	}
	return stop, nil
}

// keepLogs copies the daemons' logs to the output folder.
func (d *demonstration) keepLogs() error {
	var errs []error
	for _, h := range d.lab.Host {
		text, err := os.ReadFile(h.LogFile)
		if err == nil {
			err = os.WriteFile(filepath.Join(d.out, filepath.Base(h.LogFile)), text, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
