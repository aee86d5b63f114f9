package daemon

import (
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
	c := n.cfg
	var p port.Port
	switch {
	case c.Port.Shared():
		p, err = n.openShared()
	case c.Port.Type == "tap":
		p, err = tap.Open(tap.Config{Name: c.Port.Device, Netns: c.Port.Netns, Bridge: c.Port.Bridge,
			MTU: c.MTU, Offload: c.Port.UseOffload()})
	case c.Port.Type == "unix":
		p, err = unixport.Open(unixport.Config{Local: c.Port.Local, Remote: c.Port.Remote})
	default:
		err = fmt.Errorf("no port of type %q", c.Port.Type)
	}
	if err != nil {
		return err
	}
	n.port = port.NewFaulty(p, nil)
	return nil
}

// openShared opens a port on a kernel interface, and the follower that tracks the interface for the NIC.
func (n *nic) openShared() (port.Port, error) {
	c := &n.cfg.Port
	where := host.Config{Interface: c.Interface, Netns: c.Netns, Routed: n.routed()}
	if c.Address != "" {
		where.Address = netip.MustParseAddr(c.Address) // validated
	}
	f, err := host.Open(where)
	if err != nil {
		return nil, err
	}
	st := f.State()
	n.shared = &shared{nic: n, follower: f, device: st.Name}
	addrs := addrsOf(st.Addrs)
	var shared sharedPort
	switch c.Type {
	case "packet":
		shared, err = packet.Open(packet.Config{Interface: c.Interface, Netns: c.Netns, Addrs: addrs, Offload: c.UseOffload()})
	case "xdp":
		shared, err = xdp.Open(xdp.Config{Interface: c.Interface, Netns: c.Netns, Addrs: addrs, Queues: c.Queues,
			Attach: attachModes[c.Mode], Copy: copyModes[c.Copy]})
	case "udp":
		var p *udp.Port
		p, err = udp.Open(udp.Config{Netns: c.Netns, MAC: n.cfg.MAC.HardwareAddr(), Offload: superFrames(c),
			Warn: func(what string) { n.log.Warn("port", "warning", what) }}, st.Index, addrs)
		if err == nil {
			p.SetLink(st.Index, n.linkOf(&st))
			shared = p
		}
	default:
		err = fmt.Errorf("no port of type %q", c.Type)
	}
	if err != nil {
		return nil, err
	}
	n.shared.port = shared
	return shared, nil
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
	out := rocev2.Config{Name: c.Name, MAC: c.MAC.HardwareAddr(), MTU: c.MTU, Addrs: c.Prefixes, Gateways: c.NextHops,
		Offload: n.port.Offload()}
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
	st := n.shared.follower.State()
	i := n.interfaceOf(&st)
	out.Sockets, out.Translated, out.Group = n.routed(), n.translated, n.shared.port.Group
	out.Shared, out.MAC, out.MTU, out.Addrs, out.Routes = true, i.MAC, link.MTU, i.Addrs, i.Routes
	return out, nil
}

// netdev returns the name of the port's network device, or "" if it has none.
func (n *nic) netdev() string {
	if n.shared != nil {
		return n.shared.device
	}
	return n.cfg.Port.Device
}
