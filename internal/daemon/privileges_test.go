package daemon

import (
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/config"
)

// TestDropsPrivileges checks the settings: the daemon keeps privileges where a TAP device may need them.
func TestDropsPrivileges(t *testing.T) {
	const (
		tap    = "{name: t, port: {type: tap}}"
		unix   = "{name: u, port: {type: unix, local: /a, remote: /b}}"
		packet = "{name: p, port: {type: packet, interface: eth0}}"
		xdp    = "{name: x, port: {type: xdp, interface: eth1}}"
	)
	for _, c := range []struct {
		privileges, nics string
		want             bool
	}{
		{"auto", xdp, true}, {"auto", packet + ", " + unix, true}, {"auto", tap, false}, {"auto", xdp + ", " + tap, false},
		{"drop", tap, true}, {"keep", xdp, false},
	} {
		cfg, err := config.Read(strings.NewReader(fmt.Sprintf("privileges: %s\nnics: [%s]", c.privileges, c.nics)))
		if err != nil {
			t.Fatal(err)
		}
		if got := dropsPrivileges(cfg); got != c.want {
			t.Errorf("%s, %s: %v", c.privileges, c.nics, got)
		}
	}
}
