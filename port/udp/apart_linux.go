package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/rocev2"
)

// burst is the messages of a super-frame whose datagrams are sent one by one, by one call of sendmmsg(2).
type burst struct {
	msgs  [maxSegments]mmsghdr
	icrcs [maxSegments][bth.ICRCLen]byte
	iov   [maxBurst]unix.Iovec
	ids   idDeltas
}

// maxBurst is the most pieces of a super-frame whose datagrams are told from each other and have an ICRC of
// their own.
const maxBurst = maxIov + 2*maxSegments

// writeApart sends the datagrams of a frame, which have been made with IP IDs that count, as messages, which
// have ID 0: their ICRCs are changed. The first begun of them have been sent. If there is no room for all, p.begun
// tells how many have now.
func (p *Port) writeApart(s *source, f *rocev2.Frame, o *outgoing, begun int) unix.Errno {
	bufs := f.Bufs
	if len(bufs) > maxIov {
		p.flat = appendAll(p.flat[:0], bufs)
		bufs = append(f.Bufs[:0:0], p.flat)
	}
	p.label(&p.out, o)
	p.out.attach()
	msgs := p.burst.fill(&p.out, bufs, o, f.SegSize)
	for sent := min(begun, len(msgs)); sent < len(msgs); {
		n, e := sendAll(s.fd, msgs[sent:])
		switch {
		case e == 0:
			sent += n
		case p.drainErrors(s): // of earlier ones, by ICMP
		case e == unix.EAGAIN, e == unix.ENOBUFS, e == unix.ENOMEM:
			p.begun = sent
			return e
		default:
			p.Counters.SendDropped += uint64(len(msgs) - sent - 1) // the first one is counted by sent
			return e
		}
	}
	return 0
}

// sendAll is sendmmsg.
func sendAll(fd int, msgs []mmsghdr) (int, unix.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), 0, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// fill makes messages of the datagrams of a frame, all with the address and control messages of m.
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

// pieces are taken from one after the other.
type pieces struct {
	bufs [][]byte
	off  int // in the first one
}

// next returns up to n bytes, and takes them.
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

// read copies what comes next.
func (p *pieces) read(to []byte) {
	for len(to) > 0 {
		to = to[copy(to, p.next(len(to))):]
	}
}

// views points to the next n bytes.
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

// idDeltas tells by how much the ICRC of a datagram differs from that of the same one with ID 0: CRCs are linear, so
// that is put together of what each bit makes, which is kept for the latest length.
type idDeltas struct {
	size int
	bits [16]uint32
}

// of returns the difference for a datagram with so many bytes of UDP payload.
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
