package cli

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/check"
)

func (a *app) analyze() *cobra.Command {
	var counters []string
	var o check.Options
	c := &cobra.Command{
		Use: "analyze CAPTURE", Short: "Check a capture of two NICs against the rules of RoCEv2",
		Long: `Checks any capture (pcap or pcapng) of RoCEv2 traffic, as Lumina does:
  capture         requests that the capture lacks; with such holes other checks are undecidable
  resumes at the NAK, one NAK outstanding, acknowledgements in order, ranges of repeated READs
  CNPs for marks, and by which scope (queue pair, peer, host) CNPs are paced
  latencies       from a gap to its NAK, from a NAK to the retransmission, retransmission timeouts
  counters        --counters compares a host's counters with its packets

Findings name frames as Wireshark counts them. The exit code is 1 if a rule is violated, 4 if the
capture has no RoCEv2.`,
		Example: `  rocedrill analyze roce.pcapng
  rdma -p statistic show link rxe0/1 | tr ' ' '\n' | paste - - >counters
  rocedrill analyze roce.pcapng --counters 198.18.0.1=counters --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return about.Usage(errors.New("usage: rocedrill analyze CAPTURE"))
			}
			var err error
			if o.Counters, err = readCounters(counters); err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return about.Usage(err)
			}
			defer f.Close()
			r, err := check.Read(bufio.NewReader(f), o)
			if err != nil {
				return about.Usage(fmt.Errorf("%s: %w", args[0], err))
			}
			if err := a.printChecks(r); err != nil {
				return err
			}
			switch {
			case r.Violated():
				return errFailed
			case r.Empty():
				return fmt.Errorf("%w: %s", errNothing, r.Checks[0].Text)
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&counters, "counters", nil, "`ADDRESS=FILE`: counters of a host, each line a name and its growth during the capture")
	icrcFlag(c, &o.IgnoreICRC)
	return c
}

// icrcFlag adds --icrc.
func icrcFlag(c *cobra.Command, ignore *bool) {
	c.Flags().Func("icrc", "`MODE`: check, or ignore: accept packets with a wrong ICRC or without one (default check)", func(s string) error {
		if s != "check" && s != "ignore" {
			return fmt.Errorf("%q: must be check or ignore", s)
		}
		*ignore = s == "ignore"
		return nil
	})
}

// readCounters reads the files of --counters.
func readCounters(args []string) (check.Counters, error) {
	hosts := check.Counters{}
	for _, arg := range args {
		host, path, _ := strings.Cut(arg, "=")
		a, err := netip.ParseAddr(host)
		if err != nil || path == "" {
			return nil, about.Usage(fmt.Errorf("--counters %s: must be ADDRESS=FILE", arg))
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, about.Usage(err)
		}
		hosts[a], err = check.ReadCounters(bounded.Reader(f, bounded.Text))
		f.Close()
		if err != nil {
			return nil, about.Usage(fmt.Errorf("%s: %w", path, err))
		}
	}
	return hosts, nil
}

// printChecks prints the checks of the capture and of each connection.
func (a *app) printChecks(r *check.Report) error {
	if a.json {
		return output.JSON(a.out, r)
	}
	fmt.Fprintf(a.out, "%d frames%v\n", r.Frames, r.Cut)
	a.checks(r.Checks)
	for _, c := range r.Connections {
		fmt.Fprintln(a.out, c.Flow)
		a.checks(c.Checks)
	}
	return nil
}

func (a *app) checks(list []check.Check) {
	const most = 10 // findings of a check; --json has all
	var none []string
	for _, c := range list {
		if c.Verdict == check.NoCase {
			none = append(none, c.Name)
			continue
		}
		fmt.Fprintf(a.out, "  %-11s  %-27s  %s\n", c.Verdict, c.Name, c.Text)
		for i, f := range c.Findings {
			if i == most {
				fmt.Fprintf(a.out, "%15s%d more\n", "", len(c.Findings)-most)
				break
			}
			fmt.Fprintf(a.out, "%15sframes %s: %s\n", "", strings.Trim(fmt.Sprint(f.Frames), "[]"), f.Text)
		}
	}
	if len(none) > 0 {
		fmt.Fprintf(a.out, "  %-11s  %s\n", check.NoCase, strings.Join(none, ", "))
	}
}
