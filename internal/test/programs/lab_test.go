package programs

import (
	"testing"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/internal/test/lab"
)

// The NIC with a program that waits for another one, and that of the other one.
const (
	clientHost = iota
	serverHost
)

// newLab starts the daemons. Their configuration says of the NIC what extra does, too.
func newLab(t *testing.T, extra string) *lab.Lab {
	t.Helper()
	return lab.New(t, netlab.LabOptions{Extra: extra})
}
