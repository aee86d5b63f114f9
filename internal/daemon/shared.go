package daemon

import (
	"context"
	"net/netip"

	"roced/internal/host"
	"roced/mono"
	"roced/rocev2"
	"roced/tap"
)

// sharedPort is a port on an interface that the kernel uses too.
type sharedPort interface {
	tap.Monitored
	// SetAddrs replaces the addresses for which frames are received.
	SetAddrs(addrs []netip.Addr) error
	// Mode says how frames get to the port and back, and what is not as it should be.
	Mode() string
}

// shared makes a NIC follow the interface that it shares with the kernel: it carries
// what the follower finds out to the shard.
type shared struct {
	*nic
	port     sharedPort
	follower *host.Follower
}

// ask passes a question of the NIC on. It is called on the shard's thread.
func (s *shared) ask(q rocev2.Query) {
	s.follower.Ask(host.Query{Dst: q.Dst.Addr(), Src: q.Src.Addr()})
}

// do runs f on the shard. There is nobody to tell if that has ended: the NIC has, too.
func (s *shared) do(f func(now mono.Time, core *rocev2.NIC)) {
	_ = s.shard.Do(context.Background(), f)
}

// Changed implements host.Handler.
func (s *shared) Changed(st host.State) {
	s.log.Info("interface has changed", "interface", s.cfg.Port.Interface, "exists", st.Index != 0, "up", st.Up,
		"mac", rocev2.MAC(st.MAC), "mtu", st.MTU, "addresses", st.Addrs)
	s.do(func(now mono.Time, core *rocev2.NIC) {
		s.port.Poll(now) // its state reaches the NIC by the shard
		if err := s.port.SetAddrs(addrsOf(st.Addrs)); err != nil {
			s.log.Error("addresses of the port", "err", err)
		}
		if err := core.SetInterface(interfaceOf(&st)); err != nil {
			s.log.Error("interface cannot be used as it is", "interface", s.cfg.Port.Interface, "err", err)
		}
	})
}

// Resolved implements host.Handler.
func (s *shared) Resolved(dst netip.Addr, mac host.Station) {
	s.do(func(now mono.Time, core *rocev2.NIC) { core.Resolved(now, rocev2.GIDOf(dst), rocev2.MAC(mac)) })
}

// Unreachable implements host.Handler.
func (s *shared) Unreachable(dst netip.Addr) {
	s.do(func(now mono.Time, core *rocev2.NIC) { core.Unreachable(now, rocev2.GIDOf(dst)) })
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

func interfaceOf(st *host.State) *rocev2.Interface {
	return &rocev2.Interface{MAC: rocev2.MAC(st.MAC), Addrs: st.Addrs, Routes: st.Routes}
}

func addrsOf(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
}
