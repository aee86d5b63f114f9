package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
)

// maxIov is the maximum number of buffers of a message: two for each datagram of the longest super-frame.
const maxIov = 2*maxSegments + 8

// message is the argument of sendmsg(2) and recvmsg(2), including the memory that it points to.
type message struct {
	hdr  unix.Msghdr
	name name
	iov  [maxIov]unix.Iovec
	ctl  control
}

// control is a list of control messages (cmsg(3)).
type control struct {
	b   [16]uint64 // aligned for the kernel
	len int
}

// Sizes of a control message: its header, a message with up to 4 bytes of data, and the alignment.
const (
	cmsgHdr   = unix.SizeofCmsghdr
	cmsgSize  = (cmsgHdr + 4 + 7) &^ 7 // an entry of control.b
	cmsgAlign = int(unsafe.Sizeof(uintptr(0)))
)

// size returns the capacity in bytes.
func (c *control) size() int { return len(c.b) * 8 }

// received returns the control messages of a received message.
func (c *control) received(h *unix.Msghdr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&c.b[0])), min(int(h.Controllen), c.size()))
}

// add appends a control message with an int.
func (c *control) add(level, typ, value int32) { *c.put(level, typ, 4) = value }

// addShort appends a control message with a 16-bit number.
func (c *control) addShort(level, typ int32, value uint16) { *c.put(level, typ, 2) = int32(value) }

// put appends a control message and returns a pointer to its data. The host is little-endian on all machines that roced
// supports (internal/base/abi).
func (c *control) put(level, typ int32, size int) *int32 {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.b[c.len/8]))
	h.Level, h.Type = level, typ
	h.SetLen(cmsgHdr + size)
	c.len += cmsgSize
	return (*int32)(unsafe.Add(unsafe.Pointer(h), cmsgHdr))
}

// next parses a control message and returns the rest.
func next(b []byte) (level, typ int32, data, rest []byte, ok bool) {
	if len(b) < cmsgHdr {
		return 0, 0, nil, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	size := int(h.Len)
	if size < cmsgHdr || size > len(b) {
		return 0, 0, nil, nil, false
	}
	aligned := min((size+cmsgAlign-1)&^(cmsgAlign-1), len(b))
	return h.Level, h.Type, b[cmsgHdr:size], b[aligned:], true
}

// gather makes iov point to the buffers of a frame without its headers. It returns false if there are too many.
func (m *message) gather(bufs [][]byte, skip int) bool {
	n := 0
	for _, b := range bufs {
		if skip > 0 {
			b = b[min(skip, len(b)):]
			skip = 0
		}
		if len(b) == 0 {
			continue
		}
		if n == maxIov {
			return false
		}
		m.iov[n].Base = &b[0]
		m.iov[n].SetLen(len(b))
		n++
	}
	m.hdr.Iov = &m.iov[0]
	m.hdr.SetIovlen(n)
	return true
}

// attach attaches the control messages to the message.
func (m *message) attach() {
	m.hdr.Control = nil
	if m.ctl.len > 0 {
		m.hdr.Control = (*byte)(unsafe.Pointer(&m.ctl.b[0]))
	}
	m.hdr.SetControllen(m.ctl.len)
}

// expect prepares to receive into buf.
func (m *message) expect(buf []byte) {
	m.iov[0].Base = &buf[0]
	m.iov[0].SetLen(len(buf))
	m.hdr.Iov = &m.iov[0]
	m.hdr.SetIovlen(1)
	m.hdr.Name, m.hdr.Namelen = &m.name[0], uint32(len(m.name))
	m.hdr.Control = (*byte)(unsafe.Pointer(&m.ctl.b[0]))
	m.hdr.SetControllen(m.ctl.size())
}

// do calls sendmsg or recvmsg.
func (m *message) do(trap uintptr, fd, flags int) (int, unix.Errno) {
	return port.RawMessage(trap, fd, &m.hdr, flags)
}
