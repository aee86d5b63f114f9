package programs

import (
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// The indices of the hosts with the server and the client.
const (
	clientHost = iota
	serverHost
)

// newLab starts the daemons. extra is added to the configuration of each NIC.
func newLab(t *testing.T, extra string) *lab.Lab {
	t.Helper()
	return lab.New(t, netlab.LabOptions{Extra: extra})
}

// onBoth runs f on two daemons joined by TAPs, and on one daemon with a switch.
func onBoth(t *testing.T, f func(*testing.T, *lab.Lab)) {
	t.Helper()
	f(t, newLab(t, ""))
	t.Run("switch", func(t *testing.T) { f(t, lab.New(t, netlab.LabOptions{Unix: true, Switch: true})) })
}
