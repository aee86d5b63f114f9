package udp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Limits of Linux on a message with UDP_SEGMENT: 128 datagrams (UDP_MAX_SEGMENTS; 64 in older kernels), and the length of an
// IP packet.
const (
	maxSegments    = 128
	maxSegmentsOld = 64
	maxBytes       = ethLen + 65535
)

// knowsSegments reports whether the kernel supports UDP_SEGMENT (Linux 4.18). The port learns the maximum number of
// datagrams when the kernel refuses a message.
func knowsSegments(fd int) bool {
	return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) == nil
}

// Send implements port.Port.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	p.retry = mono.Never
	if p.FD() < 0 {
		return port.ErrDown
	}
	var o outgoing
	if len(f.Bufs) == 0 || !o.read(f.Bufs[0], p.cfg.UDPPort) {
		p.Counters.SendDropped++
		return errors.New("udp: not a RoCEv2 datagram")
	}
	l := p.local(&o.src)
	if l == nil {
		p.Counters.SendDropped++
		return fmt.Errorf("udp: address %v is not available", o.src.Addr())
	}
	s, err := p.from(l, o.port)
	if err != nil {
		p.Counters.SendDropped++
		p.told.tell(fmt.Sprintf("cannot send from UDP port %d of %v: %v", o.port, l.addr, err))
		return fmt.Errorf("udp: source port %d: %w", o.port, err)
	}
	if o.group {
		if err := p.aim(s, l); err != nil {
			p.Counters.SendDropped++
			return fmt.Errorf("udp: to %v: %w", o.dst.Addr(), err)
		}
	}
	switch {
	case o.trimmed(f): // no ICRC covers the ID or the port
		o.id = 0
	case s.port != o.port:
		orig := f
		f = p.renumbered(f, &o, s.port)
		defer func() { orig.Begun = f.Begun }()
	}
	if o.id != 0 || f.SegSize != 0 && (f.Begun > 0 || p.apart(f)) {
		return apiece(p.sent(now, s, &o, p.writeApart(s, f, &o)))
	}
	e := p.write(s, f.Bufs, &o, f.SegSize)
	if f.SegSize != 0 && (e == unix.EINVAL || e == unix.EIO) {
		return apiece(p.sent(now, s, &o, p.unsegmented(s, f, &o)))
	}
	return p.sent(now, s, &o, e)
}

// apiece returns the error of a super-frame whose datagrams are sent one by one.
func apiece(err error) error {
	if err == port.ErrRefused {
		return port.ErrRefusedPart
	}
	return err
}

// apart reports whether to send the datagrams of a super-frame as separate messages.
func (p *Port) apart(f *link.Frame) bool {
	return p.single || f.Apart && p.cfg.Offload == OffloadKnown
}

// unsegmented handles a super-frame that the kernel has refused: it sends the packets as single datagrams. If the kernel
// accepts one of them, the super-frame was too large, so the port uses shorter super-frames, or none.
func (p *Port) unsegmented(s *source, f *link.Frame, o *outgoing) unix.Errno {
	e := p.writeApart(s, f, o)
	switch count := (f.Len - o.len + f.SegSize - 1) / f.SegSize; {
	case e != 0 && f.Begun == 0:
	case count > maxSegmentsOld:
		p.offload.MaxSegments = min(p.offload.MaxSegments, maxSegmentsOld)
	default:
		p.single = true
	}
	return e
}

// local returns the source address of a frame, nil if it is not available.
func (p *Port) local(gid *inet.GID) *local {
	for _, l := range p.locals {
		if l.gid == *gid {
			return l
		}
	}
	return nil
}

// write sends a frame. The kernel gathers its buffers.
func (p *Port) write(s *source, bufs [][]byte, o *outgoing, segSize int) unix.Errno {
	m := &p.out
	if !m.gather(bufs, o.len) {
		p.flat = appendAll(p.flat[:0], bufs)
		m.gather([][]byte{p.flat}, o.len)
	}
	p.label(m, o)
	if segSize != 0 {
		m.ctl.addShort(unix.IPPROTO_UDP, unix.UDP_SEGMENT, uint16(segSize))
	}
	m.attach()
	// The kernel reports an error by ICMP to the next send call. It does not concern this message.
	const tries = 8
	for range tries {
		_, e := m.do(unix.SYS_SENDMSG, s.fd, 0)
		if e == 0 || !p.drainErrors(s) {
			return e
		}
	}
	return unix.EAGAIN
}

// label sets the destination and the control messages for the headers.
func (p *Port) label(m *message, o *outgoing) {
	m.ctl.len = 0
	level, tos, hop := int32(unix.IPPROTO_IP), int32(unix.IP_TOS), int32(unix.IP_TTL)
	if !o.v4 {
		level, tos, hop = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	if o.tos != 0 {
		m.ctl.add(level, tos, int32(o.tos))
	}
	if o.hop != hopLimit || o.group { // multicast has a separate default
		m.ctl.add(level, hop, int32(o.hop))
	}
	m.hdr.Name, m.hdr.Namelen = &m.name[0], m.name.set(&o.dst, o.v4, p.cfg.UDPPort, p.zone(o.dst.Addr()))
}

func appendAll(b []byte, bufs [][]byte) []byte {
	for _, p := range bufs {
		b = mapped.Append(b, p)
	}
	return b
}

// renumbered returns a copy of a frame with another UDP source port, which the ICRC covers.
func (p *Port) renumbered(f *link.Frame, o *outgoing, port uint16) *link.Frame {
	p.flat = appendAll(p.flat[:0], f.Bufs)
	body := p.flat[o.len:]
	size := f.SegSize
	if size == 0 {
		size = len(body)
	}
	word := uint32(o.port^port)>>8 | uint32(o.port^port)&0xff<<8
	for len(body) > 0 {
		seg := body[:min(size, len(body))]
		body = body[len(seg):]
		if end := len(seg) - bth.ICRCLen; end >= 0 {
			bth.PutICRC(seg[end:], bth.GetICRC(seg[end:])^bth.ICRCDelta(word, udpLen+end))
		}
	}
	udp := p.flat[o.len-udpLen:]
	udp[0], udp[1] = uint8(port>>8), uint8(port)
	return &link.Frame{Bufs: [][]byte{p.flat}, Len: f.Len, HdrLen: f.HdrLen, SegSize: f.SegSize, Apart: f.Apart, Begun: f.Begun}
}

// sent converts the result of a send call to the result of Send.
func (p *Port) sent(now mono.Time, s *source, o *outgoing, e unix.Errno) error {
	if p.full >= 0 {
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, p.full, nil) // the socket may have been closed
		p.full = -1
	}
	switch e {
	case 0:
		return nil
	case unix.EAGAIN: // the buffer of the socket is full
		p.Counters.Again++
		ev := unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(s.fd)}
		if unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev) == nil {
			p.full = s.fd
		}
		p.retry = now.Add(retryFull)
		return port.ErrAgain
	case unix.ENOBUFS, unix.ENOMEM: // a filter drops the frame, or the queue of the interface is full
		p.Counters.Again++
		return port.ErrRefused
	}
	p.Counters.SendDropped++
	p.told.failed(o.dst.Addr(), e)
	return fmt.Errorf("udp: to %v: %w", o.dst.Addr(), e)
}
