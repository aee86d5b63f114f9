// Package udp is the port of a NIC on plain UDP sockets. RoCEv2 is UDP to port 4791, which any
// process may bind: no privilege is needed, and every address that the kernel has will do.
//
// The kernel makes the IP and UDP headers. Of the frames that the NIC sends the port takes
// addresses, traffic class, hop limit and source port out of the headers, and of what it receives it makes
// headers anew; those are not what was on the wire in identification, hop limit, flow label,
// UDP checksum and Ethernet addresses. What the ICRC has to do with it is in rocev2 (sockets.go).
package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/netns"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
)

// Config describes a port.
type Config struct {
	// Netns is the network namespace of the sockets, a path or a name as ip-netns(8) has them.
	// Empty for the caller's own.
	Netns string
	// MAC stands for this NIC in the frames that the port makes.
	MAC rocev2.MAC
	// Offload says to whom super-frames are sent.
	Offload Offload
	// Warn is told what an administrator should know, each thing once. It is called by the port's
	// goroutine and must not wait. It may be nil.
	Warn func(what string)
}

// Offload says to whom super-frames are sent. Who cuts one apart, a kernel or a network card on the way, numbers the
// datagrams (IP ID), and ICRCs cover that.
type Offload uint8

const (
	// OffloadKnown sends them to NICs on sockets, which find out how datagrams are numbered. Others get single
	// datagrams.
	OffloadKnown Offload = iota
	// OffloadAlways sends them to everybody, where segment i is known to have ID i: so the kernel does it.
	OffloadAlways
	// OffloadNever sends single datagrams.
	OffloadNever
)

// Times of the port.
const (
	retryBind = time.Second           // until an address that could not be had is tried again
	retrySend = 50 * time.Microsecond // until the interface's queue may have room
	retryFull = 10 * time.Millisecond // until a socket's buffer must have, if nothing tells
)

// Port is a port on UDP sockets: one to receive for each address of the NIC, and one to send for each
// UDP source port in use. Send and Recv return port.ErrDown and FD is -1 while SetLink says so.
type Port struct {
	port.Base // Next: when to retry to bind addresses
	cfg       Config
	thread    *netns.Thread
	epoll     int // of the receiving sockets, and of a full sending one
	index     int // of the interface, for link-local addresses
	told      notices

	addrs  []netip.Addr // wanted
	locals []*local     // of those of them that could be had
	groups []*local     // that have been joined
	wanted []netip.Addr // groups
	hot    *local       // the one that received last
	streak int          // so many times
	retry  mono.Time    // when to try to send again
	full   int          // socket whose buffer is full, -1 if none

	offload rocev2.Offload // that the NIC makes
	single  bool           // they are all cut apart here
	begun   int            // datagrams of the frame that waits for room which have been sent
	out     message
	in      message
	flat    []byte // a frame put together
	batch   batch
	burst   burst
}

// Open makes a port on addresses of the kernel, which must be there and free. The link is down until SetLink.
func Open(c Config, index int, addrs []netip.Addr) (*Port, error) {
	p := &Port{cfg: c, epoll: -1, full: -1, retry: mono.Never, told: notices{warn: c.Warn}}
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
	p.offload = rocev2.Offload{MaxSegments: maxSegments, MaxBytes: maxBytes}
	p.single = p.cfg.Offload == OffloadNever || len(p.locals) > 0 && !knowsSegments(p.locals[0].rx)
	return nil
}

// SetLink tells of the interface: its index, and whether it can be used.
func (p *Port) SetLink(index int, s port.LinkState) {
	if index != p.index {
		p.leaveAll() // memberships are the interface's
	}
	p.index = index
	s.MTU = min(s.MTU, rocev2.MaxLinkMTU)
	p.SetState(s, p.epoll)
}

// SetAddrs replaces the addresses of the NIC. One that cannot be had now is tried for again.
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

// bind makes the sockets that are missing.
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
	l.close()
}

// Poll implements port.Monitored: it tries for addresses that could not be had. SetLink tells of the
// interface.
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
func (p *Port) Offload() rocev2.Offload { return p.offload }

// Room is the size in bytes of the kernel's buffer for what is received at one address.
func (p *Port) Room() int {
	if len(p.locals) == 0 {
		return 0
	}
	return p.locals[0].room()
}

// Mode says how datagrams get to the port and back, and what is not as it should be.
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
