package daemon

import (
	"errors"
	"fmt"
	"net/netip"

	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/port"
	"roced.io/roced/port/packet"
	"roced.io/roced/port/udp"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/port/xdp"
	"roced.io/roced/rocev2"
	"roced.io/roced/tap"
)

// Settings of an XDP port by their configuration values.
var (
	attachModes = map[string]xdp.Attach{"auto": xdp.AttachAuto, "native": xdp.AttachNative, "generic": xdp.AttachGeneric}
	copyModes   = map[string]xdp.Copy{"auto": xdp.CopyAuto, "copy": xdp.CopyAlways, "zerocopy": xdp.CopyNever}
)

// openPort opens the port of the configuration.
func (n *nic) openPort() (err error) {
	var p port.Port
	if n.cfg.Port.Shared() {
		p, err = n.openShared()
	} else {
		p, err = n.openOwn()
	}
	if err != nil {
		return err
	}
	n.port = port.NewFaulty(p, nil)
	return nil
}

// openOwn opens a port that only the NIC uses.
func (n *nic) openOwn() (port.Port, error) {
	return openEach(n, func(c *config.Port) (port.Monitored, error) {
		switch c.Type {
		case "tap":
			t, err := tap.Open(tap.Config{Name: c.Device, Netns: c.Netns, Bridge: c.Bridge, MTU: n.cfg.MTU, Offload: c.UseOffload()})
			if err != nil {
				return nil, err
			}
			if n.cfg.Port.Planes == nil {
				return t, nil
			}
			if err := n.watch(host.Config{Interface: t.Name(), Netns: c.Netns}); err != nil {
				return nil, errors.Join(err, t.Close())
			}
			return t, nil
		case "unix":
			return unixport.Open(unixport.Config{Local: c.Local, Remote: c.Remote})
		}
		return nil, fmt.Errorf("no port of type %q", c.Type)
	})
}

// openShared opens a port on a kernel interface for each plane, and the followers that track the interfaces for the NIC.
func (n *nic) openShared() (port.Port, error) {
	s := &shared{nic: n}
	n.shared = s
	var each []sharedPort
	all, err := openEach(n, func(c *config.Port) (port.Monitored, error) {
		p, err := s.open(c)
		each = append(each, p)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	s.device = s.planes[0].state.Name
	s.lead()
	if n.planes == nil {
		s.port = each[0]
	} else {
		s.port = &sharedPlanes{n.planes, each}
	}
	return all, nil
}

// open opens the port on the interface of one plane, and its follower.
func (s *shared) open(c *config.Port) (p sharedPort, err error) {
	where := host.Config{Interface: c.Interface, Netns: c.Netns, Routed: s.routed()}
	if c.Address != "" {
		where.Address = netip.MustParseAddr(c.Address) // validated
	}
	f, err := host.Open(where)
	if err != nil {
		return nil, err
	}
	st := f.State()
	s.planes = append(s.planes, &follower{Follower: f, shared: s, state: st})
	if err := s.checkMAC(&st); err != nil {
		return nil, err
	}
	addrs := addrsOf(s.planes[0].state.Addrs)
	switch c.Type {
	case "packet":
		return packet.Open(packet.Config{Interface: c.Interface, Netns: c.Netns, Addrs: addrs, Offload: c.UseOffload(), UDPPort: s.cfg.MRCUDPPort})
	case "xdp":
		return xdp.Open(xdp.Config{Interface: c.Interface, Netns: c.Netns, Addrs: addrs, Queues: c.Queues,
			Attach: attachModes[c.Mode], Copy: copyModes[c.Copy], UDPPort: s.cfg.MRCUDPPort})
	case "udp":
		p, err := udp.Open(udp.Config{Netns: c.Netns, MAC: s.cfg.MAC.HardwareAddr(), Offload: superFrames(c), UDPPort: s.cfg.MRCUDPPort,
			Warn: func(what string) { s.log.Warn("port", "warning", what) }}, st.Index, addrs)
		if err == nil {
			p.SetLink(st.Index, s.linkOf(&st))
		}
		return p, err
	}
	return nil, fmt.Errorf("no port of type %q", c.Type)
}

// superFrames returns the peers to which a UDP port sends super-frames.
func superFrames(c *config.Port) udp.Offload {
	switch {
	case c.Offload == nil:
		return udp.OffloadKnown
	case *c.Offload:
		return udp.OffloadAlways
	}
	return udp.OffloadNever
}

// coreConfig returns the link settings of the NIC: those of the configuration or of the interface.
func (n *nic) coreConfig() (rocev2.Config, error) {
	c := n.cfg
	out := rocev2.Config{Name: c.Name, PairedGIDs: c.MLX5GIDs, MAC: c.MAC.HardwareAddr(), MTU: c.MTU, Addrs: c.Prefixes, Gateways: c.NextHops,
		Ports: c.Port.Ports(), Offload: n.port.Offload(), UDPPort: c.MRCUDPPort}
	for _, v := range c.VLANs {
		out.VLANs = append(out.VLANs, rocev2.VLAN{ID: v.ID, Addrs: v.Prefixes})
	}
	if n.shared == nil {
		return out, nil
	}
	link := n.port.State()
	if link.MTU == 0 {
		return out, link.Err
	}
	i := n.interfaceOf(&n.shared.planes[n.shared.leader.Load()].state)
	out.Sockets, out.Translated, out.Group = n.routed(), n.translated, n.shared.port.Group
	if u, ok := n.shared.port.(*udp.Port); ok && n.cfg.Port.ChecksSource() {
		out.Bound = u.Bound
	}
	out.Shared, out.MAC, out.MTU, out.Addrs, out.Routes = true, i.MAC, link.MTU, i.Addrs, i.Routes
	return out, nil
}

// netdev returns the name of the port's network device, or "" if it has none.
func (n *nic) netdev() string {
	if n.shared != nil {
		return n.shared.device
	}
	return n.cfg.Port.Each()[0].Device
}
