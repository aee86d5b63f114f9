package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/attach"
	bpffault "roced.io/roced/bpf/fault"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/base/strict"
)

// faultReport is the JSON output of `fault run`.
type faultReport struct {
	Interface string            `json:"interface"`
	Attached  attach.Mode       `json:"attached"` // tcx or clsact
	Rx        bpffault.Counters `json:"rx"`
	Tx        bpffault.Counters `json:"tx"`
	Rules     []faultCount      `json:"rules"`
	Unseen    []string          `json:"unseen"` // frames that the rules do not reach
}

type faultCount struct {
	Rule    string `json:"rule"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
	Note    string `json:"note,omitempty"` // why no packet matched
}

func (a *app) faultRun() *cobra.Command {
	var file, ns string
	var mode attach.Mode
	var watch time.Duration
	cmd := &cobra.Command{
		Use: "run INTERFACE [RULE...]", Short: "Inject faults into an interface's frames, until Ctrl-C",
		Long: `The rules act on the RoCEv2 frames of an interface, whoever sends them; all other
frames pass untouched. rx is what the interface receives, tx what it sends. src= and
dst= name addresses. A file of rules is YAML with a list "rules" of such texts.

The rules are in force until the command ends. Where the kernel has no tcx links (Linux
6.6), they are attached by clsact, and those of a killed command stay in force: the next
command on the interface, or "fault clean", removes them. It needs CAP_BPF and
CAP_NET_ADMIN. delay, reorder, truncate and trim are for the ports of roced's NICs only:
a tc program can neither hold frames back nor shorten them.`,
		Example: `  rocectl fault run eth0 'tx drop qpn=0x11 psn=+3 n=1,2' 'rx corrupt op=ack n=1'
  rocectl fault run veth0 --netns left -f rules.yaml --watch 1s`,
		Args: about.Words(1, 65),
		RunE: func(c *cobra.Command, args []string) error {
			rules, err := readRules(file)
			if err != nil {
				return err
			}
			parsed, err := parseForInterface(append(rules, args[1:]...))
			if err != nil {
				return about.Usage(err)
			}
			return inNetns(ns, func() error { return a.runFaults(c.Context(), args[0], parsed, mode, watch) })
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file of rules, in YAML")
	netnsFlag(cmd, &ns)
	attachFlag(cmd, &mode)
	cmd.Flags().DurationVar(&watch, "watch", 0, "interval between prints of the counters (default: only at the end)")
	return cmd
}

// faultClean removes the filters that killed commands left behind.
func (a *app) faultClean() *cobra.Command {
	var ns string
	cmd := &cobra.Command{
		Use: "clean INTERFACE", Short: "Clean an interface after killed commands",
		Long: `Removes tc filters of killed "fault run" and "bottleneck" commands, and the devices of
the former, which new commands on the interface do as well. What a command uses that
runs, and what others have attached, stays. It needs CAP_NET_ADMIN.`,
		Example: "  rocectl fault clean eth0",
		Args:    about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return inNetns(ns, func() error { return privileged(bpffault.Clean(args[0])) })
		},
	}
	netnsFlag(cmd, &ns)
	return cmd
}

func netnsFlag(cmd *cobra.Command, ns *string) {
	cmd.Flags().StringVar(ns, "netns", "", "network namespace of the interface: a name of ip-netns(8), or a path")
}

func attachFlag(cmd *cobra.Command, mode *attach.Mode) {
	*mode = attach.Auto
	cmd.Flags().Var((*attachMode)(mode), "attach", "attach mode: tcx, clsact, or auto (tcx if the kernel has it)")
}

// attachMode is the value of the flag for the attach mode.
type attachMode attach.Mode

func (m *attachMode) String() string { return string(*m) }
func (m *attachMode) Type() string   { return "MODE" }

func (m *attachMode) Set(s string) error {
	mode, err := attach.ParseMode(s)
	*m = attachMode(mode)
	return err
}

// readRules reads the rules of a file. Without a file it returns no rules.
func readRules(file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := bounded.ReadFile(file, bounded.Text)
	if err != nil {
		return nil, err
	}
	doc, err := strict.Parse(file, text)
	if err != nil {
		return nil, err
	}
	var f struct {
		Rules []string `yaml:"rules"`
	}
	if faults := doc.Decode(&f); faults != nil {
		return nil, faults
	}
	return f.Rules, nil
}

func parseForInterface(texts []string) ([]fault.Rule, error) {
	if len(texts) == 0 {
		return nil, errors.New("no rules")
	}
	rules, err := fault.ParseAll(texts)
	for i := range rules {
		err = cmp.Or(err, bpffault.Check(&rules[i]))
	}
	return rules, err
}

// inNetns runs f in a network namespace, on a thread of its own. With an empty name it runs f in the current
// namespace.
func inNetns(name string, f func() error) error {
	if name == "" {
		return f()
	}
	open := netns.GetFromName
	if strings.ContainsRune(name, '/') {
		open = netns.GetFromPath
	}
	h, err := open(name)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer h.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(h); err != nil {
			done <- fmt.Errorf("network namespace %s: %w", name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// privileged adds the missing privilege to the kernel's permission error.
func privileged(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (needs CAP_BPF and CAP_NET_ADMIN)", err)
	}
	return err
}

// runFaults applies rules until ctx ends.
func (a *app) runFaults(ctx context.Context, name string, rules []fault.Rule, mode attach.Mode, watch time.Duration) (err error) {
	at, err := bpffault.Attach(name, mode)
	if err != nil {
		return privileged(err)
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	if err := at.SetRules(rules); err != nil {
		return err
	}
	fmt.Fprintf(a.diag, "%d rules in force on %s, by %s, until Ctrl-C\n", len(rules), name, at.Mode())
	return a.watchCounters(ctx, watch, func() error { return a.showFaults(name, at) })
}

// watchCounters calls show at each interval and once more when ctx ends. Interval 0 means only at the end.
func (a *app) watchCounters(ctx context.Context, interval time.Duration, show func() error) error {
	var tick <-chan time.Time
	if interval > 0 {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return show()
		case <-tick:
			if err := show(); err != nil {
				return err
			}
		}
	}
}

func (a *app) showFaults(name string, at *bpffault.Attachment) error {
	s, err := at.Stats()
	if err != nil {
		return err
	}
	r := faultReport{Interface: name, Attached: at.Mode(), Rx: s.Rx, Tx: s.Tx}
	for _, c := range s.Rules {
		count := faultCount{c.Rule.String(), c.Matched, c.Hit, ""}
		if c.Matched == 0 {
			count.Note = unmatched(name, c.Rule.Dir, s.Rx.Frames, s.Tx.Frames)
		}
		r.Rules = append(r.Rules, count)
	}
	if r.Unseen, err = unseen(name, s.Rules); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		for _, d := range []struct {
			name string
			bpffault.Counters
		}{{"rx", r.Rx}, {"tx", r.Tx}} {
			fmt.Fprintf(w, "%s %s\tframes %d\tsuper-frames %d\tleft whole %d\n", name, d.name, d.Frames, d.Supers, d.Unsplit)
		}
		for _, c := range r.Rules {
			fmt.Fprintf(w, "%s\tmatched %d\thit %d\n", c.Rule, c.Matched, c.Hit)
			if c.Note != "" {
				fmt.Fprintf(w, "  %s\n", c.Note)
			}
		}
		for _, text := range r.Unseen {
			fmt.Fprintf(w, "not reached: %s\n", text)
		}
	})
}
