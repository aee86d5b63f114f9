package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/base/strict"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/rocev2"
)

// maxNICs limits the NICs of one daemon; each NIC has its own OS thread.
const maxNICs = 32

// Limits of a link's MTU: the minimum for path MTU 256, and the maximum of a TAP device.
const (
	minMTU = 576
	maxMTU = 65521
)

// maxSockPath is the maximum length of a Unix socket path.
const maxSockPath = 107

var (
	nicName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	ifaceName = regexp.MustCompile(`^[^/\s:]{1,15}$`)
)

// faults collects the faults of a file.
type faults struct {
	doc    *strict.Document
	unread strict.Faults // keys that could not be decoded
	list   strict.Faults
}

// add adds a fault of a key, unless the key or a part of it could not be decoded.
func (f *faults) add(key, format string, args ...any) {
	for _, u := range f.unread {
		if within(u.Key, key) || within(key, u.Key) {
			return
		}
	}
	f.list = append(f.list, f.doc.Fault(key, format, args...))
}

// within reports whether a key is the same as, or a part of, another one.
func within(key, of string) bool { return key == of || of == "" || strings.HasPrefix(key, of+".") }

// all returns all faults in the order of the file.
func (f *faults) all() strict.Faults {
	all := slices.Concat(f.unread, f.list)
	slices.SortStableFunc(all, func(a, b *strict.Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// validate checks a configuration and resolves names.
func (c *Config) validate(f *faults) {
	if !filepath.IsAbs(c.RunDir) {
		f.add("run_dir", "%q is not an absolute path", c.RunDir)
	} else if err := rundir.CheckLength(c.RunDir); err != nil {
		f.add("run_dir", "%w", err)
	}
	if c.Drain < 0 || c.Drain > time.Hour {
		f.add("drain", "%v is not between 0 and 1h", c.Drain)
	}
	oneOf(f, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(f, "log.format", c.Log.Format, "text", "json")
	oneOf(f, "privileges", c.Privileges, AutoPrivileges, DropPrivileges, KeepPrivileges)
	c.Control.validate(f, "control")
	validateHosts(f, "metrics", c.Metrics.Hosts)
	if c.Metrics.Listen == "" && len(c.Metrics.Hosts) > 0 {
		f.add("metrics", "says nothing without listen")
	}
	if c.Metrics.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Metrics.Listen); err != nil {
			f.add("metrics.listen", "%w", err)
		}
	}
	c.Web.validate(f)
	c.Limits.validate(f)
	if len(c.NICs) == 0 || len(c.NICs) > maxNICs {
		f.add("nics", "%d NICs: must be from 1 to %d", len(c.NICs), maxNICs)
	}
	for i := range c.NICs {
		c.NICs[i].validate(f, fmt.Sprintf("nics.%d", i))
	}
	c.checkUnique(f)
	c.checkSwitches(f)
}

// checkSwitches reports NICs of a switch with different UDP ports: they exchange packets without UDP headers.
func (c *Config) checkSwitches(f *faults) {
	first := map[string]int{}
	for i := range c.NICs {
		n := &c.NICs[i]
		of, seen := first[n.Switch]
		switch {
		case n.Switch == "":
		case !seen:
			first[n.Switch] = i
		case cmp.Or(n.MRCUDPPort, bth.UDPPort) != cmp.Or(c.NICs[of].MRCUDPPort, bth.UDPPort):
			f.add(fmt.Sprintf("nics.%d.mrc_udp_port", i), "differs from that of nics.%d, of the same switch: set both to the same port", of)
		}
	}
}

// checkUnique reports settings that two NICs must not share.
func (c *Config) checkUnique(f *faults) {
	seen := map[string]int{}
	unique := func(i int, key, what string) {
		if first, dup := seen[what]; dup {
			f.add(fmt.Sprintf("nics.%d.%s", i, key), "is the same as that of nics.%d: set another", first)
			return
		}
		seen[what] = i
	}
	for i := range c.NICs {
		n := &c.NICs[i]
		unique(i, "name", "name "+n.Name)
		for k, p := range n.Port.Each() {
			at := "port"
			if n.Port.Planes != nil {
				at = fmt.Sprintf("port.planes.%d", k)
			}
			switch p.Type {
			case "packet", "xdp":
				unique(i, at+".interface", "interface "+p.Netns+"\x00"+p.Interface)
			case "udp":
				unique(i, at, p.Netns+"\x00"+p.Where())
			case "tap":
				unique(i, at+".device", "device "+p.Netns+"\x00"+p.Device)
			case "unix":
				unique(i, at+".local", "socket "+filepath.Clean(p.Local))
			}
		}
		if n.MAC != (MAC{}) {
			unique(i, "mac", "mac "+n.MAC.String())
		}
		// Duplicate addresses would make the target of an rdma_cm call ambiguous.
		for j, p := range n.Prefixes {
			unique(i, fmt.Sprintf("addresses.%d", j), "address "+p.Addr().String())
		}
		for k := range n.VLANs {
			for j, p := range n.VLANs[k].Prefixes {
				unique(i, fmt.Sprintf("vlans.%d.addresses.%d", k, j), "address "+p.Addr().String())
			}
		}
		if n.Capture.File != "" {
			unique(i, "capture.file", "file "+filepath.Clean(n.Capture.File))
		}
	}
}

func oneOf(f *faults, path, got string, allowed ...string) {
	for _, a := range allowed {
		if got == a {
			return
		}
	}
	f.add(path, "%v", suggest.OneOf(got, allowed))
}

func (w *Web) validate(f *faults) {
	path, socket := w.UnixPath()
	switch {
	case w.Listen == "":
		if w.Control || len(w.Hosts) > 0 {
			f.add("web", "has no effect without listen: set listen, or remove this key")
		}
	case socket:
		if !filepath.IsAbs(path) || len(path) > maxSockPath-len(".new") {
			f.add("web.listen", "%q is not an absolute path, or too long for a socket", path)
		}
	default:
		if _, _, err := net.SplitHostPort(w.Listen); err != nil {
			f.add("web.listen", "%w", err)
		}
	}
	validateHosts(f, "web", w.Hosts)
}

func validateHosts(f *faults, path string, hosts []string) {
	for i, h := range hosts {
		if !hostName.MatchString(h) {
			f.add(fmt.Sprintf("%s.hosts.%d", path, i), "%q is not a host name", h)
		}
	}
}

func (l *Limits) validate(f *faults) {
	for _, v := range []struct {
		key      string
		val, max int
	}{
		{"connections", l.Connections, 1 << 16},
		{"qps", l.QPs, 16384}, // number of bits in a doorbell
		{"cqs", l.CQs, 1 << 20},
		{"srqs", l.SRQs, 1 << 20},
		{"mrs", l.MRs, 1 << 20},
		{"mws", l.MWs, 1 << 20},
		{"pds", l.PDs, 1 << 20},
		{"ahs", l.AHs, 1 << 20},
		{"channels", l.Channels, 1 << 16},
	} {
		if v.val < 1 || v.val > v.max {
			f.add("limits."+v.key, "%d is not between 1 and %d", v.val, v.max)
		}
	}
}

func (n *NIC) validate(f *faults, path string) {
	if !nicName.MatchString(n.Name) {
		f.add(path+".name", "%q is not a device name (letters, digits, _ . -)", n.Name)
	}
	if n.Port.Shared() {
		n.validateShared(f, path)
	} else if n.MTU < minMTU || n.MTU > maxMTU {
		f.add(path+".mtu", "%d is not between %d and %d", n.MTU, minMTU, maxMTU)
	}
	n.Capture.validate(f, path+".capture")
	if n.MaxUnacked > 1<<22 {
		f.add(path+".max_unacked", "%d is more than %d", n.MaxUnacked, 1<<22)
	}
	oneOf(f, path+".write_segments", n.WriteSegments, StandardSegments, SingleSegments)
	switch {
	case n.WriteSegments != SingleSegments:
	case n.Switch != "":
		f.add(path+".write_segments", "single is for ports; packets of a switch have no super-frames: remove it, or the switch")
	case !slices.Contains(n.Profiles(), "rc"):
		f.add(path+".write_segments", "single is for the profile rc, which this NIC lacks: remove it, or add rc to profiles")
	}
	if n.Switch != "" && !nicName.MatchString(n.Switch) {
		f.add(path+".switch", "%q is not a name (letters, digits, _ . -)", n.Switch)
	}
	switch {
	case n.Shard == "":
	case n.Switch == "":
		f.add(path+".shard", "has no effect without switch: set switch, or remove this key")
	case !nicName.MatchString(n.Shard):
		f.add(path+".shard", "%q is not a name (letters, digits, _ . -)", n.Shard)
	}
	n.validateTransports(f, path)
	n.validateUDPPort(f, path+".mrc_udp_port")
	if !n.Port.Shared() {
		n.validateAddresses(f, path)
	}
	n.Port.validate(f, path+".port")
	n.Congestion.validate(f, path+".congestion")
	n.Link.validate(f, path+".link")
	n.Share.validate(f, path+".share")
	for i, rule := range n.Faults {
		if _, err := fault.Parse(rule); err != nil {
			f.add(fmt.Sprintf("%s.faults.%d", path, i), "%w", err)
		}
	}
	n.Access.validate(f, path+".access")
}

// validateUDPPort checks the UDP port, which all transports of a NIC use.
func (n *NIC) validateUDPPort(f *faults, key string) {
	if n.MRCUDPPort == 0 || n.MRCUDPPort == bth.UDPPort {
		return
	}
	if n.MRCUDPPort != bth.MRCUDPPort {
		f.add(key, "%d is neither %d nor %d", n.MRCUDPPort, bth.UDPPort, bth.MRCUDPPort)
		return
	}
	for _, p := range n.Profiles() {
		if p != mrc {
			f.add(key, "%d is for mrc, but the NIC also has the transport %s: set profile to mrc without profiles, or add a NIC for mrc", n.MRCUDPPort, p)
			return
		}
	}
}

// validateShared rejects settings that belong to the interface.
func (n *NIC) validateShared(f *faults, path string) {
	for _, v := range []struct {
		key string
		set bool
	}{{"mac", n.MAC != MAC{} && !n.Port.ownMAC()}, {"mtu", n.MTU != 0}, {"addresses", n.Addresses != nil}, {"gateways", n.Gateways != nil}, {"vlans", n.VLANs != nil}} {
		if v.set {
			f.add(path+"."+v.key, "cannot be set for a port of type %s: the interface's are used", n.Port.Type)
		}
	}
}

func (n *NIC) validateAddresses(f *faults, path string) {
	n.Prefixes, n.NextHops = prefixes(f, path, n.Addresses), nil
	n.validateVLANs(f, path)
	for i, s := range n.Gateways {
		a, err := netip.ParseAddr(s)
		if err != nil {
			f.add(fmt.Sprintf("%s.gateways.%d", path, i), "%w", err)
			continue
		}
		n.NextHops = append(n.NextHops, a)
		if !n.onLink(a) {
			f.add(fmt.Sprintf("%s.gateways.%d", path, i), "%s is in none of the NIC's prefixes", a)
		}
	}
}

// prefixes parses the addresses of a NIC.
func prefixes(f *faults, path string, addresses []string) (out []netip.Prefix) {
	for i, s := range addresses {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			f.add(fmt.Sprintf("%s.addresses.%d", path, i), "%w", err)
		case p.Addr().IsMulticast(), p.Addr().IsUnspecified(), p.Addr().Is4In6(), p.Addr().IsLoopback():
			f.add(fmt.Sprintf("%s.addresses.%d", path, i), "%s cannot be the address of a NIC", p.Addr())
		default:
			out = append(out, p)
		}
	}
	return out
}

func (n *NIC) validateVLANs(f *faults, path string) {
	for i := range n.VLANs {
		v := &n.VLANs[i]
		at := fmt.Sprintf("%s.vlans.%d", path, i)
		if v.ID < 1 || v.ID > rocev2.MaxVLAN {
			f.add(at+".id", "%d is not between 1 and %d", v.ID, rocev2.MaxVLAN)
		}
		if slices.ContainsFunc(n.VLANs[:i], func(o VLAN) bool { return o.ID == v.ID }) {
			f.add(at+".id", "%d is listed twice", v.ID)
		}
		if len(v.Addresses) == 0 {
			f.add(at+".addresses", "is empty: set at least one address, or remove the VLAN")
		}
		v.Prefixes = prefixes(f, at, v.Addresses)
	}
}

// onLink reports whether the NIC can reach a without a gateway.
func (n *NIC) onLink(a netip.Addr) bool {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return true
	}
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(n.Prefixes, within) ||
		slices.ContainsFunc(n.VLANs, func(v VLAN) bool { return slices.ContainsFunc(v.Prefixes, within) })
}

// validate looks up users and groups.
func (a *Access) validate(f *faults, path string) {
	a.UIDs, a.GIDs = nil, nil
	for i, name := range a.Users {
		id, err := lookUp(name, userID)
		if err != nil {
			f.add(fmt.Sprintf("%s.users.%d", path, i), "%w", err)
			continue
		}
		a.UIDs = append(a.UIDs, id)
	}
	for i, name := range a.Groups {
		id, err := lookUp(name, func(s string) (string, error) {
			g, err := user.LookupGroup(s)
			if err != nil {
				return "", err
			}
			return g.Gid, nil
		})
		if err != nil {
			f.add(fmt.Sprintf("%s.groups.%d", path, i), "%w", err)
			continue
		}
		a.GIDs = append(a.GIDs, id)
	}
}

// lookUp converts a number, or a name that find resolves, to an ID.
func lookUp(name string, find func(string) (string, error)) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	s, err := find(name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
