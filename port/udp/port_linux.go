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

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
	"roced.io/roced/tap"
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

var errClosed = errors.New("closed")

// Port is a port on UDP sockets: one to receive for each address of the NIC, and one to send for each
// UDP source port in use. Send and Recv return tap.ErrDown and FD is -1 while SetLink says so.
type Port struct {
	cfg    Config
	inside *tap.Inside // the namespace
	epoll  int         // of the sockets that receive, and of a full one that sends
	fd     int         // epoll while the link is up, else -1
	index  int         // of the interface, for link-local addresses
	link   tap.LinkState
	stats  tap.Stats
	told   notices

	addrs  []netip.Addr // wanted
	locals []*local     // of those of them that could be had
	groups []*local     // that have been joined
	wanted []netip.Addr // groups
	hot    *local       // the one that received last
	streak int          // so many times
	next   mono.Time    // when to try for the others
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
	p := &Port{cfg: c, epoll: -1, fd: -1, full: -1, next: mono.Never, retry: mono.Never, told: notices{warn: c.Warn}}
	if err := p.open(index, addrs); err != nil {
		p.Close()
		return nil, fmt.Errorf("udp: %w", err)
	}
	return p, nil
}

func (p *Port) open(index int, addrs []netip.Addr) (err error) {
	if p.inside, err = tap.Enter(p.cfg.Netns); err != nil {
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
func (p *Port) SetLink(index int, s tap.LinkState) {
	if index != p.index {
		p.leaveAll() // memberships are the interface's
	}
	p.index, p.link, p.fd = index, s, -1
	if s.MTU > rocev2.MaxLinkMTU {
		p.link.MTU = rocev2.MaxLinkMTU
	}
	if s.Up {
		p.fd = p.epoll
	}
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
	p.next = mono.Never
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
		p.next = 0
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

// Poll implements tap.Monitored: it tries for addresses that could not be had. SetLink tells of the
// interface.
func (p *Port) Poll(now mono.Time) {
	if now < p.next || p.epoll < 0 {
		return
	}
	if err := p.bind(); err != nil {
		p.told.tell(err.Error())
		p.next = now.Add(retryBind)
	}
}

// NextTimeout implements tap.Port.
func (p *Port) NextTimeout() mono.Time { return p.next.Min(p.retry) }

// FD implements tap.Port. It becomes readable when something has been received, and when there is room
// again to send.
func (p *Port) FD() int { return p.fd }

// Offload implements tap.Port.
func (p *Port) Offload() rocev2.Offload { return p.offload }

// State implements tap.Monitored.
func (p *Port) State() tap.LinkState { return p.link }

// Stats implements tap.Monitored.
func (p *Port) Stats() tap.Stats { return p.stats }

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

// Close implements tap.Port.
func (p *Port) Close() error {
	for _, l := range p.locals {
		p.drop(l)
	}
	p.leaveAll()
	p.locals, p.addrs, p.wanted = nil, nil, nil
	closeSocket(&p.epoll)
	if p.inside != nil {
		p.inside.Close()
		p.inside = nil
	}
	p.fd, p.next, p.retry, p.link = -1, mono.Never, mono.Never, tap.LinkState{Err: errClosed}
	return nil
}

var _ tap.Monitored = (*Port)(nil)
