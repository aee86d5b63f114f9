package ucma

import (
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// The range of ephemeral ports (as in Linux), and the first unprivileged port.
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
	firstFree      = 1024
)

// portKey identifies a port of a port space.
type portKey struct {
	ps   rdmacm.PortSpace
	port uint16
}

func bodySize[T any]() int { return uverbs.Size[T]() }

// clash returns an error if another identifier that uses one of the same NICs prevents i from binding to src.
func (s *Server) clash(i *id, src endpoint) error {
	for _, o := range s.ports[portKey{i.ps, src.Port()}] {
		switch {
		case o == i, i.reuseAddr && o.reuseAddr, i.onlyFamily(src) && o.onlyFamily(o.src) && o.src.family != src.family:
		case !slices.ContainsFunc(i.ctx.nics, o.ctx.uses):
		case src.any() || o.src.any():
			return unix.EADDRNOTAVAIL
		case src.Addr() == o.src.Addr():
			return unix.EADDRINUSE
		}
	}
	return nil
}

// onlyFamily reports whether i, bound to src, covers only addresses of src's family.
func (i *id) onlyFamily(src endpoint) bool {
	if i.afOnly != nil {
		return *i.afOnly
	}
	return src.family == unix.AF_INET
}

// take binds i to src. If src has no port, it chooses a free one.
func (s *Server) take(i *id, src endpoint) error {
	switch {
	case src.Port() == 0:
		var ok bool
		if src, ok = s.ephemeral(i, src); !ok {
			return unix.EADDRNOTAVAIL
		}
	case src.Port() < firstFree && i.ctx.cred.Uid != 0:
		return unix.EACCES
	default:
		if err := s.clash(i, src); err != nil {
			return err
		}
	}
	i.src = src
	k := portKey{i.ps, src.Port()}
	s.ports[k] = append(s.ports[k], i)
	return nil
}

// ephemeral returns src with a free port. The search starts at a random port.
func (s *Server) ephemeral(i *id, src endpoint) (endpoint, bool) {
	const n = lastEphemeral - firstEphemeral + 1
	start := rand.IntN(n)
	for k := range n {
		e := src.withPort(uint16(firstEphemeral + (start+k)%n))
		if len(s.ports[portKey{i.ps, e.Port()}]) == 0 {
			return e, true
		}
	}
	return src, false
}

// release frees the port of i.
func (s *Server) release(i *id) {
	k := portKey{i.ps, i.src.Port()}
	left := slices.DeleteFunc(s.ports[k], func(o *id) bool { return o == i })
	if len(left) == 0 {
		delete(s.ports, k)
		return
	}
	s.ports[k] = left
}

func (c *device) bindIP(q *request, r *rdmacm.BindIP) error {
	return c.bindTo(r.ID, r.Addr[:])
}

func (c *device) bind(q *request, r *rdmacm.Bind) error {
	if int(r.AddrSize) > len(r.Addr) {
		return unix.EINVAL
	}
	return c.bindTo(r.ID, r.Addr[:r.AddrSize])
}

func (c *device) bindTo(num uint32, sockaddr []byte) error {
	src, err := parseSockaddr(sockaddr)
	if err != nil {
		return err
	}
	i, err := c.find(num)
	if err != nil {
		return err
	}
	return i.bind(src)
}

// bind binds i, which must be idle, to an address. An address that is not unspecified also selects the NIC.
func (i *id) bind(src endpoint) error {
	if i.state != stateIdle {
		return unix.EINVAL
	}
	if src.any() {
		if err := i.ctx.srv.take(i, src); err != nil {
			return err
		}
		i.state = stateBound
		return nil
	}
	n, sgid := i.ctx.owner(src)
	if n == nil {
		return unix.EADDRNOTAVAIL
	}
	if err := i.ctx.srv.take(i, src); err != nil {
		return err
	}
	i.nic, i.sgid, i.route.SGID, i.state = n, sgid.Index, sgid.GID, stateBound
	return nil
}

// owner returns the NIC that has an address, and its GID. A loopback address that no NIC has stands for the first
// address of the first NIC, which sends to itself.
func (c *device) owner(e endpoint) (*nic, rocev2.GIDEntry) {
	n, sgid := c.withGID(func(*rocev2.NIC) inet.GID { return inet.GIDOf(e.Addr()) })
	if n == nil && e.Addr().IsLoopback() {
		return c.withGID(func(core *rocev2.NIC) inet.GID { return firstOf(core, e.Addr().Is4()) })
	}
	return n, sgid
}

// withGID returns the first NIC that has the GID that choose returns for it.
func (c *device) withGID(choose func(*rocev2.NIC) inet.GID) (*nic, rocev2.GIDEntry) {
	for _, n := range c.nics {
		var sgid rocev2.GIDEntry
		err := n.do(func(_ mono.Time, core *rocev2.NIC) (err error) {
			sgid.GID = choose(core)
			sgid.Index, err = sgidIndex(core, sgid.GID)
			return err
		})
		if err == nil {
			return n, sgid
		}
	}
	return nil, rocev2.GIDEntry{}
}

// sgidIndex returns the index of a GID of the NIC.
func sgidIndex(core *rocev2.NIC, gid inet.GID) (uint8, error) {
	for _, g := range core.GIDs() {
		if g.GID == gid && gid != (inet.GID{}) {
			return g.Index, nil
		}
	}
	return 0, unix.EADDRNOTAVAIL
}
