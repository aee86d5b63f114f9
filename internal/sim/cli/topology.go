package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim"
)

// cable is a line of `rocesim topology`.
type cable struct {
	A       string        `json:"a"`
	B       string        `json:"b"`
	Link    string        `json:"link"` // from A to B
	Rate    quantity.Rate `json:"rate_bps"`
	DelayUs float64       `json:"delay_us"`
}

func (a *app) topology() *cobra.Command {
	c := &cobra.Command{
		Use:     "topology",
		Short:   "Inspect the topology of a scenario",
		Example: "  rocesim topology show configs/sim/incast.yaml",
		Args:    about.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	show := &cobra.Command{
		Use:   "show SCENARIO",
		Short: "Show hosts, switches and links by name",
		Long:  "Shows hosts, switches and links with their rates and delays. Scenarios, --pcapng and --queue use these names.",
		Example: `  rocesim topology show configs/sim/incast.yaml
  rocesim topology show configs/sim/incast.yaml --set topology.leaves=8 --json`,
		Args: about.Words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := a.read(args[0], 0)
			if err != nil {
				return err
			}
			c, err := f.Config(beside(args[0]))
			if err != nil {
				return about.Usage(err)
			}
			return a.showTopology(&c)
		},
	}
	a.changes(show)
	c.AddCommand(show)
	return c
}

func (a *app) showTopology(c *sim.Config) error {
	g := c.Graph
	var cables []cable
	names := g.Links()
	for i, l := range g.Cables {
		cables = append(cables, cable{g.Name(l.A), g.Name(l.B), names[2*i], l.Rate, l.Delay.Seconds() * 1e6})
	}
	if a.json {
		return output.JSON(a.out, map[string]any{"hosts": g.Hosts, "switches": g.Switches, "cables": cables})
	}
	fmt.Fprintf(a.out, "%d hosts, %d switches, %d cables; a link A-B leads from A to B\n", g.Hosts, len(g.Switches), len(cables))
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, l := range cables {
		fmt.Fprintf(w, "%s\t%g Gb/s\t%g us\n", l.Link, float64(l.Rate)/1e9, l.DelayUs)
	}
	return w.Flush()
}
