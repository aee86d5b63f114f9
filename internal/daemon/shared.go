package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// sharedPort is a port on an interface that the kernel uses too.
type sharedPort interface {
	port.Monitored
	// SetAddrs replaces the addresses whose frames the port receives.
	SetAddrs(addrs []netip.Addr) error
	// Group joins or leaves a multicast group.
	Group(gid inet.GID, in bool) error
	// Mode describes the receive and transmit paths of the port, and its problems.
	Mode() string
}

// shared makes a NIC follow the interface that it shares with the kernel, or those of its planes. It passes results of the
// followers to the shard. The interfaces of planes have the same addresses. One of them leads: addresses, routes and
// neighbours of the NIC are those that the kernel has there.
type shared struct {
	*nic
	port   sharedPort
	device string // name of the first interface at the start
	planes []*follower
	leader atomic.Int32

	changing sync.Mutex // guards the states of planes, and the order of changes
}

// follower follows the interface of one plane.
type follower struct {
	*host.Follower
	*shared
	state host.State
}

// run starts all followers.
func (s *shared) run() {
	for _, f := range s.planes {
		f.Run(f)
	}
}

// close ends all followers.
func (s *shared) close() {
	for _, f := range s.planes {
		f.Close()
	}
}

// ask passes a neighbour request of the NIC to the leading follower. It runs on the shard's thread.
func (s *shared) ask(q rocev2.Query) {
	s.planes[s.leader.Load()].Ask(host.Query{Dst: q.Dst.Addr(), Src: q.Src.Addr()})
}

// lead selects the interface that leads: the present one while it is up, else the first one that is up with addresses.
func (s *shared) lead() {
	able := func(f *follower) bool { return f.state.Up && len(f.state.Addrs) > 0 }
	if able(s.planes[s.leader.Load()]) {
		return
	}
	if i := slices.IndexFunc(s.planes, able); i >= 0 {
		s.leader.Store(int32(i))
	}
}

// leads reports whether the interface of f leads.
func (f *follower) leads() bool { return f.shared.planes[f.leader.Load()] == f }

// checkMAC checks that an interface has the Ethernet address of the first one.
func (s *shared) checkMAC(st *host.State) error {
	if first := &s.planes[0].state; st.MAC != first.MAC {
		return fmt.Errorf("interface %s has Ethernet address %v, but all planes of a NIC need the address of %s: ip link set %s address %v",
			st.Name, st.MAC, first.Name, st.Name, first.MAC)
	}
	return nil
}

// do runs f on the shard. It ignores errors: they mean that the shard, and so the NIC, has ended.
func (s *shared) do(f func(now mono.Time, core *rocev2.NIC)) {
	_ = s.shard.Do(context.Background(), f)
}

// Changed implements host.Handler.
func (f *follower) Changed(st host.State) {
	s := f.shared
	s.log.Info("interface has changed", "interface", st.Name, "exists", st.Index != 0, "up", st.Up,
		"mac", st.MAC, "mtu", st.MTU, "addresses", st.Addrs)
	s.changing.Lock()
	defer s.changing.Unlock()
	led := s.leader.Load()
	f.state = st
	s.lead()
	if err := s.checkMAC(&st); err != nil {
		s.log.Error("plane cannot be used", "err", err)
	}
	s.do(func(now mono.Time, core *rocev2.NIC) {
		if l, ok := s.port.(linked); ok {
			l.SetLink(st.Index, s.linkOf(&st))
		}
		s.port.Poll(now) // its state reaches the NIC through the shard
		if f.leads() || s.leader.Load() != led {
			s.adopt(core, &s.planes[s.leader.Load()].state)
		}
	})
	s.readdress()
}

// adopt makes port and NIC take over addresses and routes of an interface.
func (s *shared) adopt(core *rocev2.NIC, st *host.State) {
	if err := s.port.SetAddrs(addrsOf(st.Addrs)); err != nil {
		s.log.Error("addresses of the port", "err", err)
	}
	if err := core.SetInterface(s.interfaceOf(st)); err != nil {
		s.log.Error("interface cannot be used as it is", "interface", st.Name, "err", err)
	}
}

// Resolved implements host.Handler.
func (f *follower) Resolved(dst netip.Addr, mac inet.MAC) {
	s := f.shared
	if !f.leads() {
		return
	}
	if s.routed() { // the kernel resolves the neighbour
		mac = link.SocketMAC(dst)
	}
	s.do(func(now mono.Time, core *rocev2.NIC) { core.Resolved(now, inet.GIDOf(dst), mac) })
}

// Unreachable implements host.Handler.
func (f *follower) Unreachable(dst netip.Addr) {
	if !f.leads() {
		return
	}
	f.do(func(now mono.Time, core *rocev2.NIC) { core.Unreachable(now, inet.GIDOf(dst)) })
}

// Destinations implements host.Handler.
func (s *shared) Destinations() (out []host.Query) {
	s.do(func(_ mono.Time, core *rocev2.NIC) {
		for _, q := range core.Destinations() {
			out = append(out, host.Query{Dst: q.Dst.Addr(), Src: q.Src.Addr()})
		}
	})
	return out
}

// Failed implements host.Handler.
func (s *shared) Failed(err error) { s.log.Warn("cannot follow the interface", "err", err) }

// linked is a port that takes the state of its interface.
type linked interface {
	SetLink(index int, s link.State)
}

// routed reports whether the kernel routes the NIC's packets, as for a port on sockets.
func (n *nic) routed() bool { return n.cfg.Port.Type == "udp" }

// roomy returns the receive buffer size of a port on sockets, in bytes.
func (n *nic) roomy() (bytes int, ok bool) {
	if n.shared == nil {
		return 0, false
	}
	p, ok := n.shared.port.(interface{ Room() int })
	if !ok {
		return 0, false
	}
	return p.Room(), true
}

// windowFor returns the maximum number of packets in flight towards a peer. It assumes that the peer's receive buffer
// has our size. The kernel charges whole pages for a packet of the largest path MTU, which is half of a charge of two
// pages, and drops packets beyond the buffer.
func windowFor(room int) uint32 {
	const packet, least = 8 << 10, 32
	return uint32(max(room/packet, least))
}

// linkOf returns the link state of a NIC on sockets.
func (n *nic) linkOf(st *host.State) link.State {
	s := link.State{MTU: st.MTU}
	what := n.cfg.Port.Where()
	switch {
	case st.Index == 0:
		s = link.State{Err: fmt.Errorf("%s does not exist", what)}
	case !st.Up:
		s.Err = fmt.Errorf("%s: interface %s is down", what, st.Name)
	case st.MTU < link.MinMTU:
		s = link.State{Err: fmt.Errorf("interface %s: MTU %d, or that of a route, has no room for path MTU 256, which needs %d: ip link set %s mtu 1500", st.Name, st.MTU, link.MinMTU, st.Name)}
	}
	s.Up = s.Err == nil
	return s
}

// interfaceOf returns the interface settings of the NIC. A NIC on sockets has a synthetic Ethernet address, because
// one interface may carry several NICs and need not be Ethernet.
func (n *nic) interfaceOf(st *host.State) *rocev2.Interface {
	i := &rocev2.Interface{MAC: st.MAC, Addrs: st.Addrs, Routes: st.Routes}
	if n.routed() {
		i.MAC = n.cfg.MAC.HardwareAddr()
	}
	return i
}

func addrsOf(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
}

// translated logs a NAT that breaks ICRCs. It runs on the shard's thread.
func (n *nic) translated(t rocev2.Translation) {
	n.log.Warn("address translation (NAT) on the way, which RoCEv2 cannot pass: packets have the ICRC of other addresses",
		"src", t.Src, "dst", t.Dst, "sent_from", t.From, "or_sent_to", t.To)
}
