// Package config reads the daemon's configuration, a YAML file. Unknown keys and invalid values are errors. It
// reports all errors of a file at once, each with its line, column and key.
package config

import (
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/base/strict"
)

// Config is the whole configuration of a daemon.
type Config struct {
	RunDir  string        `yaml:"run_dir"` // sockets and lock file
	Drain   time.Duration `yaml:"drain"`   // time that SIGTERM waits for clients
	Log     Log           `yaml:"log"`
	Control Access        `yaml:"control"` // users of the admin socket
	Metrics Metrics       `yaml:"metrics"`
	Web     Web           `yaml:"web"`
	Limits  Limits        `yaml:"limits"`
	NICs    []NIC         `yaml:"nics"`
	// Privileges selects whether the daemon drops the capabilities for opening links after it has opened them: auto,
	// drop or keep.
	Privileges string `yaml:"privileges"`

	doc   *strict.Document
	from  *Sources // nil: not read from a file
	file  string
	owner uint32 // of the file
}

// File returns the name of the file.
func (c *Config) File() string { return c.file }

// Values of Config.Privileges.
const (
	AutoPrivileges = "auto" // drop, except with TAP devices, which the daemon recreates when they are deleted
	DropPrivileges = "drop"
	KeepPrivileges = "keep"
)

// Log sets the level and the format of the log.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text, json
}

// Metrics opens a TCP listener for Prometheus, in addition to the admin socket.
type Metrics struct {
	Listen string `yaml:"listen"` // host:port; empty: none
	// Hosts are names of this host in requests, in addition to localhost, IP addresses and the host's own name.
	Hosts []string `yaml:"hosts"`
}

// Web opens a listener for the live page.
type Web struct {
	// Listen is host:port, or "unix:" and the path of a socket; empty: no page.
	Listen string `yaml:"listen"`
	// Control allows changes to clients that have the token or may use the admin socket.
	Control bool `yaml:"control"`
	// Hosts are names of the page's host in browsers, in addition to localhost and IP addresses.
	Hosts []string `yaml:"hosts"`
}

// UnixPath returns the path of the socket if Listen is a Unix socket.
func (w *Web) UnixPath() (path string, ok bool) { return strings.CutPrefix(w.Listen, "unix:") }

// Access is the mode of a socket, and the users and groups that may connect besides root and the daemon's own user.
// Without users and groups the mode alone decides, except for the admin socket.
type Access struct {
	Mode   Mode     `yaml:"mode"`
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`

	// UIDs and GIDs are the numeric IDs of Users and Groups. Validate sets them.
	UIDs []uint32 `yaml:"-"`
	GIDs []uint32 `yaml:"-"`
}

// Limits are the limits of one user on one NIC, over all connections of the user; 0 is the default. For root and the
// daemon's own user they limit each connection, and only the available resources limit the total. An eighth of the
// resources is reserved for these two.
type Limits struct {
	Connections int   `yaml:"connections"`
	QPs         int   `yaml:"qps"`
	CQs         int   `yaml:"cqs"`
	SRQs        int   `yaml:"srqs"`
	MRs         int   `yaml:"mrs"`
	MWs         int   `yaml:"mws"`
	PDs         int   `yaml:"pds"`
	AHs         int   `yaml:"ahs"`
	Channels    int   `yaml:"channels"`
	Memory      Bytes `yaml:"memory"` // mapped memory, rings included
	// Descriptors limits the file descriptors that the daemon opens for one user; 0: half of the daemon's limit.
	Descriptors int `yaml:"descriptors"`
}

// NIC is one NIC and its link.
type NIC struct {
	Name      string   `yaml:"name"`
	MAC       MAC      `yaml:"mac"`
	Addresses []string `yaml:"addresses"` // CIDR
	VLANs     []VLAN   `yaml:"vlans"`
	Gateways  []string `yaml:"gateways"`
	MTU       int      `yaml:"mtu"`
	MLX5GIDs  bool     `yaml:"mlx5_gids"`
	// MRCUDPPort is the UDP destination port of the NIC: 4791, or 4971 for a NIC that has no other profile than mrc.
	MRCUDPPort uint16 `yaml:"mrc_udp_port"`
	Profile    string `yaml:"profile"`
	// MoreProfiles are transport profiles besides Profile. Each gets its own verbs device.
	MoreProfiles []string             `yaml:"profiles"`
	Transports   map[string]Transport `yaml:"transports"` // key: profile
	MaxUnacked   uint32               `yaml:"max_unacked"`
	// WriteSegments is how a WRITE of RC becomes packets: as one request (standard), or as a request for each packet (single).
	WriteSegments string `yaml:"write_segments"`
	// Switch names a switch of the daemon, whose NICs exchange packets in memory; empty: none.
	// Shard names a thread of the switch.
	Switch  string   `yaml:"switch"`
	Shard   string   `yaml:"shard"`
	Port    Port     `yaml:"port"`
	Poll    Poll     `yaml:"poll"`
	Faults  []string `yaml:"faults"`
	Capture Capture  `yaml:"capture"`
	Access  Access   `yaml:"access"`

	Congestion Congestion `yaml:"congestion"`
	Link       Link       `yaml:"link"`
	Share      Share      `yaml:"share"`

	// Prefixes and NextHops are the parsed Addresses and Gateways. Validate sets them.
	Prefixes []netip.Prefix `yaml:"-"`
	NextHops []netip.Addr   `yaml:"-"`
}

// Values of WriteSegments.
const (
	StandardSegments = "standard"
	SingleSegments   = "single" // packets of one length
)

// VLAN lists the addresses of a NIC in a VLAN (IEEE 802.1Q).
type VLAN struct {
	ID        uint16   `yaml:"id"`
	Addresses []string `yaml:"addresses"` // CIDR

	Prefixes []netip.Prefix `yaml:"-"` // parsed Addresses, set by Validate
}

// Port is the link of a NIC.
type Port struct {
	Type string `yaml:"type"` // tap, unix, packet, udp or xdp

	// TAP: the network namespace (a path; empty: the daemon's own), the device name, the bridge to join, and whether
	// super-frames are used.
	Netns   string `yaml:"netns"`
	Device  string `yaml:"device"`
	Bridge  string `yaml:"bridge"`
	Offload *bool  `yaml:"offload"`

	// Packet, UDP and XDP: the interface that the port shares with the kernel. Netns is as for TAP, and so is Offload
	// for packet and UDP ports. A UDP port without Offload sends super-frames only to other UDP ports. UDP: Address
	// is the only address of the NIC, and replaces Interface.
	Interface string `yaml:"interface"`
	Address   string `yaml:"address"`

	// UDP: whether the NIC checks the UDP source ports of connected peers on this host. No value means that it does.
	CheckSource *bool `yaml:"check_source"`

	// XDP: the place of the XDP program, the transfer mode of frames, and the number of receive queues that the port
	// serves; 0: all.
	Mode   string `yaml:"mode"`
	Copy   string `yaml:"copy"`
	Queues int    `yaml:"queues"`

	// Unix: the socket paths of this end and the other end.
	Local  string `yaml:"local"`
	Remote string `yaml:"remote"`

	// Planes are the devices, interfaces or sockets of a NIC with several ports, each in a plane of its own network.
	Planes []Plane `yaml:"planes"`
}

// Plane has the keys of a port that differ between the planes of a NIC.
type Plane struct {
	Device    string `yaml:"device"`
	Bridge    string `yaml:"bridge"`
	Interface string `yaml:"interface"`
	Local     string `yaml:"local"`
	Remote    string `yaml:"remote"`
}

// SocketMode returns the mode of the sockets that the users of any NIC may use.
func (c *Config) SocketMode() (mode fs.FileMode) {
	for i := range c.NICs {
		mode |= fs.FileMode(c.NICs[i].Access.Mode)
	}
	return mode
}

// Each returns the port of each plane, in their order. A port without planes is the only one.
func (p *Port) Each() []Port {
	if len(p.Planes) == 0 {
		return []Port{*p}
	}
	all := make([]Port, len(p.Planes))
	for i, l := range p.Planes {
		all[i] = *p
		q := &all[i]
		q.Planes, q.Device, q.Bridge, q.Interface, q.Local, q.Remote = nil, l.Device, l.Bridge, l.Interface, l.Local, l.Remote
	}
	return all
}

// Ports returns the number of planes, 0 without planes.
func (p *Port) Ports() int { return len(p.Planes) }

// Capture writes all frames of a NIC to a pcapng file, from its start.
type Capture struct {
	File    string `yaml:"file"`
	Keep    Bytes  `yaml:"keep"`    // bound of the file and the older one; 0: none
	SnapLen int    `yaml:"snaplen"` // bytes of each frame; 0: all
}

// Load reads and validates a configuration file. The environment applies.
func Load(path string) (*Config, error) { return (&Sources{File: path}).Load() }

// Read reads and validates a configuration. The environment does not apply.
func Read(r io.Reader) (*Config, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return ReadIn("", text)
}

// ReadIn is Read with a default for run_dir, unless it is empty.
func ReadIn(runDir string, text []byte) (*Config, error) {
	doc, err := strict.Parse("configuration", text)
	if err == nil && runDir != "" && doc.Origin("run_dir") == "" {
		err = doc.Override("run_dir", runDir, "program")
	}
	if err != nil {
		return nil, err
	}
	return decode(doc)
}

// decode decodes and validates a document.
func decode(doc *strict.Document) (*Config, error) {
	c := &Config{Drain: defaultDrain, doc: doc}
	f := faults{doc: doc, unread: doc.Decode(c)}
	c.setDefaults()
	c.validate(&f)
	if all := f.all(); all != nil {
		return nil, all
	}
	return c, nil
}

// setDefaults sets missing values to their defaults.
func (c *Config) setDefaults() {
	setDefault(&c.RunDir, rundir.OfUser())
	setDefault(&c.Log.Level, "info")
	setDefault(&c.Log.Format, "text")
	setDefault(&c.Privileges, AutoPrivileges)
	setDefault(&c.Control.Mode, Mode(0o666)) // the server checks the peer's credentials
	c.Limits.setDefaults()
	for i := range c.NICs {
		n := &c.NICs[i]
		n.Port.Type = strings.ToLower(n.Port.Type)
		if n.MAC == (MAC{}) && n.Port.ownMAC() {
			n.MAC = deriveMAC(c.RunDir, n.Name)
		}
		if !n.Port.Shared() { // the MTU of a shared port is the interface's
			setDefault(&n.MTU, defaultMTU)
		}
		if n.Port.Type == "xdp" {
			setDefault(&n.Port.Mode, "auto")
			setDefault(&n.Port.Copy, "auto")
		}
		n.Port.resolve(c.RunDir)
		setDefault(&n.WriteSegments, StandardSegments)
		setDefault(&n.Poll, DefaultPoll)
		n.Congestion.setDefaults()
		setDefault(&n.Access.Mode, Mode(0o666))
		if n.Port.Type == "tap" && n.Port.Device == "" && n.Port.Planes == nil {
			n.Port.Device = n.Name
		}
	}
}

// defaultDrain is the default of Config.Drain, for which 0 is a value.
const defaultDrain = 5 * time.Second

// defaultMTU fits path MTU 4096 with IPv6 and all headers.
const defaultMTU = 4200

func (l *Limits) setDefaults() {
	setDefault(&l.Connections, 256)
	setDefault(&l.QPs, 4096)
	setDefault(&l.CQs, 4096)
	setDefault(&l.SRQs, 1024)
	setDefault(&l.MRs, 16384)
	setDefault(&l.MWs, 16384)
	setDefault(&l.PDs, 1024)
	setDefault(&l.AHs, 16384)
	setDefault(&l.Channels, 1024)
	setDefault(&l.Memory, Bytes(16<<30))
}

func setDefault[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}

// Shared reports whether the port uses an interface of the kernel.
func (p *Port) Shared() bool { return p.Type == "packet" || p.Type == "udp" || p.Type == "xdp" }

// ownMAC reports whether the NIC has its own Ethernet address.
func (p *Port) ownMAC() bool { return !p.Shared() || p.Type == "udp" }

// UseOffload reports whether a TAP or packet port may carry super-frames: true, unless the file disables it.
func (p *Port) UseOffload() bool { return p.Offload == nil || *p.Offload }

// ChecksSource reports whether a UDP port checks the source ports of peers on this host.
func (p *Port) ChecksSource() bool { return p.CheckSource == nil || *p.CheckSource }

// HardwareAddr returns the address in the NIC's type.
func (m MAC) HardwareAddr() inet.MAC { return inet.MAC(m) }
