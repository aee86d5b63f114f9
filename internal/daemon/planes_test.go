package daemon

import (
	"net/netip"
	"path/filepath"
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/rocev2"
)

// asked counts the calls of Poll from outside of the port.
type asked struct {
	port.Monitored
	polls int
}

func (a *asked) Poll(now mono.Time) {
	a.polls++
	a.Monitored.Poll(now)
}

// TestPlaneChanges: a NIC asks its ports for their state when the interface of a plane has changed, before they do so by
// themselves, which takes up to port.PollInterval.
func TestPlaneChanges(t *testing.T) {
	dir := t.TempDir()
	link, err := unixport.Open(unixport.Config{Local: filepath.Join(dir, "a"), Remote: filepath.Join(dir, "b")})
	if err != nil {
		t.Fatal(err)
	}
	core, err := rocev2.New(rocev2.Config{Name: "rxe_a", MAC: inet.MAC{2}, MTU: 1500, Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")}})
	if err != nil {
		t.Fatal(err)
	}
	plane := &asked{Monitored: link}
	n := &nic{cfg: &config.NIC{}, port: port.NewFaulty(plane, nil)}
	if n.shard, err = shard.New(shard.Config{NIC: core, Port: n.port}); err != nil {
		t.Fatal(err)
	}
	watcher{n}.Changed(host.State{})
	if err := n.shard.Close(); err != nil {
		t.Error(err)
	}
	if plane.polls != 1 {
		t.Errorf("the NIC has asked %d times", plane.polls)
	}
}
