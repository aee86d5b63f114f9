package ctl

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/daemon/api"
)

func (a *app) page() *cobra.Command {
	return &cobra.Command{
		Use: "page", Short: "Print the address of the live page, for a browser", Args: between(0, 0),
		Long: `Prints the address of the daemon's live page with a token. The token permits its holder to
see everything and, with control: true, to change fault rules. The daemon serves a page after
rocectl up --web, or if its configuration has

  web: {listen: 127.0.0.1:9465}`,
		Example: "  rocectl up --web\n  xdg-open \"$(rocectl page)\"",
		RunE: func(c *cobra.Command, _ []string) error {
			var p api.Page
			if err := a.client().Get(c.Context(), &p, "page"); err != nil {
				return err
			}
			return a.show(p, func(w io.Writer) { fmt.Fprintln(w, p.URL) })
		},
	}
}
