package cli

import (
	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/qp/profile/catalog"
)

// list prints the transports, plug-ins, topologies, workloads and events that a scenario can name.
func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use: "list [KIND [NAME]]", Short: "List the elements of scenarios with their parameters",
		Long: `Lists transports and their parts (trackers, recoveries, path selections, congestion
controls), load balancing of switches, topologies, workloads and events. Parameters have
their type; those of plug-ins also default, range and unit.`,
		Example: "  rocesim list workload incast\n  rocesim list congestion --json\n  rocesim list",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			args = append(args, "", "")
			found, err := catalog.Select(append(catalog.Entries(), scenario.Catalog()...), args[0], args[1])
			switch {
			case err != nil:
				return about.Usage(err)
			case a.json:
				return output.JSON(a.out, found)
			}
			return catalog.Write(a.out, found)
		},
	}
}
