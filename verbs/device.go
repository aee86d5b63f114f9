package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/base/rundir"
)

// DefaultRunDir returns the default folder of a daemon's sockets:
// the folder that the environment variable ROCED_RUN_DIR names, or the one of
// this user's daemon.
func DefaultRunDir() string { return rundir.Default() }

// Device is a NIC that can be opened.
type Device struct {
	Path     string // path for Open: of the socket, or of the file of a kernel device
	Name     string
	Profiles []string // transport profiles; none for a kernel device
	Kernel   bool     // a device of rdma_rxe, in KernelDir
}

// Devices lists the NICs of a daemon by its run directory, which defaults to
// DefaultRunDir. It omits NICs that do not respond. For KernelDir it lists the devices
// of rdma_rxe.
func Devices(runDir string) ([]Device, error) {
	runDir = cmp.Or(runDir, DefaultRunDir())
	if err := rundir.Check(runDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(runDir, "uverbs*"))
	if err != nil {
		return nil, fail("get_device_list", runDir, err)
	}
	number := func(p string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(p), "uverbs"))
		if err != nil {
			return -1
		}
		return n
	}
	slices.SortFunc(paths, func(a, b string) int { return number(a) - number(b) })
	var out []Device
	for _, p := range paths {
		if number(p) < 0 {
			continue
		}
		if d, err := probe(p); err == nil {
			out = append(out, d)
		}
	}
	return out, nil
}

// isKernel reports whether a path is that of a kernel device.
func isKernel(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// probe returns the device behind a path.
func probe(path string) (Device, error) {
	if isKernel(path) {
		d, err := findKernelDevice(kernelSysfs, path)
		return Device{Path: path, Name: d.name, Kernel: true}, err
	}
	conn, err := uverbs.Dial(path)
	if err != nil {
		return Device{}, err
	}
	d := newDaemon(conn)
	c := &Context{dev: d, done: make(chan struct{})}
	d.ctx = c
	err = errors.Join(d.hello(), conn.Close())
	d.rings.close()
	return Device{Path: path, Name: c.name, Profiles: c.profiles}, err
}

// Option is an option of Open and OpenCM.
type Option func(*options)

type options struct{ runDir, profile string }

// WithRunDir sets the run directory of the daemon, or KernelDir for the devices of
// the kernel. The default is DefaultRunDir.
func WithRunDir(dir string) Option {
	return func(o *options) {
		if dir != "" {
			o.runDir = dir
		}
	}
}

// WithProfile sets the transport profile as Context.SetProfile does. The default is
// that of the device. OpenCM ignores it.
func WithProfile(name string) Option { return func(o *options) { o.profile = name } }

func apply(opts []Option) *options {
	o := &options{runDir: DefaultRunDir()}
	for _, f := range opts {
		f(o)
	}
	return o
}

// Open opens a device by its name, such as rxe_a. The empty name stands for the
// first device of the run directory. A name with a slash is a path: of the device's
// socket, or of its file in KernelDir. If there is no such device, the error is
// ErrNoDevice.
func Open(name string, opts ...Option) (*Context, error) {
	o := apply(opts)
	path := name
	if !strings.Contains(name, "/") {
		list, err := Devices(o.runDir)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(d Device) bool { return name == "" || d.Name == name })
		if i < 0 {
			return nil, fail("open_device", fmt.Sprintf("%q in %s", name, o.runDir), ErrNoDevice)
		}
		path = list[i].Path
	}
	b, err := openBackend(path)
	if err != nil {
		return nil, fail("open_device", path, err)
	}
	c, err := newContext(b)
	if err == nil && o.profile != "" {
		if err = c.SetProfile(o.profile); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, err
}

func openBackend(path string) (backend, error) {
	if isKernel(path) {
		return openKernel(path)
	}
	conn, err := uverbs.Dial(path)
	if err != nil {
		return nil, err
	}
	d := newDaemon(conn)
	d.local = uverbs.TurnOf(path)
	return d, nil
}

// DeviceAttr describes a device (ibv_device_attr).
type DeviceAttr struct {
	FirmwareVersion uint64
	NodeGUID        [8]byte
	MaxMRSize       uint64
	MaxQP           int
	MaxQPWR         int
	MaxSGE          int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMW           int
	MaxPD           int
	MaxAH           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	MaxQPRdAtomic   int // READs and atomics in flight of a queue pair as responder
	MaxQPInitRdAtom int // and as requester
	Ports           int
}

// QueryDevice describes the device.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	r, err := ask[uverbs.QueryDeviceResp](c, "query_device", uverbs.CmdQueryDevice, uverbs.QueryDevice{})
	return DeviceAttr{
		FirmwareVersion: r.FwVer, NodeGUID: r.NodeGUID, MaxMRSize: r.MaxMRSize,
		MaxQP: int(r.MaxQP), MaxQPWR: int(r.MaxQPWR), MaxSGE: int(r.MaxSGE), MaxCQ: int(r.MaxCQ), MaxCQE: int(r.MaxCQE),
		MaxMR: int(r.MaxMR), MaxMW: int(r.MaxMW), MaxPD: int(r.MaxPD), MaxAH: int(r.MaxAH),
		MaxSRQ: int(r.MaxSRQ), MaxSRQWR: int(r.MaxSRQWR), MaxSRQSGE: int(r.MaxSRQSGE),
		MaxQPRdAtomic: int(r.MaxQPRdAtom), MaxQPInitRdAtom: int(r.MaxQPInitRdAtom), Ports: int(r.PhysPortCnt),
	}, err
}

// PortState is the state of a port (ibv_port_state).
type PortState uint8

// Port states.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// String returns the state's name.
func (s PortState) String() string {
	switch s {
	case PortDown:
		return "DOWN"
	case uverbs.PortInit:
		return "INIT"
	case uverbs.PortArmed:
		return "ARMED"
	case PortActive:
		return "ACTIVE"
	}
	return "state " + strconv.Itoa(int(s))
}

// PortAttr describes a port (ibv_port_attr).
type PortAttr struct {
	State      PortState
	MaxMTU     MTU
	ActiveMTU  MTU
	GIDs       int // length of the GID table
	MaxMessage int // bytes
}

// QueryPort describes a port. Devices have one, number 1.
func (c *Context) QueryPort(port int) (PortAttr, error) {
	const verb = "query_port"
	if port < 0 || port > 255 {
		return PortAttr{}, fail(verb, "port "+strconv.Itoa(port), unix.EINVAL)
	}
	r, err := ask[uverbs.QueryPortResp](c, verb, uverbs.CmdQueryPort, uverbs.QueryPort{PortNum: uint8(port)})
	if err != nil {
		return PortAttr{}, explain(err, "port "+strconv.Itoa(port))
	}
	return PortAttr{State: PortState(r.State), MaxMTU: MTU(r.MaxMTU), ActiveMTU: MTU(r.ActiveMTU),
		GIDs: int(r.GIDTblLen), MaxMessage: int(r.MaxMsgSz)}, nil
}

// QueryGID returns an entry of a port's GID table. The table of a kernel device has
// empty entries, whose GID is zero.
func (c *Context) QueryGID(port, index int) (GID, error) { return c.dev.gid(port, index) }

// DefaultGID returns the default GID and its index: the first of an IPv4 address,
// else of an IPv6 address that is not link-local, else the first.
func (c *Context) DefaultGID() (index int, gid GID, err error) {
	p, err := c.QueryPort(1)
	if err != nil {
		return 0, GID{}, err
	}
	best := -1
	for i := range p.GIDs {
		g, err := c.QueryGID(1, i)
		if errors.Is(err, unix.EINVAL) {
			break // the end of the table
		}
		if err != nil {
			return 0, GID{}, err
		}
		a := g.Addr()
		if a.IsUnspecified() {
			continue
		}
		if a.Is4() {
			return i, g, nil
		}
		if best < 0 || gid.Addr().IsLinkLocalUnicast() && !a.IsLinkLocalUnicast() {
			best, gid = i, g
		}
	}
	if best < 0 {
		return 0, GID{}, fail("query_gid", "no GID", unix.ENODATA)
	}
	return best, gid, nil
}

// SetProfile sets the transport profile of queue pairs that are created later in this
// context. The empty name is the device's default.
func (c *Context) SetProfile(name string) error { return c.dev.setProfile(name) }

// Stat is one counter of the device.
type Stat struct {
	Name  string
	Value uint64
}

// Stats returns the counters of the device.
func (c *Context) Stats() ([]Stat, error) { return c.dev.stats() }
