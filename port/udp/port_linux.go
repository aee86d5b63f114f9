// Package udp is a link on plain UDP sockets. RoCEv2 uses UDP port 4791, which every process may bind, so the port needs no
// privilege and works with every address of the kernel.
//
// The kernel makes the IP and UDP headers. The port passes addresses, traffic class, hop limit and source port of sent
// frames to the kernel. For received datagrams it makes new headers. They differ from those on the wire in
// identification, hop limit, flow label, UDP checksum and Ethernet addresses. rocev2 (sockets.go) describes the
// consequences for the ICRC.
//
// No promise: this package may change between releases.
package udp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Config describes a port.
type Config struct {
	// Netns is the network namespace of the sockets: a path, a name as in ip-netns(8), or empty for that of the caller.
	Netns string
	// MAC is the MAC of this NIC in received frames.
	MAC inet.MAC
	// Offload selects the peers that receive super-frames.
	Offload Offload
	// Warn, if not nil, receives each warning for the administrator once. The goroutine of the port calls it; it must
	// not block.
	Warn func(text string)
	// UDPPort is the port of the receiving sockets, of the NIC and of its peers; 0 means bth.UDPPort.
	UDPPort uint16
}

// Offload selects the peers that receive super-frames. The kernel or the network card that segments a super-frame assigns
// the IP IDs of its datagrams, and ICRCs cover IP IDs.
type Offload uint8

const (
	// OffloadKnown sends super-frames to NICs on sockets, which determine the IP IDs, and single datagrams to other
	// peers.
	OffloadKnown Offload = iota
	// OffloadAlways sends super-frames to all peers. It requires that segment i has IP ID i, as the kernel assigns it.
	OffloadAlways
	// OffloadNever sends single datagrams only.
	OffloadNever
)

// Retry intervals.
const (
	retryBind = time.Second           // for addresses that could not be bound
	retryFull = 10 * time.Millisecond // after the buffer of a socket was full, unless epoll reports room earlier
)

// Port is a port on UDP sockets: one receiving socket per address of the NIC, and one sending socket per UDP source port in
// use. While the link is down according to SetLink, Send and Recv return port.ErrDown and FD is -1.
type Port struct {
	port.Base // Next: when to retry to bind addresses
	cfg       Config
	thread    *netns.Thread
	epoll     int // of the receiving sockets, and of a full sending one
	index     int // of the interface, for link-local addresses
	told      notices

	addrs  []netip.Addr // configured
	locals []*local     // of the bound addresses
	groups []*local     // joined groups
	wanted []netip.Addr // groups to join
	hot    *local       // address that received last
	streak int          // consecutive receptions by hot
	warm   *local       // address that epoll reported last
	row    int          // consecutive reports of warm
	tries  int          // attempts to receive by warm since the last report
	retry  mono.Time    // when to retry to send
	full   int          // socket whose buffer is full, -1 if none

	offload link.Offload
	single  bool // segment all super-frames in the port
	out     message
	in      message
	flat    []byte // a copy of a frame
	batch   batch
	burst   burst
}

// Open opens a port on addresses of the kernel. They must exist, and UDP port 4791 must be free on them. The link is down
// until SetLink.
func Open(c Config, index int, addrs []netip.Addr) (*Port, error) {
	c.UDPPort = cmp.Or(c.UDPPort, bth.UDPPort)
	p := &Port{cfg: c, epoll: -1, full: -1, retry: mono.Never, told: notices{warn: c.Warn, port: c.UDPPort}}
	if err := p.open(index, addrs); err != nil {
		p.Close()
		return nil, fmt.Errorf("udp: %w", err)
	}
	return p, nil
}

func (p *Port) open(index int, addrs []netip.Addr) (err error) {
	if p.thread, err = netns.Enter(p.cfg.Netns); err != nil {
		return err
	}
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	p.index, p.addrs = index, slices.Clone(addrs)
	if err := p.bind(); err != nil {
		return err
	}
	p.offload = link.Offload{MaxSegments: maxSegments, MaxBytes: maxBytes}
	p.single = p.cfg.Offload == OffloadNever || len(p.locals) > 0 && !knowsSegments(p.locals[0].rx)
	return nil
}

// SetLink sets the index and the state of the interface.
func (p *Port) SetLink(index int, s link.State) {
	if index != p.index {
		p.leaveAll() // memberships are the interface's
	}
	p.index = index
	s.MTU = min(s.MTU, link.MaxMTU)
	p.SetState(s, p.epoll)
}

// SetAddrs replaces the addresses of the NIC. The port retries to bind an address that is not available now.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	p.addrs = slices.Clone(addrs)
	p.locals = slices.DeleteFunc(p.locals, func(l *local) bool {
		gone := !slices.Contains(addrs, l.addr)
		if gone {
			p.drop(l)
		}
		return gone
	})
	return p.bind()
}

// bind opens the missing sockets.
func (p *Port) bind() (err error) {
	p.Next = mono.Never
	for _, a := range p.addrs {
		if slices.ContainsFunc(p.locals, func(l *local) bool { return l.addr == a }) {
			continue
		}
		l, lerr := p.listen(a, rxOptions[a.Is4()])
		if lerr != nil {
			err = errors.Join(err, lerr)
			continue
		}
		p.locals = append(p.locals, l)
	}
	if err = errors.Join(err, p.joinMissing()); err != nil {
		p.Next = 0
	}
	return err
}

// drop closes the sockets of an address.
func (p *Port) drop(l *local) {
	p.batch.forget()
	if p.hot == l {
		p.hot = nil
	}
	if p.warm == l {
		p.warm = nil
	}
	l.close()
}

// Poll implements port.Monitored. It retries to bind addresses. The state of the interface comes from SetLink.
func (p *Port) Poll(now mono.Time) {
	if now < p.Next || p.epoll < 0 {
		return
	}
	if err := p.bind(); err != nil {
		p.told.tell(err.Error())
		p.Next = now.Add(retryBind)
	}
}

// NextTimeout implements port.Port.
func (p *Port) NextTimeout() mono.Time { return p.Next.Min(p.retry) }

// Offload implements port.Port.
func (p *Port) Offload() link.Offload { return p.offload }

// Room returns the size of the kernel's receive buffer of an address in bytes.
func (p *Port) Room() int {
	if len(p.locals) == 0 {
		return 0
	}
	return p.locals[0].room()
}

// Mode describes how the port works, and its limitations.
func (p *Port) Mode() string {
	mode := "UDP sockets"
	switch {
	case p.cfg.Offload == OffloadNever:
		mode += ", single datagrams"
	case p.single:
		mode += "; the kernel takes no UDP super-frames"
	}
	if n := len(p.addrs) - len(p.locals); n > 0 {
		mode += fmt.Sprintf("; without %d of %d addresses", n, len(p.addrs))
	}
	if last := p.told.last(); last != "" {
		mode += "; " + last
	}
	return mode
}

// Close implements port.Port.
func (p *Port) Close() error {
	for _, l := range p.locals {
		p.drop(l)
	}
	p.leaveAll()
	p.locals, p.addrs, p.wanted = nil, nil, nil
	port.CloseSocket(&p.epoll)
	if p.thread != nil {
		p.thread.Close()
		p.thread = nil
	}
	p.retry = mono.Never
	p.SetClosed()
	return nil
}

var _ port.Monitored = (*Port)(nil)
