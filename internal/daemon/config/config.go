// Package config reads the daemon's configuration, a YAML file. Unknown keys and invalid values are errors. It
// reports all errors of a file at once, each with its path.
package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/rocev2"
)

// Config is the whole configuration of a daemon.
type Config struct {
	RunDir  string        `mapstructure:"run_dir"` // sockets and lock file
	Drain   time.Duration `mapstructure:"drain"`   // time that SIGTERM waits for clients
	Log     Log           `mapstructure:"log"`
	Control Access        `mapstructure:"control"` // users of the admin socket
	Metrics Metrics       `mapstructure:"metrics"`
	Web     Web           `mapstructure:"web"`
	Limits  Limits        `mapstructure:"limits"`
	NICs    []NIC         `mapstructure:"nics"`
	// Privileges selects whether the daemon drops the capabilities for opening links after it has opened them: auto,
	// drop or keep.
	Privileges string `mapstructure:"privileges"`
}

// Values of Config.Privileges.
const (
	AutoPrivileges = "auto" // drop, except with TAP devices, which the daemon recreates when they are deleted
	DropPrivileges = "drop"
	KeepPrivileges = "keep"
)

// Log sets the level and the format of the log.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn, error
	Format string `mapstructure:"format"` // text, json
}

// Metrics opens a TCP listener for Prometheus, in addition to the admin socket.
type Metrics struct {
	Listen string `mapstructure:"listen"` // host:port; empty: none
}

// Web opens a listener for the live page.
type Web struct {
	// Listen is host:port, or "unix:" and the path of a socket; empty: no page.
	Listen string `mapstructure:"listen"`
	// Control allows changes to clients that have the token or may use the admin socket.
	Control bool `mapstructure:"control"`
	// Hosts are names of the page's host in browsers, in addition to localhost and IP addresses.
	Hosts []string `mapstructure:"hosts"`
}

// UnixPath returns the path of the socket if Listen is a Unix socket.
func (w *Web) UnixPath() (path string, ok bool) { return strings.CutPrefix(w.Listen, "unix:") }

// Access is the mode of a socket, and the users and groups that may connect besides root and the daemon's own user.
// Without users and groups the mode alone decides, except for the admin socket.
type Access struct {
	Mode   Mode     `mapstructure:"mode"`
	Users  []string `mapstructure:"users"`
	Groups []string `mapstructure:"groups"`

	// UIDs and GIDs are the numeric IDs of Users and Groups. Validate sets them.
	UIDs []uint32 `mapstructure:"-"`
	GIDs []uint32 `mapstructure:"-"`
}

// Limits are the limits of one user on one NIC, over all connections of the user; 0 is the default. For root and the
// daemon's own user they limit each connection, and only the available resources limit the total. An eighth of the
// resources is reserved for these two.
type Limits struct {
	Connections int   `mapstructure:"connections"`
	QPs         int   `mapstructure:"qps"`
	CQs         int   `mapstructure:"cqs"`
	SRQs        int   `mapstructure:"srqs"`
	MRs         int   `mapstructure:"mrs"`
	MWs         int   `mapstructure:"mws"`
	PDs         int   `mapstructure:"pds"`
	AHs         int   `mapstructure:"ahs"`
	Channels    int   `mapstructure:"channels"`
	Memory      Bytes `mapstructure:"memory"` // mapped memory, rings included
	// Descriptors limits the file descriptors that the daemon opens for one user; 0: half of the daemon's limit.
	Descriptors int `mapstructure:"descriptors"`
}

// NIC is one NIC and its link.
type NIC struct {
	Name      string   `mapstructure:"name"`
	MAC       MAC      `mapstructure:"mac"`
	Addresses []string `mapstructure:"addresses"` // CIDR
	VLANs     []VLAN   `mapstructure:"vlans"`
	Gateways  []string `mapstructure:"gateways"`
	MTU       int      `mapstructure:"mtu"`
	Profile   string   `mapstructure:"profile"`
	// MoreProfiles are transport profiles besides Profile. Each gets its own verbs device.
	MoreProfiles []string             `mapstructure:"profiles"`
	Transports   map[string]Transport `mapstructure:"transports"` // key: profile
	MaxUnacked   uint32               `mapstructure:"max_unacked"`
	Port         Port                 `mapstructure:"port"`
	Poll         Poll                 `mapstructure:"poll"`
	Faults       []string             `mapstructure:"faults"`
	Capture      Capture              `mapstructure:"capture"`
	Access       Access               `mapstructure:"access"`

	Congestion Congestion `mapstructure:"congestion"`
	Link       Link       `mapstructure:"link"`
	Share      Share      `mapstructure:"share"`

	// Prefixes and NextHops are the parsed Addresses and Gateways. Validate sets them.
	Prefixes []netip.Prefix `mapstructure:"-"`
	NextHops []netip.Addr   `mapstructure:"-"`
}

// VLAN lists the addresses of a NIC in a VLAN (IEEE 802.1Q).
type VLAN struct {
	ID        uint16   `mapstructure:"id"`
	Addresses []string `mapstructure:"addresses"` // CIDR

	Prefixes []netip.Prefix `mapstructure:"-"` // parsed Addresses, set by Validate
}

// Port is the link of a NIC.
type Port struct {
	Type string `mapstructure:"type"` // tap, unix, packet, udp or xdp

	// TAP: the network namespace (a path; empty: the daemon's own), the device name, the bridge to join, and whether
	// super-frames are used.
	Netns   string `mapstructure:"netns"`
	Device  string `mapstructure:"device"`
	Bridge  string `mapstructure:"bridge"`
	Offload *bool  `mapstructure:"offload"`

	// Packet, UDP and XDP: the interface that the port shares with the kernel. Netns is as for TAP, and so is Offload
	// for packet and UDP ports. A UDP port without Offload sends super-frames only to other UDP ports. UDP: Address
	// is the only address of the NIC, and replaces Interface.
	Interface string `mapstructure:"interface"`
	Address   string `mapstructure:"address"`

	// XDP: the place of the XDP program, the transfer mode of frames, and the number of receive queues that the port
	// serves; 0: all.
	Mode   string `mapstructure:"mode"`
	Copy   string `mapstructure:"copy"`
	Queues int    `mapstructure:"queues"`

	// Unix: the socket paths of this end and the other end.
	Local  string `mapstructure:"local"`
	Remote string `mapstructure:"remote"`
}

// Capture writes all frames of a NIC to a pcapng file, from its start.
type Capture struct {
	File string `mapstructure:"file"`
}

// Load reads and validates a configuration file.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return c, nil
}

// Read reads and validates a configuration.
func Read(r io.Reader) (*Config, error) {
	// The delimiter is a byte that no key contains, so keys are not split.
	v := viper.NewWithOptions(viper.KeyDelimiter("\x1f"))
	v.SetConfigType("yaml")
	if err := v.ReadConfig(r); err != nil {
		return nil, err
	}
	c := &Config{Drain: 5 * time.Second}
	faults := decode(v.AllSettings(), c)
	c.setDefaults()
	if faults == nil { // errors in a file that was read only partly would be misleading
		faults = c.Validate()
	}
	if faults != nil {
		return nil, faults
	}
	return c, nil
}

// decode fills c from the settings. It reports every unknown key and every invalid value.
func decode(settings map[string]any, c *Config) error {
	var meta mapstructure.Metadata
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result:     c,
		Metadata:   &meta,
		DecodeHook: hook,
	})
	if err != nil {
		return err
	}
	err = d.Decode(settings)
	var faults []error
	for _, e := range flatten(err) {
		var de *mapstructure.DecodeError
		if errors.As(e, &de) {
			e = fmt.Errorf("%s: %w", de.Name(), de.Unwrap())
		}
		faults = append(faults, e)
	}
	for _, key := range meta.Unused {
		faults = append(faults, fmt.Errorf("%s: unknown key", key))
	}
	return errors.Join(faults...)
}

// flatten returns the leaves of a tree of joined errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if inner := errors.Unwrap(err); inner != nil {
			if _, named := err.(*mapstructure.DecodeError); !named {
				return flatten(inner)
			}
		}
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
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
		setDefault(&n.Poll, DefaultPoll)
		n.Congestion.setDefaults()
		setDefault(&n.Access.Mode, Mode(0o666))
		if n.Port.Type == "tap" && n.Port.Device == "" {
			n.Port.Device = n.Name
		}
	}
}

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

// HardwareAddr returns the address in the NIC's type.
func (m MAC) HardwareAddr() rocev2.MAC { return rocev2.MAC(m) }
