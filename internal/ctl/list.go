package ctl

import (
	"io"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/qp/profile/catalog"
)

// list prints the transports and plug-ins that a configuration can name.
func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use: "list [KIND [NAME]]", Short: "List transports and plug-ins with their parameters",
		Long: `Lists the transports and their parts: trackers of the receiver, recoveries and path
selections of the sender, and congestion controls. Each parameter has its type, default,
range and unit.`,
		Example: "  rocectl list\n  rocectl list congestion dcqcn\n  rocectl list recovery --json",
		Args:    about.Words(0, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			args = append(args, "", "")
			found, err := catalog.Select(catalog.Entries(), args[0], args[1])
			if err != nil {
				return about.Usage(err)
			}
			return a.show(found, func(w io.Writer) { _ = catalog.Write(w, found) })
		},
	}
}
