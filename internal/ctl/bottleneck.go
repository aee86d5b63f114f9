package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/base/about"
)

// bottleneckReport is the JSON output of `bottleneck`.
type bottleneckReport struct {
	Interface string      `json:"interface"`
	Attached  attach.Mode `json:"attached"` // tcx or clsact
	bottleneck.Stats
}

func (a *app) bottleneck() *cobra.Command {
	var ns string
	var mode attach.Mode
	var watch time.Duration
	cmd := &cobra.Command{
		Use: "bottleneck INTERFACE " + bottleneck.Usage, Short: "Rate-limit an interface and mark ECN, until Ctrl-C",
		Long: `What the interface sends passes a queue with a rate (tbf), and RED on its length:
between kmin and kmax a share of the frames that grows up to pmax is marked with CE,
beyond kmax every one; frames that do not declare ECN are dropped instead, and all that
do not fit. RATE is in kbit, mbit or gbit a second, SIZE in bytes, k (KiB) or m (MiB).
With roce, only RoCEv2 is marked and dropped; all traffic shares the queue.

The bottleneck is there until the command ends. It needs CAP_BPF and CAP_NET_ADMIN. It
replaces the interface's queueing discipline. What a killed command leaves, the next one
on the interface removes.`,
		Example: `  rocectl bottleneck eth0 rate=1gbit kmin=40k kmax=200k pmax=0.1
  rocectl bottleneck veth0 rate=100mbit roce --netns left --watch 1s`,
		Args: about.Words(2, 20),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := bottleneck.Parse(args[1:])
			if err != nil {
				return about.Usage(err)
			}
			return inNetns(ns, func() error { return a.runBottleneck(c.Context(), args[0], o, mode, watch) })
		},
	}
	netnsFlag(cmd, &ns)
	attachFlag(cmd, &mode)
	cmd.Flags().DurationVar(&watch, "watch", 0, "interval between prints of the counters (default: only at the end)")
	return cmd
}

func (a *app) runBottleneck(ctx context.Context, name string, o bottleneck.Options, mode attach.Mode, watch time.Duration) (err error) {
	at, err := bottleneck.Attach(name, o, mode)
	if err != nil {
		return privileged(err)
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	fmt.Fprintf(a.diag, "bottleneck in force on %s, by %s, until Ctrl-C\n", name, at.Mode())
	return a.watchCounters(ctx, watch, func() error {
		s, err := at.Stats()
		if err != nil {
			return err
		}
		return a.show(bottleneckReport{name, at.Mode(), s}, func(w io.Writer) {
			fmt.Fprintf(w, "frames %d\tbytes %d\tmarked %d\tdropped %d\toverflowed %d\tlongest queue %v\n",
				s.Frames, s.Bytes, s.Marked, s.Dropped, s.Overflowed, s.Longest)
		})
	})
}
