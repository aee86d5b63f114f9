// Package packet is a link on an Ethernet interface that the kernel also uses, through an AF_PACKET socket (packet(7)).
//
// No promise: this package may change between releases.
package packet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
)

// Buffers of the socket in bytes: room for several hundred received super-frames, and for the frames in the transmit
// queue of the interface.
const (
	receiveBuffer = 32 << 20
	sendBuffer    = 4 << 20
)

// loopbackIndex is the index of the loopback interface, the first interface of each namespace.
const loopbackIndex = 1

// Config describes a packet port.
type Config struct {
	// Interface is the Ethernet interface that the port shares with the kernel.
	Interface string
	// Netns is the network namespace of the interface: a path, a name as in ip-netns(8), or empty for that of the
	// caller.
	Netns string
	// Addrs are the addresses whose frames the port receives. See SetAddrs.
	Addrs []netip.Addr
	// Offload asks for super-frames.
	Offload bool
	// UDPPort is the UDP port of the frames; 0 means bth.UDPPort.
	UDPPort uint16
	// All makes the port receive every frame of the interface with its VLAN tag, for any Ethernet address: for a NIC with
	// addresses of its own, which answers ARP itself. Addrs, UDPPort and groups have no effect then.
	All bool
}

// Port is a port on an interface that the kernel also uses. It receives RoCEv2 frames to the configured addresses. The
// kernel receives them as well; a UDP socket that is bound to the RoCEv2 port and drops everything prevents "port
// unreachable" replies. While the interface is down or does not exist, Send and Recv return port.ErrDown and FD is -1.
// The port finds a new interface by its name.
//
// Only Open needs privileges, not the operation on a new interface.
type Port struct {
	port.Base
	cfg    Config
	thread *netns.Thread // in the interface's namespace
	sock   int           // AF_PACKET
	guard  int           // UDP, -1 if none
	groups *port.Groups  // nil until the port is open
	index  int           // of the interface that the sockets are bound to, 0 if none

	offload link.Offload // known limits of the kernel
	note    string       // warning for Mode
	queue   vnet.Queue
	tagged  tagQueue
}

// Open opens a port on an existing interface. It needs CAP_NET_RAW in the namespace, and CAP_SYS_ADMIN to enter
// another one.
func Open(c Config) (*Port, error) {
	c.UDPPort = cmp.Or(c.UDPPort, bth.UDPPort)
	p := &Port{cfg: c, sock: -1, guard: -1}
	err := p.open()
	if err == nil {
		if p.check(0); p.index == 0 {
			err = p.State().Err
		}
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("packet: %w", err)
	}
	return p, nil
}

// open opens the packet socket.
func (p *Port) open() (err error) {
	if p.thread, err = netns.Enter(p.cfg.Netns); err != nil {
		return err
	}
	p.groups = port.NewGroups(p.thread)
	// A socket with protocol 0 receives nothing before it is bound to an interface.
	p.thread.Do(func() {
		p.sock, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("packet socket: needs CAP_NET_RAW in the namespace: %w", err)
	}
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	// The filter refuses outgoing frames as well, but only after the kernel has cloned them.
	for name, option := range map[string]int{"PACKET_VNET_HDR": unix.PACKET_VNET_HDR, "PACKET_IGNORE_OUTGOING": unix.PACKET_IGNORE_OUTGOING,
		"PACKET_AUXDATA": unix.PACKET_AUXDATA} {
		if err := unix.SetsockoptInt(p.sock, unix.SOL_PACKET, option, 1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	port.SetBuffers(p.sock, receiveBuffer, sendBuffer)
	if p.cfg.Offload {
		p.offload = vnet.Probe(p.sendLoopback)
	}
	return p.SetAddrs(p.cfg.Addrs)
}

// SetAddrs replaces the addresses whose frames the port receives. Addresses and groups together may be at most 256.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	p.cfg.Addrs = addrs
	return p.setFilter()
}

// Group joins or leaves a multicast group. The port receives the frames to its groups.
func (p *Port) Group(gid inet.GID, in bool) error {
	return p.groups.Update(gid.Addr(), in, p.setFilter)
}

func (p *Port) setFilter() error {
	if p.cfg.All {
		return nil
	}
	f := filter(p.groups.Behind(p.cfg.Addrs), p.cfg.UDPPort)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.SetsockoptSockFprog(p.sock, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("packet: socket filter: %w", err)
	}
	return nil
}

// sendLoopback sends a frame to the namespace's loopback interface.
func (p *Port) sendLoopback(b []byte) error {
	return unix.Sendto(p.sock, b, 0, &unix.SockaddrLinklayer{Ifindex: loopbackIndex})
}

// Send implements port.Port. It sends the segments of a super-frame as single frames if the kernel refuses the
// super-frame.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	if p.FD() < 0 {
		return port.ErrDown
	}
	e := unix.EINVAL
	if f.Begun == 0 {
		e = p.queue.Send(p.FD(), f)
	}
	if e == unix.EINVAL && f.SegSize != 0 {
		if e = p.sendSegments(f); e == unix.ENOBUFS || e == unix.ENOMEM {
			p.Counters.Again++
			return port.ErrRefusedPart
		}
	}
	if e == 0 {
		return nil
	}
	return p.SendFailed("packet", e, func() { p.Poll(now) })
}

// sendSegments sends a super-frame that the kernel has refused as single frames, from f.Begun on. If the kernel accepts the
// first one, the super-frame was too large, and Offload promises less from now on. Without room for a later frame, f.Begun
// tells how many have been sent. After another error, the rest is lost.
func (p *Port) sendSegments(f *link.Frame) unix.Errno {
	whole := f.AppendTo(nil)
	count := link.Segments(whole, f.SegSize)
	one := link.Frame{Bufs: make([][]byte, 1)}
	for i := f.Begun; i < count; i++ {
		one.Bufs[0] = link.Segment(one.Bufs[0][:0], whole, f.SegSize, i)
		one.Len = len(one.Bufs[0])
		e := p.queue.Send(p.FD(), &one)
		if f.Begun = i; e == unix.ENOBUFS || e == unix.ENOMEM || e != 0 && i == 0 {
			return e
		}
		if e != 0 {
			p.Counters.SendDropped += uint64(count - i)
			break
		}
	}
	f.Begun = 0
	p.offload = vnet.Reduce(p.offload, count)
	return 0
}

// Recv implements port.Port.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if now >= p.Next {
		p.Poll(now)
	}
	if p.cfg.All {
		return p.recvTagged(now, buf)
	}
	return p.queue.Recv(&p.Base, "packet", buf, func() { p.Poll(now) })
}

// Poll implements port.Monitored.
func (p *Port) Poll(now mono.Time) {
	if p.sock >= 0 {
		p.check(now)
	}
}

// check reads the state of the interface and binds the sockets to a new one.
func (p *Port) check(now mono.Time) {
	p.countOverruns()
	index, s := port.QueryInterface(p.sock, p.cfg.Interface)
	if p.index != 0 && index != p.index {
		p.index = 0
		_ = p.groups.Move(0)
		p.Counters.Lost++
	}
	if index != 0 && p.index == 0 {
		if err := p.bind(index); err != nil {
			s = link.State{Err: err}
		} else if p.Counters.Reopened < p.Counters.Lost {
			p.Counters.Reopened++
		}
	}
	p.Checked(now, s, p.sock)
}

// bind binds the sockets to the interface with this index.
func (p *Port) bind(index int) error {
	all := uint16(unix.ETH_P_ALL)
	addr := unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index}
	if err := unix.Bind(p.sock, &addr); err != nil {
		return fmt.Errorf("interface %s: bind: %w", p.cfg.Interface, err)
	}
	p.index, p.note = index, ""
	if p.cfg.All {
		return p.listenAll(index)
	}
	port.CloseSocket(&p.guard)
	var err error
	p.thread.Do(func() { p.guard, err = openGuard(index, p.cfg.UDPPort) })
	if err = errors.Join(err, p.groups.Move(index)); err != nil {
		p.note = err.Error()
	}
	return nil
}

// countOverruns adds the frames that the kernel has dropped for lack of room. Reading resets the kernel's counter.
func (p *Port) countOverruns() {
	if st, err := unix.GetsockoptTpacketStats(p.sock, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.Counters.Overruns += uint64(st.Drops)
	}
}

// Offload implements port.Port.
func (p *Port) Offload() link.Offload { return p.offload }

// Stats implements port.Monitored.
func (p *Port) Stats() port.Stats {
	if p.sock >= 0 {
		p.countOverruns()
	}
	return p.Counters
}

// Mode describes how the port works, and its limitations.
func (p *Port) Mode() string {
	mode := "AF_PACKET"
	if p.cfg.Offload && p.offload.MaxSegments == 0 {
		mode += "; the kernel takes no UDP super-frames"
	}
	if p.note != "" {
		mode += "; " + p.note
	}
	return mode
}

// Close implements port.Port.
func (p *Port) Close() error {
	port.CloseSocket(&p.sock)
	port.CloseSocket(&p.guard)
	if p.thread != nil {
		p.groups.Close()
		p.thread.Close()
		p.thread = nil
	}
	p.SetClosed()
	return nil
}

var _ port.Monitored = (*Port)(nil)
