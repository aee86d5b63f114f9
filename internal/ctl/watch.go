package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	bpf "roced.io/roced/bpf/watch"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/watch"
)

// watching holds the options of watch.
type watching struct {
	source, netns string
	interval      time.Duration
	often         bool // the user set the interval: also report during a replay
	count         int
	once          bool
	qp            string
	streams       int
	ignoreICRC    bool
	reporter      watch.Reporter
}

func (a *app) watchTraffic() *cobra.Command {
	var o watching
	cmd := &cobra.Command{
		Use: "watch INTERFACE|NIC|FILE", Short: "Show RoCEv2 traffic of an interface, a NIC or a capture", Args: about.Words(1, 1),
		Long: `Shows who asks whom for what in any RoCEv2 traffic, also of NICs that are not
ours, without touching it: on an interface, in both directions, or in a pcap or
pcapng file, also of gzip (a name with a slash or the ending of one; - is standard
input). Exit code 4 says that a file has no RoCEv2. A
name without an interface is a NIC of the daemon: only there the packets of a
switch are seen.

A line is a requester: its requests and what came back for them.

  RETX  packets sent again, whether the first sending was seen here or not
  LOST  PSNs that did not come in their turn; those still missing never came
  OOO   greatest out-of-order degree: by how many PSNs a packet was overtaken
  NAK   negative acknowledgements; RNR: receiver not ready; CNP: congestion
        notifications for the requester; CE: packets marked for congestion
  RTT   smoothed time from requests to answers, as seen from here: what lies
        between here and the requester is not in it

A bridge shows only what is for the host; watch one of its ports. AF_XDP traffic
passes interfaces unseen: watch the NIC then. Watching an interface needs
CAP_NET_RAW and CAP_BPF, CAP_SYS_ADMIN to enter a namespace, and Linux 5.17. A
NIC needs the rights of rocectl capture, a file none.`,
		Example: `  rocectl watch tap_a                          until Ctrl-C, a table each second
  rocectl watch v0 --netns blue --sort retx
  rocectl watch eth0 --once --interval 10s --json
  rocectl watch eth0 --qp 0x11                 everything about a queue pair
  rocectl watch rxe_a                          a NIC, also on a switch
  rocectl watch out.pcapng --sort age`,
		RunE: func(c *cobra.Command, args []string) error {
			o.source, o.often = args[0], c.Flags().Changed("interval")
			if err := o.validate(); err != nil {
				return about.Usage(err)
			}
			if isFile(o.source) {
				in, err := input(c, o.source)
				if err != nil {
					return err
				}
				defer in.Close()
				return a.watchFile(c.Context(), in, &o)
			}
			if _, err := net.InterfaceByName(o.source); err != nil && o.netns == "" {
				return a.watchNIC(c.Context(), &o)
			}
			return a.watchInterface(c.Context(), &o)
		},
	}
	o.flags(cmd)
	return cmd
}

// flags defines the options.
func (o *watching) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.netns, "netns", "", "network namespace of the interface, a name or a path")
	f.DurationVar(&o.interval, "interval", time.Second, "interval between reports (default for files: one report)")
	f.IntVarP(&o.count, "count", "c", 0, "number of reports (default: until interrupted)")
	f.BoolVar(&o.once, "once", false, "print one report after one interval")
	f.StringVar(&o.qp, "qp", "", "show details of this queue pair, such as 17 or 0x11")
	f.StringVar(&o.reporter.Select.Sort, "sort", "rate", "order: "+watch.Orders)
	f.Func("icrc", "`MODE`: check, or ignore: accept packets with a wrong ICRC or without one (default check)", func(s string) error {
		if s != "check" && s != "ignore" {
			return fmt.Errorf("%q: must be check or ignore", s)
		}
		o.ignoreICRC = s == "ignore"
		return nil
	})
	f.IntVar(&o.streams, "streams", flow.DefaultStreams, "maximum number of streams, two for each connection")
}

// validate checks the options and fills in defaults.
func (o *watching) validate() error {
	s := &o.reporter.Select
	if o.qp != "" {
		n, err := strconv.ParseUint(o.qp, 0, 32)
		if err != nil {
			return fmt.Errorf("--qp %q is not a number", o.qp)
		}
		qpn := uint32(n)
		s.QPN = &qpn
	}
	if o.once {
		o.count = 1
	}
	o.reporter.Source = o.source
	switch {
	case o.interval < 10*time.Millisecond:
		return fmt.Errorf("--interval %v is less than 10ms", o.interval)
	case o.count < 0:
		return fmt.Errorf("--count %d is negative", o.count)
	case o.streams < 2 || o.streams > 1<<20:
		return fmt.Errorf("--streams %d is not between 2 and %d", o.streams, 1<<20)
	case isFile(o.source) && (o.netns != "" || o.count > 0):
		return errors.New("--netns, --count and --once are for interfaces and NICs")
	}
	return s.Validate()
}

// isFile reports whether source names a file.
func isFile(source string) bool {
	return source == "-" || strings.Contains(source, "/") ||
		slices.Contains([]string{".pcap", ".pcapng", ".cap", ".gz"}, filepath.Ext(source))
}

func (a *app) watchFile(ctx context.Context, in io.Reader, o *watching) error {
	every := o.interval
	if !o.often {
		every = 0
	}
	analyzer := o.analyzer()
	err := watch.Replay(ctx, in, &o.reporter, analyzer, every, func(r *watch.Report) error { return a.showTraffic(o, r, 0) })
	if err == nil && analyzer.Totals().Packets == 0 {
		return fmt.Errorf("%w%s", errNoRoCE, analyzer.Totals().Others.Instead())
	}
	return err
}

func (o *watching) analyzer() *flow.Analyzer {
	return flow.New(flow.Options{Streams: o.streams, IgnoreICRC: o.ignoreICRC})
}

func (a *app) watchInterface(ctx context.Context, o *watching) (err error) {
	needed := host.CapNetRaw | host.CapBPF
	if o.netns != "" {
		needed |= host.CapSysAdmin
	}
	if err := host.RequireCaps(needed); err != nil {
		return err
	}
	var s *bpf.Socket
	err = netns.Do(o.netns, func() (err error) {
		s, err = bpf.Open(o.source, bpf.RingSize)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := host.DropCaps(host.NetworkCaps); err != nil {
		fmt.Fprintln(a.diag, "rocectl: privileges are kept:", err)
	}
	return a.follow(ctx, watch.Live(s), o)
}

// watchNIC watches a live capture of a NIC.
func (a *app) watchNIC(ctx context.Context, o *watching) error {
	body, err := a.client().Capture(ctx, o.source)
	if err != nil {
		return fmt.Errorf("%s is neither an interface of this network namespace nor a NIC: %w", o.source, err)
	}
	r := watch.Record(ctx, body)
	err = a.follow(ctx, r, o)
	err = errors.Join(err, body.Close())
	r.Close()
	return err
}

// follow shows reports of a tap.
func (a *app) follow(ctx context.Context, s watch.Tap, o *watching) error {
	rows, redraw := screen(a.out)
	if !redraw {
		fmt.Fprintf(a.diag, "watching %s; Ctrl-C ends\n", o.source)
	}
	o.reporter.Live = true
	err := watch.Follow(ctx, s, &o.reporter, o.analyzer(), o.interval, o.count, func(r *watch.Report) error {
		if redraw && !a.json {
			fmt.Fprint(output.Raw(a.out), "\x1b[H\x1b[2J")
		}
		return a.showTraffic(o, r, rows)
	})
	if errors.Is(err, unix.EPIPE) {
		return nil // the reader of our output closed the pipe
	}
	return err
}

// showTraffic prints a report: a table of at most rows flows, the details of a queue pair, or one line of JSON.
func (a *app) showTraffic(o *watching, r *watch.Report, rows int) error {
	switch {
	case a.json:
		return json.NewEncoder(a.out).Encode(r)
	case o.reporter.Select.QPN != nil:
		watch.WriteDetails(a.out, r)
		return nil
	}
	return watch.WriteTable(a.out, r, rows)
}

// screen returns the number of flows that fit on the terminal w. It returns false if w is not a terminal.
func screen(w io.Writer) (rows int, ok bool) {
	f := output.Terminal(w)
	if f == nil {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return max(int(size.Row)-4, 1), true
}
