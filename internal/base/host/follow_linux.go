// Package host reads the state of the kernel that a NIC depends on: the interface that it shares, and the capabilities
// (capabilities(7)) of the process.
//
// A Follower follows an interface for the NIC that shares it: its Ethernet address, MTU, state and addresses, the routes
// over it, and the Ethernet addresses of next hops.
//
// The Follower receives rtnetlink(7) notifications. A notification only triggers a reload of a kernel table. When
// notifications are lost (ENOBUFS), the Follower reloads all tables.
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

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/netns"
)

// Config names an interface.
type Config struct {
	Interface string
	// Address, if valid, selects the interface that has it. The Follower ignores all other addresses.
	Address netip.Addr
	// Routed means that the kernel routes the packets of the NIC (port type udp). The interface need not be Ethernet,
	// routes may use any interface, and the Follower does not resolve next hops.
	Routed bool
	// Netns is the network namespace of the interface: a path, a name as in ip-netns(8), or empty for that of the
	// caller.
	Netns string
}

// State is the state of the interface.
type State struct {
	Index  int // 0 if it does not exist
	Name   string
	MAC    inet.MAC
	MTU    int // bytes of an IP packet; if Routed, of the interface or a route over it with a smaller one
	Up     bool
	Addrs  []netip.Prefix // usable, that is, not tentative; at most maxAddrs
	Routes []netip.Prefix // destinations of unicast routes over it
}

// equal reports whether two states are equal.
func (s *State) equal(o *State) bool {
	return s.Index == o.Index && s.Name == o.Name && s.MAC == o.MAC && s.MTU == o.MTU && s.Up == o.Up &&
		slices.Equal(s.Addrs, o.Addrs) && slices.Equal(s.Routes, o.Routes)
}

// Handler receives changes. One goroutine calls it.
type Handler interface {
	// Changed reports a new state.
	Changed(s State)
	// Resolved reports the Ethernet address for packets to dst.
	Resolved(dst netip.Addr, mac inet.MAC)
	// Unreachable reports that dst is currently unreachable.
	Unreachable(dst netip.Addr)
	// Destinations returns the queries whose results are in use.
	Destinations() []Query
	// Failed reports an error while reading the tables. The Follower retries.
	Failed(err error)
}

// Query asks for the Ethernet address for packets from Src to Dst.
type Query struct{ Dst, Src netip.Addr }

// Follower follows an interface.
type Follower struct {
	cfg    Config
	handle *netlink.Handle
	events *nl.NetlinkSocket
	prober int // socket that triggers neighbour discovery, see probe
	state  State
	// discovery means that the interface needs neighbour discovery.
	discovery bool
	table     neighbours
	queries   chan Query
	news      chan change
	ending    chan struct{}
	running   sync.WaitGroup
}

// groups are the notification groups to subscribe to.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_NEXTHOP,
}

// eventBuffer is the size of the socket buffer for a burst of notifications, in bytes.
const eventBuffer = 1 << 20

// queryBuffer is the maximum number of pending queries.
const queryBuffer = 1024

// ErrNoInterface means that the interface does not exist.
var ErrNoInterface = errors.New("no such interface in the network namespace of the NIC (ip link shows them; a port's key netns names another namespace)")

// ErrNoAddress means that no interface has the address.
var ErrNoAddress = errors.New("no interface of this network namespace has this address")

// Open prepares to follow an existing interface, and reads its state. It needs CAP_SYS_ADMIN to enter another namespace,
// and no other privilege.
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

// String describes the interface.
func (c *Config) String() string {
	if c.Address.IsValid() {
		return "address " + c.Address.String()
	}
	return "interface " + c.Interface
}

// open opens the sockets. The calling thread is in the interface's namespace.
func (f *Follower) open() (err error) {
	if f.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if f.prober, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket for neighbour discovery: %w", err)
	}
	if f.events, err = nl.Subscribe(unix.NETLINK_ROUTE, groups...); err != nil {
		return err
	}
	if f.events.SetReceiveBufferSize(eventBuffer, true) != nil {
		_ = f.events.SetReceiveBufferSize(eventBuffer, false) // cut to the system's limit
	}
	return nil
}

// State returns the state as of the last reload. Call it before Run only.
func (f *Follower) State() State { return f.state }

// Run follows the interface and reports to h until Close.
func (f *Follower) Run(h Handler) {
	f.running.Go(f.listen)
	f.running.Go(func() { f.follow(h) })
}

// Ask queues a query. It does not block: it drops the query if too many are pending.
func (f *Follower) Ask(q Query) {
	select {
	case f.queries <- q:
	default:
	}
}

// Close ends Run and closes the sockets.
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
