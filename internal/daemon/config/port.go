package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	mrcpath "roced.io/roced/path"
)

// maxQueues limits the receive queues of an XDP port.
const maxQueues = 256

// portKeys lists the keys of each port type, without type.
var portKeys = map[string][]string{
	"tap":    {"netns", "device", "bridge", "offload", "planes"},
	"unix":   {"local", "remote", "planes"},
	"packet": {"netns", "interface", "offload", "planes"},
	"udp":    {"netns", "interface", "address", "offload", "check_source"},
	"xdp":    {"netns", "interface", "mode", "copy", "queues", "planes"},
}

func (p *Port) validate(f *faults, path string) {
	keys, known := portKeys[p.Type]
	if !known {
		oneOf(f, path+".type", p.Type, "tap", "unix", "packet", "udp", "xdp")
		return
	}
	for _, v := range []struct {
		key string
		set bool
	}{
		{"netns", p.Netns != ""}, {"device", p.Device != ""}, {"bridge", p.Bridge != ""}, {"offload", p.Offload != nil},
		{"interface", p.Interface != ""}, {"mode", p.Mode != ""}, {"copy", p.Copy != ""}, {"queues", p.Queues != 0},
		{"address", p.Address != ""}, {"local", p.Local != ""}, {"remote", p.Remote != ""}, {"planes", p.Planes != nil},
		{"check_source", p.CheckSource != nil},
	} {
		if v.set && !slices.Contains(keys, v.key) {
			f.add(path+"."+v.key, "does not apply to a port of type %s: remove it", p.Type)
		}
	}
	if p.Planes == nil || p.Type == "udp" {
		p.validateOne(f, path)
		return
	}
	p.validatePlanes(f, path)
}

// validatePlanes checks a port with planes, whose keys are those of single ports.
func (p *Port) validatePlanes(f *faults, path string) {
	if n := len(p.Planes); n < 2 || n > mrcpath.MaxPlanes {
		f.add(path+".planes", "%d planes: must be from 2 to %d", n, mrcpath.MaxPlanes)
	}
	for _, v := range []struct{ key, value string }{
		{"device", p.Device}, {"bridge", p.Bridge}, {"interface", p.Interface}, {"local", p.Local}, {"remote", p.Remote},
	} {
		if v.value != "" {
			f.add(path+"."+v.key, "must be set in each of the planes instead")
		}
	}
	for i, q := range p.Each() {
		q.validate(f, fmt.Sprintf("%s.planes.%d", path, i))
	}
}

// validateOne checks the keys of a single port.
func (p *Port) validateOne(f *faults, path string) {
	switch p.Type {
	case "tap":
		iface(f, path+".device", p.Device)
		if p.Bridge != "" {
			iface(f, path+".bridge", p.Bridge)
		}
	case "unix":
		p.validateUnix(f, path)
	case "packet":
		iface(f, path+".interface", p.Interface)
	case "udp":
		p.validateUDP(f, path)
	case "xdp":
		p.validateXDP(f, path)
	}
}

func iface(f *faults, path, name string) {
	if !ifaceName.MatchString(name) {
		f.add(path, "%q is not an interface name", name)
	}
}

// resolve places the sockets with relative paths in the run directory.
func (p *Port) resolve(runDir string) {
	paths := []*string{&p.Local, &p.Remote}
	for i := range p.Planes {
		paths = append(paths, &p.Planes[i].Local, &p.Planes[i].Remote)
	}
	for _, s := range paths {
		if *s != "" && !filepath.IsAbs(*s) {
			*s = filepath.Join(runDir, *s)
		}
	}
}

func (p *Port) validateUnix(f *faults, path string) {
	for _, v := range []struct{ key, sock string }{{"local", p.Local}, {"remote", p.Remote}} {
		if !filepath.IsAbs(v.sock) || len(v.sock) > maxSockPath {
			f.add(path+"."+v.key, "%q is not an absolute path of at most %d bytes", v.sock, maxSockPath)
		}
	}
	if p.Local != "" && p.Local == p.Remote {
		f.add(path+".remote", "must differ from local")
	}
}

func (p *Port) validateUDP(f *faults, path string) {
	if (p.Interface == "") == (p.Address == "") {
		f.add(path, "a port of type udp needs either interface or address")
		return
	}
	if p.Interface != "" {
		iface(f, path+".interface", p.Interface)
		return
	}
	a, err := netip.ParseAddr(p.Address)
	switch {
	case err != nil:
		f.add(path+".address", "%w", err)
	case a.Zone() != "" || a.IsLinkLocalUnicast() && a.Is6():
		f.add(path+".address", "%s is valid on one interface only: set interface instead", a)
	case a.Is4In6(), a.IsMulticast(), a.IsUnspecified():
		f.add(path+".address", "%s cannot be the address of a NIC", a)
	}
}

// Where returns the interface or address of the port, for messages.
func (p *Port) Where() string {
	if p.Address != "" {
		return "address " + p.Address
	}
	return "interface " + p.Interface
}

func (p *Port) validateXDP(f *faults, path string) {
	iface(f, path+".interface", p.Interface)
	oneOf(f, path+".mode", p.Mode, "auto", "native", "generic")
	oneOf(f, path+".copy", p.Copy, "auto", "copy", "zerocopy")
	if p.Queues < 0 || p.Queues > maxQueues {
		f.add(path+".queues", "%d is not between 0 (all) and %d", p.Queues, maxQueues)
	}
}
