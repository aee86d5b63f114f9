// Package host is what the kernel of this machine gives a NIC: an interface to share, and
// the capabilities (capabilities(7)) of this process.
//
// A Follower follows one interface of a kernel on behalf of a NIC that shares it:
// its Ethernet address, MTU, state and addresses, the routes that lead over it and
// the stations that packets go to.
//
// Changes are learnt from rtnetlink(7) notifications. These only say what to look at: the
// state itself is read from the kernel's tables, so that notifications may be lost
// (ENOBUFS) if everything is read anew then.
package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/netns"
)

// Config names an interface.
type Config struct {
	Interface string
	// Address, if it is valid, names the interface that has it, and all but it is ignored.
	Address netip.Addr
	// Routed says that the kernel routes what the NIC sends (port type udp): the interface need
	// not be Ethernet, any route will do, and no station is looked for.
	Routed bool
	// Netns is its network namespace, a path or a name as ip-netns(8) has them. Empty for
	// the caller's own.
	Netns string
}

// Station is the Ethernet address of a station.
type Station [6]byte

// State is what is known of the interface.
type State struct {
	Index  int // 0: it does not exist
	Name   string
	MAC    Station
	MTU    int // bytes of an IP packet
	Up     bool
	Addrs  []netip.Prefix // usable ones: not tentative, at most maxAddrs
	Routes []netip.Prefix // destinations to which unicast routes lead over it
}

// equal reports whether nothing differs.
func (s *State) equal(o *State) bool {
	return s.Index == o.Index && s.Name == o.Name && s.MAC == o.MAC && s.MTU == o.MTU && s.Up == o.Up &&
		slices.Equal(s.Addrs, o.Addrs) && slices.Equal(s.Routes, o.Routes)
}

// Handler is told of changes, by one goroutine.
type Handler interface {
	// Changed is called when the state differs from the one before.
	Changed(s State)
	// Resolved says to what station packets for dst go.
	Resolved(dst netip.Addr, mac Station)
	// Unreachable says that there is no way to dst, for now.
	Unreachable(dst netip.Addr)
	// Destinations returns the questions whose answers are in use.
	Destinations() []Query
	// Failed reports that the tables could not be read. It is tried again.
	Failed(err error)
}

// Query asks for the station to which packets from Src to Dst go.
type Query struct{ Dst, Src netip.Addr }

// Follower follows an interface.
type Follower struct {
	cfg    Config
	handle *netlink.Handle
	events *nl.NetlinkSocket
	prober int // socket that makes the kernel look for a neighbour, see probe
	state  State
	// stations says that packets over the interface go to stations that the kernel has to find.
	stations bool
	table    neighbours
	queries  chan Query
	news     chan change
	ending   chan struct{}
	running  sync.WaitGroup
}

// groups are the notifications that are subscribed to.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_NEXTHOP,
}

// eventBuffer is room for a burst of notifications, in bytes.
const eventBuffer = 1 << 20

// queryBuffer is how many questions may wait.
const queryBuffer = 1024

// ErrNoInterface says that the interface does not exist.
var ErrNoInterface = errors.New("no such interface in the network namespace of the NIC (ip link shows them; a port's key netns names another namespace)")

// ErrNoAddress says that no interface has the address.
var ErrNoAddress = errors.New("no interface of this network namespace has it")

// Open prepares to follow an interface, which must exist, and reads its state. It needs
// CAP_SYS_ADMIN to enter another namespace, and no privilege else.
func Open(c Config) (*Follower, error) {
	f := &Follower{cfg: c, prober: -1, queries: make(chan Query, queryBuffer), news: make(chan change, 1),
		ending: make(chan struct{})}
	err := netns.Do(c.Netns, f.open)
	if err == nil {
		err = f.load()
	}
	if err == nil && f.state.Index == 0 {
		if err = ErrNoInterface; c.Address.IsValid() {
			err = ErrNoAddress
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%v: %w", &c, err)
	}
	return f, nil
}

// String says what is followed.
func (c *Config) String() string {
	if c.Address.IsValid() {
		return "address " + c.Address.String()
	}
	return "interface " + c.Interface
}

// open makes the sockets, in the interface's namespace.
func (f *Follower) open() (err error) {
	if f.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if f.prober, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket to look for neighbours: %w", err)
	}
	if f.events, err = nl.Subscribe(unix.NETLINK_ROUTE, groups...); err != nil {
		return err
	}
	if f.events.SetReceiveBufferSize(eventBuffer, true) != nil {
		_ = f.events.SetReceiveBufferSize(eventBuffer, false) // cut to the system's limit
	}
	return nil
}

// State is what was read at the last look. It may be called before Run.
func (f *Follower) State() State { return f.state }

// Run follows the interface and tells h, until Close.
func (f *Follower) Run(h Handler) {
	f.running.Go(f.listen)
	f.running.Go(func() { f.follow(h) })
}

// Ask has a question answered. It does not wait: the question is forgotten when too many
// others wait.
func (f *Follower) Ask(q Query) {
	select {
	case f.queries <- q:
	default:
	}
}

// Close ends everything.
func (f *Follower) Close() {
	close(f.ending)
	if f.events != nil {
		f.events.Close()
	}
	f.running.Wait()
	if f.handle != nil {
		f.handle.Close()
	}
	if f.prober >= 0 {
		unix.Close(f.prober)
	}
}
