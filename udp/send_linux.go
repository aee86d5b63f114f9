package udp

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"roced/bth"
	"roced/mono"
	"roced/rocev2"
	"roced/tap"
)

// What Linux takes in one message with UDP_SEGMENT: 128 datagrams (UDP_MAX_SEGMENTS), 64 in older
// kernels, and what an IP packet may have.
const (
	maxSegments    = 128
	maxSegmentsOld = 64
	maxBytes       = ethLen + 65535
)

// offloadOf asks whether the kernel knows UDP_SEGMENT (Linux 4.18). How many datagrams it takes shows
// when it refuses some.
func offloadOf(fd int) rocev2.Offload {
	if unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) != nil {
		return rocev2.Offload{}
	}
	return rocev2.Offload{MaxSegments: maxSegments, MaxBytes: maxBytes}
}

// Send implements tap.Port.
func (p *Port) Send(now mono.Time, f *rocev2.Frame) error {
	p.retry = mono.Never
	if p.fd < 0 {
		return tap.ErrDown
	}
	var o outgoing
	if len(f.Bufs) == 0 || !o.read(f.Bufs[0]) {
		p.stats.SendDropped++
		return errors.New("udp: not a RoCEv2 datagram")
	}
	l := p.local(&o.src)
	if l == nil {
		p.stats.SendDropped++
		return fmt.Errorf("udp: address %v is gone", o.src.Addr())
	}
	s, err := p.from(l, o.port)
	if err != nil {
		p.stats.SendDropped++
		p.told.tell(fmt.Sprintf("UDP port %d of %v cannot be sent from: %v", o.port, l.addr, err))
		return fmt.Errorf("udp: source port %d: %w", o.port, err)
	}
	if s.port != o.port {
		f = p.renumbered(f, &o, s.port)
	}
	e := p.write(s, f.Bufs, &o, f.SegSize)
	if f.SegSize != 0 && (e == unix.EINVAL || e == unix.EIO) {
		e = p.writeCut(s, f, &o)
	}
	return p.sent(now, s, &o, e)
}

// local returns the address of the NIC that a frame comes from, nil if it is gone.
func (p *Port) local(gid *rocev2.GID) *local {
	for _, l := range p.locals {
		if l.gid == *gid {
			return l
		}
	}
	return nil
}

// write sends a frame: its pieces are gathered by the kernel, from where they lie.
func (p *Port) write(s *source, bufs [][]byte, o *outgoing, segSize int) unix.Errno {
	m := &p.out
	if !m.gather(bufs, o.len) {
		p.flat = appendAll(p.flat[:0], bufs)
		m.gather([][]byte{p.flat}, o.len)
	}
	m.ctl.len = 0
	if segSize != 0 {
		m.ctl.addShort(unix.IPPROTO_UDP, unix.UDP_SEGMENT, uint16(segSize))
	}
	level, tos, hop := int32(unix.IPPROTO_IP), int32(unix.IP_TOS), int32(unix.IP_TTL)
	if !o.v4 {
		level, tos, hop = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	if o.tos != 0 {
		m.ctl.add(level, tos, int32(o.tos))
	}
	if o.hop != hopLimit {
		m.ctl.add(level, hop, int32(o.hop))
	}
	m.address(m.name.set(&o.dst, o.v4, bth.UDPPort, p.zone(o.dst.Addr())))
	// An error that came back by ICMP is told to the next one who sends: it is not about this message.
	const tries = 8
	for range tries {
		_, e := m.do(unix.SYS_SENDMSG, s.fd, 0)
		if e == 0 || !p.drainErrors(s) {
			return e
		}
	}
	return unix.EAGAIN
}

func appendAll(b []byte, bufs [][]byte) []byte {
	for _, p := range bufs {
		b = append(b, p...)
	}
	return b
}

// writeCut sends a super-frame that the kernel has refused as single datagrams. If it takes them, it is
// for being a super-frame that it was refused, and Offload promises less from now on. What there
// is no room for behind the first one is lost, because that one cannot be taken back.
func (p *Port) writeCut(s *source, f *rocev2.Frame, o *outgoing) unix.Errno {
	whole := slices.Clone(appendAll(nil, f.Bufs))
	count := rocev2.Segments(whole, f.SegSize)
	var one []byte
	for i := range count {
		one = rocev2.Segment(one[:0], whole, f.SegSize, i)
		if i > 0 { // each is a message of its own now, which has ID 0
			one = resealed(one, o.len)
		}
		if e := p.write(s, [][]byte{one}, o, 0); e != 0 && i == 0 {
			return e
		} else if e != 0 {
			p.stats.SendDropped += uint64(count - i)
			break
		}
	}
	p.offload = less(p.offload, count)
	return 0
}

// resealed makes the IP ID of a frame 0 and its ICRC fit.
func resealed(frame []byte, hdrLen int) []byte {
	if hdrLen == ethLen+ipv4Len+udpLen {
		ip := frame[ethLen:]
		ip[4], ip[5] = 0, 0
		_ = bth.SealICRC(ip) // what is too short for one stays as it is
	}
	return frame
}

// less is what the kernel takes if it has refused a super-frame of that many segments.
func less(o rocev2.Offload, refused int) rocev2.Offload {
	if refused > maxSegmentsOld {
		o.MaxSegments = min(o.MaxSegments, maxSegmentsOld)
		return o
	}
	return rocev2.Offload{}
}

// renumbered returns a copy of a frame that has another UDP source port, which the ICRC covers.
func (p *Port) renumbered(f *rocev2.Frame, o *outgoing, port uint16) *rocev2.Frame {
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
	return &rocev2.Frame{Bufs: [][]byte{p.flat}, Len: f.Len, HdrLen: f.HdrLen, SegSize: f.SegSize}
}

// sent tells what has become of a frame.
func (p *Port) sent(now mono.Time, s *source, o *outgoing, e unix.Errno) error {
	if p.full >= 0 {
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, p.full, nil) // it may have been closed
		p.full = -1
	}
	switch e {
	case 0:
		return nil
	case unix.EAGAIN: // the socket's buffer is full
		p.stats.Again++
		ev := unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(s.fd)}
		if unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev) == nil {
			p.full = s.fd
		}
		p.retry = now.Add(retryFull)
		return tap.ErrAgain
	case unix.ENOBUFS, unix.ENOMEM: // the interface's queue is, and will not say when it is not
		p.stats.Again++
		p.retry = now.Add(retrySend)
		return tap.ErrAgain
	}
	p.stats.SendDropped++
	p.told.failed(o.dst.Addr(), e)
	return fmt.Errorf("udp: to %v: %w", o.dst.Addr(), e)
}
