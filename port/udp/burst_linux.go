package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
)

// burst has the messages of a super-frame whose datagrams are sent as separate messages, by one call of sendmmsg(2).
type burst struct {
	msgs  [maxSegments]mmsghdr
	icrcs [maxSegments][bth.ICRCLen]byte
	iov   [maxBurst]unix.Iovec
	ids   idDeltas
}

// maxBurst is the maximum number of buffers of such a super-frame, including separate ICRCs.
const maxBurst = maxIov + 2*maxSegments

// writeApart sends the datagrams of a frame as separate messages. The frame has consecutive IP IDs, but the kernel sends
// IP ID 0, so writeApart changes the ICRCs. It skips the first f.Begun datagrams, and updates f.Begun if there is no room
// for all.
func (p *Port) writeApart(s *source, f *link.Frame, o *outgoing) unix.Errno {
	bufs := f.Bufs
	if len(bufs) > maxIov {
		p.flat = appendAll(p.flat[:0], bufs)
		bufs = append(f.Bufs[:0:0], p.flat)
	}
	p.label(&p.out, o)
	p.out.attach()
	msgs := p.burst.fill(&p.out, bufs, o, f.SegSize)
	for sent := min(f.Begun, len(msgs)); sent < len(msgs); {
		n, e := sendAll(s.fd, msgs[sent:])
		switch {
		case e == 0:
			sent += n
		case p.drainErrors(s): // retry after ICMP errors of earlier datagrams
		case e == unix.EAGAIN, e == unix.ENOBUFS, e == unix.ENOMEM:
			f.Begun = sent
			return e
		default:
			p.Counters.SendDropped += uint64(len(msgs) - sent - 1) // sent counts the first one
			return e
		}
	}
	f.Begun = 0
	return 0
}

// sendAll calls sendmmsg.
func sendAll(fd int, msgs []mmsghdr) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), 0, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// fill makes a message of each datagram of a frame, with the address and control messages of m.
func (b *burst) fill(m *message, bufs [][]byte, o *outgoing, segSize int) []mmsghdr {
	rest := pieces{bufs: bufs}
	rest.skip(o.len)
	left := 0
	for _, q := range bufs {
		left += len(q)
	}
	left -= o.len
	if segSize == 0 {
		segSize = left
	}
	n, used := 0, 0
	for ; left > 0 && n < len(b.msgs); n++ {
		size := min(segSize, left)
		left -= size
		iov := b.iov[used:]
		pieces := 0
		if id := o.id + uint16(n); o.v4 && id != 0 && size >= bth.ICRCLen {
			pieces = rest.views(iov, size-bth.ICRCLen)
			icrc := &b.icrcs[n]
			rest.read(icrc[:])
			bth.PutICRC(icrc[:], bth.GetICRC(icrc[:])^b.ids.of(id, size))
			iov[pieces].Base = &icrc[0]
			iov[pieces].SetLen(len(icrc))
			pieces++
		} else {
			pieces = rest.views(iov, size)
		}
		b.msgs[n].hdr = m.hdr
		b.msgs[n].hdr.Iov = &iov[0]
		b.msgs[n].hdr.SetIovlen(pieces)
		used += pieces
	}
	return b.msgs[:n]
}

// pieces is a reader of a list of buffers.
type pieces struct {
	bufs [][]byte
	off  int // in the first one
}

// next consumes and returns up to n bytes.
func (p *pieces) next(n int) []byte {
	for len(p.bufs) > 0 && p.off == len(p.bufs[0]) {
		p.bufs, p.off = p.bufs[1:], 0
	}
	if len(p.bufs) == 0 {
		return nil
	}
	b := p.bufs[0][p.off:]
	b = b[:min(n, len(b))]
	p.off += len(b)
	return b
}

func (p *pieces) skip(n int) {
	for n > 0 {
		n -= len(p.next(n))
	}
}

// read consumes and copies bytes.
func (p *pieces) read(to []byte) {
	for len(to) > 0 {
		to = to[copy(to, p.next(len(to))):]
	}
}

// views consumes n bytes and makes iov point to them.
func (p *pieces) views(iov []unix.Iovec, n int) (count int) {
	for n > 0 {
		b := p.next(n)
		iov[count].Base = &b[0]
		iov[count].SetLen(len(b))
		n -= len(b)
		count++
	}
	return count
}

// idDeltas computes the difference between the ICRC of a datagram and the ICRC of the same datagram with IP ID 0. CRCs are
// linear, so the difference is the sum of the differences of the bits of the ID. idDeltas caches those for the last
// length.
type idDeltas struct {
	size int
	bits [16]uint32
}

// of returns the difference for an ID and a length of the UDP payload.
func (d *idDeltas) of(id uint16, size int) (delta uint32) {
	if d.size != size {
		d.size = size
		for i := range d.bits {
			d.bits[i] = 0
		}
	}
	for i := range d.bits {
		if id>>i&1 == 0 {
			continue
		}
		if d.bits[i] == 0 {
			word := uint32(1) << i
			word = word>>8 | word&0xff<<8 // of IP ID, flags and fragment offset, first byte least significant
			const idWord = 4
			d.bits[i] = bth.ICRCDelta(word, ipv4Len-idWord+udpLen+size-bth.ICRCLen)
		}
		delta ^= d.bits[i]
	}
	return delta
}
