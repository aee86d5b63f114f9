package ctl

import (
	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/daemon/doctor"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Report which uses work on this machine", Args: about.Words(0, 0),
		Long: `Looks at kernel, rights, limits and libraries as this user, in this container or namespace,
has them, and says which ports and which programs will work, and what to do about the others.
It changes nothing and needs no daemon. The exit code is 0 if NICs on UDP sockets and
unmodified programs will work, else 1.`,
		Example: `  rocectl doctor
  sudo rocectl doctor             what root could do
  rocectl doctor --json`,
		RunE: func(*cobra.Command, []string) error {
			r := doctor.Examine()
			if err := a.show(r, r.Write); err != nil {
				return err
			}
			return r.Err()
		},
	}
}
