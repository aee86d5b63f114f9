package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/planes"
	"roced.io/roced/rocev2"
)

// openEach opens the port of the NIC, or those of all its planes.
func openEach(n *nic, open func(c *config.Port) (port.Monitored, error)) (port.Port, error) {
	var all []port.Monitored
	failed := func(err error) error {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
		return err
	}
	each := n.cfg.Port.Each()
	for i := range each {
		p, err := open(&each[i])
		if err != nil {
			return nil, failed(err)
		}
		all = append(all, p)
	}
	if n.cfg.Port.Planes == nil {
		return all[0], nil
	}
	p, err := planes.New(all)
	if err != nil {
		return nil, failed(err)
	}
	n.planes = p
	return p, nil
}

// sharedPlanes is a port on interfaces that the kernel uses too, one in each plane.
type sharedPlanes struct {
	*planes.Port
	each []sharedPort
}

// SetAddrs implements sharedPort.
func (p *sharedPlanes) SetAddrs(addrs []netip.Addr) (err error) {
	for _, q := range p.each {
		err = errors.Join(err, q.SetAddrs(addrs))
	}
	return err
}

// Group implements sharedPort.
func (p *sharedPlanes) Group(gid inet.GID, in bool) (err error) {
	for _, q := range p.each {
		err = errors.Join(err, q.Group(gid, in))
	}
	return err
}

// Mode implements sharedPort.
func (p *sharedPlanes) Mode() string {
	var modes []string
	for _, q := range p.each {
		modes = append(modes, q.Mode())
	}
	return strings.Join(slices.Compact(modes), "; ")
}

// watch prepares to watch the device of a plane, so that the NIC learns at once when it goes down or up.
func (n *nic) watch(where host.Config) error {
	f, err := host.Open(where)
	if err == nil {
		n.watched = append(n.watched, f)
	}
	return err
}

// watcher makes a NIC poll its port when the device of a plane changes.
type watcher struct{ *nic }

// Changed implements host.Handler.
func (w watcher) Changed(host.State) {
	// An error means that the NIC has ended.
	_ = w.shard.Do(context.Background(), func(now mono.Time, _ *rocev2.NIC) { w.port.Poll(now) })
}

// Resolved implements host.Handler.
func (watcher) Resolved(netip.Addr, inet.MAC) {}

// Unreachable implements host.Handler.
func (watcher) Unreachable(netip.Addr) {}

// Destinations implements host.Handler.
func (watcher) Destinations() []host.Query { return nil }

// Failed implements host.Handler.
func (w watcher) Failed(err error) { w.log.Warn("cannot watch the device of a plane", "err", err) }

// planeViews describes the planes. It runs on the shard.
func (n *nic) planeViews() (out []api.Plane) {
	if n.planes == nil {
		return nil
	}
	for i, c := range n.cfg.Port.Planes {
		st, traffic := n.planes.Plane(i)
		p := api.Plane{Device: c.Device + c.Interface + c.Local, State: "DOWN", Sent: traffic.Sent, Received: traffic.Received}
		if st.Up {
			p.State = "ACTIVE"
		}
		if st.Err != nil {
			p.Reason = st.Err.Error()
		}
		out = append(out, p)
	}
	return out
}
