package ctl

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/daemon/api"
)

func (a *app) fault() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fault", Short: "Inject faults into the frames of a NIC", Args: about.NoArgs, RunE: help,
		Long: `Rules act on single frames of a NIC's port. "fault add --help" and roced-fault(7) have their
language. While a NIC has rules, it sends single frames.`,
		Example: `  rocectl fault add rxe_a 'tx drop psn=+3 n=1,2'     a packet's first two transmissions
  rocectl fault add rxe_a 'both drop p=0.01 seed=7'  one per cent, always the same ones
  rocectl fault add rxe_a 'rx delay 2ms p=0.1'
  rocectl fault add rxe_a 'tx ecn psn=+0..10'
  rocectl fault list rxe_a
  rocectl fault clear rxe_a
  rocectl fault run eth0 'rx drop psn=+3 n=1'        on an interface, without a NIC of ours`,
	}
	var replace bool
	add := &cobra.Command{
		Use: "add NIC RULE...", Short: "Add rules", Args: about.Words(2, 64),
		Long:    "Adds rules to a NIC. The language of rules:\n\n" + fault.Grammar + "\n\nRules and their meaning:\n\n" + fault.Examples,
		Example: "  rocectl fault add rxe_a 'tx corrupt op=ack n=1'",
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := fault.ParseAll(args[1:]); err != nil {
				return about.Usage(err)
			}
			return a.client().Do(c.Context(), "POST", api.RuleSet{Rules: args[1:], Replace: replace}, "faults", args[0])
		},
	}
	add.Flags().BoolVar(&replace, "replace", false, "replace the existing rules")
	list := &cobra.Command{
		Use: "list NIC", Short: "Show rules with their counts of matches and hits", Args: about.Words(1, 1),
		Example: "  rocectl fault list rxe_a",
		RunE: func(c *cobra.Command, args []string) error {
			var rules []api.FaultRule
			if err := a.client().Get(c.Context(), &rules, "faults", args[0]); err != nil {
				return err
			}
			return a.show(rules, func(w io.Writer) {
				for _, r := range rules {
					fmt.Fprintf(w, "%s\tmatched %d\thit %d\n", r.Rule, r.Matched, r.Hit)
				}
			})
		},
	}
	remove := &cobra.Command{
		Use: "clear NIC", Short: "Remove all rules", Args: about.Words(1, 1), Example: "  rocectl fault clear rxe_a",
		RunE: func(c *cobra.Command, args []string) error {
			return a.client().Do(c.Context(), "DELETE", nil, "faults", args[0])
		},
	}
	cmd.AddCommand(add, list, remove, a.faultRun(), a.faultClean())
	return cmd
}

// faultManual is the manual page of the language of rules.
func faultManual() about.Page {
	return about.Page{Name: "roced-fault", Section: 7, Short: "rules for faults in RoCEv2 frames", Parts: []about.Part{
		{Title: "DESCRIPTION", Text: `A rule acts on single frames of a NIC's port ("rocectl fault add", "faults" in roced.yaml(5)) or of an interface
("rocectl fault run"), which takes no delay, reorder, truncate, trim and any. The same rules and seeds select the same frames.`},
		{Title: "RULES", Text: fault.Grammar},
		{Title: "EXAMPLES", Text: fault.Examples},
		{Title: "SEE ALSO", Text: "rocectl(1), roced.yaml(5)"},
	}}
}

func (a *app) poll() *cobra.Command {
	return &cobra.Command{
		Use: "poll NIC [TIME]", Short: "Show or set the time that an idle NIC polls",
		Args:    about.Words(1, 2),
		Example: "  rocectl poll rxe_a 50us\n  rocectl poll rxe_a 0       sleep at once\n  rocectl poll rxe_a busy    never sleep",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return a.client().Do(c.Context(), "PUT", api.PollSetting{Poll: args[1]}, "poll", args[0])
			}
			var p api.PollSetting
			if err := a.client().Get(c.Context(), &p, "poll", args[0]); err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) { fmt.Fprintln(w, p.Poll) })
		},
	}
}
