// Package config is the daemon's configuration: a YAML file, read strictly. A
// key that nobody knows and a value that makes no sense are both faults, and
// all faults of a file are reported at once, each with its path.
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
	Drain   time.Duration `mapstructure:"drain"`   // how long SIGTERM waits for clients
	Log     Log           `mapstructure:"log"`
	Control Access        `mapstructure:"control"` // who may use the admin socket
	Metrics Metrics       `mapstructure:"metrics"`
	Web     Web           `mapstructure:"web"`
	Limits  Limits        `mapstructure:"limits"`
	NICs    []NIC         `mapstructure:"nics"`
	// Privileges says whether the capabilities that opening links needs are given up
	// afterwards: auto, drop or keep.
	Privileges string `mapstructure:"privileges"`
}

// Values of Config.Privileges.
const (
	AutoPrivileges = "auto" // dropped, but for TAPs, which are made anew when they are deleted
	DropPrivileges = "drop"
	KeepPrivileges = "keep"
)

// Log says what is logged and how.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn, error
	Format string `mapstructure:"format"` // text, json
}

// Metrics opens a TCP listener for Prometheus beside the admin socket.
type Metrics struct {
	Listen string `mapstructure:"listen"` // host:port, empty for none
}

// Web opens a listener for the live page.
type Web struct {
	// Listen is host:port, or unix: and the path of a socket; empty for none.
	Listen string `mapstructure:"listen"`
	// Control lets those who have the token, or may use the administration socket, change something.
	Control bool `mapstructure:"control"`
	// Hosts are names by which browsers reach the page, beside localhost and addresses.
	Hosts []string `mapstructure:"hosts"`
}

// UnixPath is the path of the socket, if Listen is one.
func (w *Web) UnixPath() (path string, ok bool) { return strings.CutPrefix(w.Listen, "unix:") }

// Access is the mode of a socket and who may connect to it beyond root and the
// daemon's own user. With neither users nor groups the mode alone decides, except
// for the admin socket.
type Access struct {
	Mode   Mode     `mapstructure:"mode"`
	Users  []string `mapstructure:"users"`
	Groups []string `mapstructure:"groups"`

	// UIDs and GIDs are Users and Groups as numbers, filled in by Validate.
	UIDs []uint32 `mapstructure:"-"`
	GIDs []uint32 `mapstructure:"-"`
}

// Limits bound what one user may have of a NIC, over all of his connections; one connection
// has no more. Zero takes the default. Root and the daemon's own user are bounded by what there
// is, of which an eighth is kept for them, and each of their connections by these.
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
	// Descriptors that the daemon opens for one user; 0: half of what it can open.
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
	// MoreProfiles have a verbs device each, beside that of Profile.
	MoreProfiles []string             `mapstructure:"profiles"`
	Transports   map[string]Transport `mapstructure:"transports"` // by profile
	MaxUnacked   uint32               `mapstructure:"max_unacked"`
	Port         Port                 `mapstructure:"port"`
	Poll         Poll                 `mapstructure:"poll"`
	Faults       []string             `mapstructure:"faults"`
	Capture      Capture              `mapstructure:"capture"`
	Access       Access               `mapstructure:"access"`

	Congestion Congestion `mapstructure:"congestion"`
	Link       Link       `mapstructure:"link"`
	Share      Share      `mapstructure:"share"`

	// Prefixes and NextHops are Addresses and Gateways parsed by Validate.
	Prefixes []netip.Prefix `mapstructure:"-"`
	NextHops []netip.Addr   `mapstructure:"-"`
}

// VLAN says which addresses of a NIC are in a VLAN (IEEE 802.1Q).
type VLAN struct {
	ID        uint16   `mapstructure:"id"`
	Addresses []string `mapstructure:"addresses"` // CIDR

	Prefixes []netip.Prefix `mapstructure:"-"` // Addresses parsed by Validate
}

// Port is the link of a NIC.
type Port struct {
	Type string `mapstructure:"type"` // tap, unix, packet, udp or xdp

	// TAP: the namespace it is made in (a path, empty for the daemon's own), its
	// name, the bridge it joins and whether super-frames are used.
	Netns   string `mapstructure:"netns"`
	Device  string `mapstructure:"device"`
	Bridge  string `mapstructure:"bridge"`
	Offload *bool  `mapstructure:"offload"`

	// Packet, UDP and XDP: the interface that is shared with the kernel. Netns and, for packet and
	// UDP, Offload are as above, but that a UDP port without Offload sends super-frames only to NICs of its kind.
	// UDP: instead of the interface, the one address of the NIC.
	Interface string `mapstructure:"interface"`
	Address   string `mapstructure:"address"`

	// XDP: where the program runs, how frames get to the sockets, and how many receive
	// queues of the interface are served; 0 for all.
	Mode   string `mapstructure:"mode"`
	Copy   string `mapstructure:"copy"`
	Queues int    `mapstructure:"queues"`

	// Unix: the sockets of this end and of the other end.
	Local  string `mapstructure:"local"`
	Remote string `mapstructure:"remote"`
}

// Capture writes all frames of a NIC to a pcapng file from the start.
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
	// The delimiter is a byte that no key contains, so that keys stay whole.
	v := viper.NewWithOptions(viper.KeyDelimiter("\x1f"))
	v.SetConfigType("yaml")
	if err := v.ReadConfig(r); err != nil {
		return nil, err
	}
	c := &Config{Drain: 5 * time.Second}
	faults := decode(v.AllSettings(), c)
	c.setDefaults()
	if faults == nil { // a half-read file would only add consequences
		faults = c.Validate()
	}
	if faults != nil {
		return nil, faults
	}
	return c, nil
}

// decode fills c from the settings and names every unknown key and unfit value.
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

// flatten lists the leaves of a tree of joined errors.
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

// setDefaults fills in what was left out.
func (c *Config) setDefaults() {
	setDefault(&c.RunDir, rundir.OfUser())
	setDefault(&c.Log.Level, "info")
	setDefault(&c.Log.Format, "text")
	setDefault(&c.Privileges, AutoPrivileges)
	setDefault(&c.Control.Mode, Mode(0o666)) // its server asks who is there
	c.Limits.setDefaults()
	for i := range c.NICs {
		n := &c.NICs[i]
		n.Port.Type = strings.ToLower(n.Port.Type)
		if n.MAC == (MAC{}) && n.Port.ownMAC() {
			n.MAC = deriveMAC(c.RunDir, n.Name)
		}
		if !n.Port.Shared() { // else it is the interface's
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

// defaultMTU has room for path MTU 4096 with IPv6 and all headers.
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

// Shared reports whether the port is an interface that a kernel uses too.
func (p *Port) Shared() bool { return p.Type == "packet" || p.Type == "udp" || p.Type == "xdp" }

// ownMAC reports whether the NIC has an Ethernet address of its own.
func (p *Port) ownMAC() bool { return !p.Shared() || p.Type == "udp" }

// UseOffload reports whether a TAP or packet port may carry super-frames; it may unless
// the file says otherwise.
func (p *Port) UseOffload() bool { return p.Offload == nil || *p.Offload }

// HardwareAddr is the address as the NIC takes it.
func (m MAC) HardwareAddr() rocev2.MAC { return rocev2.MAC(m) }
