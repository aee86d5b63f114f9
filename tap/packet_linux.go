package tap

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// packetRcvbuf is what a packet port asks for as receive buffer: room for some hundred
// super-frames. packetSndbuf is what may wait in the interface's queue.
const (
	packetRcvbuf = 32 << 20
	packetSndbuf = 4 << 20
)

// loopbackIndex is the index of the loopback interface, the first one of each namespace.
const loopbackIndex = 1

// PacketConfig describes a packet port.
type PacketConfig struct {
	// Interface is the Ethernet interface that the port shares with the kernel.
	Interface string
	// Netns is the network namespace of the interface, a path or a name as
	// ip-netns(8) has them. Empty for the caller's own.
	Netns string
	// Addrs are the addresses for which frames are received. See SetAddrs.
	Addrs []netip.Addr
	// Offload asks for super-frames.
	Offload bool
}

// Packet is a port on an interface that a kernel uses too, by an AF_PACKET socket
// (packet(7)). It receives RoCEv2 frames to the given addresses, which the kernel gets
// as well: a UDP socket that is bound to the port and drops everything keeps it from
// answering them with "port unreachable". Send and Recv return ErrDown and FD is -1
// while the interface is down or does not exist; it is found again by its name.
//
// Privileges are needed to open the port, but not for anything later, also not when the
// interface is made anew.
type Packet struct {
	cfg    PacketConfig
	inside *Inside // the interface's namespace
	sock   int     // AF_PACKET
	guard  int     // UDP, -1 if none
	groups *Groups // nil until the port is open
	index  int     // of the interface that they are bound to, 0 if none
	fd     int     // sock while the link is up, else -1

	offload rocev2.Offload // what the kernel takes, as far as it is known
	state   LinkState
	stats   Stats
	note    string

	next    mono.Time // when to look after the link
	backoff backoff

	txHdr, rxHdr [vnetHdrLen]byte
	iov          [maxIov]unix.Iovec
	flat         []byte // a frame of too many pieces, put together

	// writev is the system call; tests have it refuse frames.
	writev func(fd int, iov *unix.Iovec, n int) unix.Errno
}

// OpenPacket opens a port on an interface, which must exist. It needs CAP_NET_RAW in
// the namespace, and CAP_SYS_ADMIN to enter one.
func OpenPacket(c PacketConfig) (*Packet, error) {
	p := &Packet{cfg: c, sock: -1, guard: -1, fd: -1, writev: writev}
	err := p.open()
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("packet: %w", err)
	}
	p.check(0)
	if p.index == 0 {
		err := p.state.Err
		p.Close()
		return nil, fmt.Errorf("packet: %w", err)
	}
	return p, nil
}

// open makes the packet socket.
func (p *Packet) open() (err error) {
	if p.inside, err = Enter(p.cfg.Netns); err != nil {
		return err
	}
	p.groups = NewGroups(p.inside)
	// Without a protocol it receives nothing until it is bound to an interface.
	p.inside.Do(func() {
		p.sock, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("packet socket: needs CAP_NET_RAW in the namespace: %w", err)
	}
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	// The filter refuses our own frames too, but later, when they have been cloned.
	for _, o := range []struct {
		name string
		opt  int
	}{{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR}, {"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING}} {
		if err := unix.SetsockoptInt(p.sock, unix.SOL_PACKET, o.opt, 1); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	setBuffer(p.sock, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, packetRcvbuf)
	setBuffer(p.sock, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, packetSndbuf)
	if p.cfg.Offload {
		p.offload = probeOffload(p.sendLoopback)
	}
	return p.SetAddrs(p.cfg.Addrs)
}

// setBuffer sets a buffer beyond the system's limit if that is permitted.
func setBuffer(fd, force, polite, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, polite, size) // cut to the limit
	}
}

// SetAddrs replaces the addresses for which frames are received, at most 256 with the groups.
func (p *Packet) SetAddrs(addrs []netip.Addr) error {
	p.cfg.Addrs = addrs
	return p.setFilter()
}

// Group joins a multicast group, whose frames are received from then on, or leaves it.
func (p *Packet) Group(gid rocev2.GID, in bool) error {
	err := p.groups.Set(gid.Addr(), in)
	if err == nil {
		err = p.setFilter()
	}
	if err != nil && in {
		_ = p.groups.Set(gid.Addr(), false) // to leave cannot fail
	}
	return err
}

func (p *Packet) setFilter() error {
	f := packetFilter(p.groups.Behind(p.cfg.Addrs))
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.SetsockoptSockFprog(p.sock, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("packet: socket filter: %w", err)
	}
	return nil
}

// sendLoopback sends a frame to the namespace's loopback interface.
func (p *Packet) sendLoopback(b []byte) error {
	return unix.Sendto(p.sock, b, 0, &unix.SockaddrLinklayer{Ifindex: loopbackIndex})
}

// Send implements Port. A super-frame that the kernel does not take goes out as single
// frames.
func (p *Packet) Send(now mono.Time, f *rocev2.Frame) error {
	if p.fd < 0 {
		return ErrDown
	}
	e := p.write(f)
	if e == unix.EINVAL && f.SegSize != 0 {
		e = p.writeCut(f)
	}
	switch e {
	case 0:
		return nil
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM: // ENOBUFS: the interface's queue is full
		p.stats.Again++
		return ErrAgain
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		p.Poll(now)
		if p.fd < 0 {
			return ErrDown
		}
	}
	p.stats.SendDropped++
	return fmt.Errorf("packet: write: %w", e)
}

func (p *Packet) write(f *rocev2.Frame) unix.Errno {
	var n int
	n, p.flat = gather(&p.iov, &p.txHdr, f, p.flat)
	return p.writev(p.fd, &p.iov[0], n)
}

func writev(fd int, iov *unix.Iovec, n int) unix.Errno {
	_, e := rawRW(unix.SYS_WRITEV, fd, iov, n)
	return e
}

// writeCut sends a super-frame that the kernel has refused as single frames. If it takes
// them, it is for being a super-frame that it was refused, and Offload promises less from
// now on. What there is no room for behind the first one is lost, because that one cannot be
// taken back.
func (p *Packet) writeCut(f *rocev2.Frame) unix.Errno {
	whole := f.AppendTo(nil)
	count := rocev2.Segments(whole, f.SegSize)
	one := rocev2.Frame{Bufs: make([][]byte, 1)}
	for i := range count {
		one.Bufs[0] = rocev2.Segment(one.Bufs[0][:0], whole, f.SegSize, i)
		one.Len = len(one.Bufs[0])
		if e := p.write(&one); e != 0 && i == 0 {
			return e
		} else if e != 0 {
			p.stats.SendDropped += uint64(count - i)
			break
		}
	}
	p.offload = less(p.offload, count)
	return 0
}

// Recv implements Port.
func (p *Packet) Recv(now mono.Time, buf []byte) (n, segSize int, err error) {
	if now >= p.next {
		p.Poll(now)
	}
	if p.fd < 0 {
		return 0, 0, ErrDown
	}
	if len(buf) == 0 {
		return 0, 0, errors.New("packet: empty buffer")
	}
	scatter(&p.iov, &p.rxHdr, buf)
	for {
		n, e := rawRW(unix.SYS_READV, p.fd, &p.iov[0], 2)
		if e == unix.EAGAIN {
			return 0, 0, ErrAgain
		}
		if e != 0 {
			p.Poll(now)
			if p.fd < 0 {
				return 0, 0, ErrDown
			}
			return 0, 0, fmt.Errorf("packet: read: %w", e)
		}
		if n -= vnetHdrLen; n < ethLen {
			p.stats.RecvDropped++
			continue
		}
		return n, segmentSize(&p.rxHdr), nil
	}
}

// Poll implements Monitored.
func (p *Packet) Poll(now mono.Time) {
	if p.sock >= 0 {
		p.check(now)
	}
}

// check looks at the interface and binds the sockets to it if it is another one.
func (p *Packet) check(now mono.Time) {
	p.countOverruns()
	index, s := QueryInterface(p.sock, p.cfg.Interface)
	if p.index != 0 && index != p.index {
		p.index = 0
		_ = p.groups.Move(0) // joins nothing
		p.stats.Lost++
	}
	if index != 0 && p.index == 0 {
		if err := p.bind(index); err != nil {
			s = LinkState{Err: err}
		} else if p.stats.Reopened < p.stats.Lost {
			p.stats.Reopened++
		}
	}
	p.state, p.fd = s, -1
	if !s.Up {
		p.next = p.backoff.after(now)
		return
	}
	p.fd = p.sock
	p.backoff.reset()
	p.next = now.Add(pollInterval)
}

// bind attaches the sockets to the interface of this index.
func (p *Packet) bind(index int) error {
	all := uint16(unix.ETH_P_ALL)
	addr := unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index}
	if err := unix.Bind(p.sock, &addr); err != nil {
		return fmt.Errorf("interface %s: bind: %w", p.cfg.Interface, err)
	}
	p.index, p.note = index, ""
	closeSocket(&p.guard) // of the interface before this one
	var err error
	p.inside.Do(func() { p.guard, err = openGuard(index) })
	if err = errors.Join(err, p.groups.Move(index)); err != nil {
		p.note = err.Error()
	}
	return nil
}

func closeSocket(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// countOverruns adds what the kernel has dropped for want of room; it forgets the
// number when it is read.
func (p *Packet) countOverruns() {
	if st, err := unix.GetsockoptTpacketStats(p.sock, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.stats.Overruns += uint64(st.Drops)
	}
}

// NextTimeout implements Port.
func (p *Packet) NextTimeout() mono.Time { return p.next }

// FD implements Port.
func (p *Packet) FD() int { return p.fd }

// Offload implements Port.
func (p *Packet) Offload() rocev2.Offload { return p.offload }

// State implements Monitored.
func (p *Packet) State() LinkState { return p.state }

// Stats implements Monitored.
func (p *Packet) Stats() Stats {
	if p.sock >= 0 {
		p.countOverruns()
	}
	return p.stats
}

// Mode says how frames get to the port and back, and what does not work as it should
// though the port does.
func (p *Packet) Mode() string {
	mode := "AF_PACKET"
	if p.cfg.Offload && p.offload.MaxSegments == 0 {
		mode += "; the kernel takes no UDP super-frames"
	}
	if p.note != "" {
		mode += "; " + p.note
	}
	return mode
}

// Close implements Port.
func (p *Packet) Close() error {
	closeSocket(&p.sock)
	closeSocket(&p.guard)
	if p.groups != nil {
		p.groups.Close()
	}
	if p.inside != nil {
		p.inside.Close()
		p.inside = nil
	}
	p.fd, p.next, p.state = -1, mono.Never, LinkState{Err: errClosed}
	return nil
}

var _ Monitored = (*Packet)(nil)
