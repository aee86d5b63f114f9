package nldev

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Flags in the type of an attribute (linux/netlink.h).
const (
	attrNested   = 1 << 15 // NLA_F_NESTED
	attrTypeMask = 1<<14 - 1
)

// native is the byte order of netlink.
var native = binary.NativeEndian

// request is a validated request.
type request struct {
	kind  uint16 // nlmsg_type
	flags uint16
	seq   uint32
	port  uint32            // nlmsg_pid
	head  []byte            // the header, which an error repeats
	attrs map[uint16][]byte // values by type
}

// number returns an attribute of four bytes, and whether the request has it.
func (r *request) number(attr uint16) (uint32, bool) {
	b := r.attrs[attr]
	if len(b) != 4 {
		return 0, false
	}
	return native.Uint32(b), true
}

// dump reports whether the request asks for all objects.
func (r *request) dump() bool { return r.flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP }

// parse splits a datagram into its requests. As the kernel does, it ignores bytes behind the last complete request, and
// messages that are no requests.
func parse(datagram []byte) (list []request) {
	for len(datagram) >= unix.NLMSG_HDRLEN {
		length := int(native.Uint32(datagram))
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			return list
		}
		r := request{kind: native.Uint16(datagram[4:]), flags: native.Uint16(datagram[6:]), seq: native.Uint32(datagram[8:]),
			port: native.Uint32(datagram[12:]), head: datagram[:unix.NLMSG_HDRLEN], attrs: attributes(datagram[unix.NLMSG_HDRLEN:length])}
		if r.flags&unix.NLM_F_REQUEST != 0 && r.kind >= unix.NLMSG_MIN_TYPE {
			list = append(list, r)
		}
		datagram = datagram[min(align(length), len(datagram)):]
	}
	return list
}

// attributes returns the values of attributes by type.
func attributes(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	for len(b) >= unix.NLA_HDRLEN {
		length := int(native.Uint16(b))
		if length < unix.NLA_HDRLEN || length > len(b) {
			break
		}
		out[native.Uint16(b[2:])&attrTypeMask] = b[unix.NLA_HDRLEN:length]
		b = b[min(align(length), len(b)):]
	}
	return out
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// message is an answer in progress.
type message []byte

// newMessage begins an answer to r.
func newMessage(r *request, kind, flags uint16) message {
	m := make(message, unix.NLMSG_HDRLEN, 512)
	native.PutUint16(m[4:], kind)
	native.PutUint16(m[6:], flags)
	native.PutUint32(m[8:], r.seq)
	native.PutUint32(m[12:], r.port)
	return m
}

// done returns the finished message.
func (m message) done() []byte {
	native.PutUint32(m, uint32(len(m)))
	return m
}

func (m *message) put(kind uint16, value []byte) {
	*m = native.AppendUint16(*m, uint16(unix.NLA_HDRLEN+len(value)))
	*m = native.AppendUint16(*m, kind)
	*m = append(*m, value...)
	*m = append(*m, make([]byte, align(len(value))-len(value))...)
}

func (m *message) u8(kind uint16, v uint8)        { m.put(kind, []byte{v}) }
func (m *message) u32(kind uint16, v uint32)      { m.put(kind, native.AppendUint32(nil, v)) }
func (m *message) u64(kind uint16, v uint64)      { m.put(kind, native.AppendUint64(nil, v)) }
func (m *message) text(kind uint16, value string) { m.put(kind, append([]byte(value), 0)) }

// nest adds an attribute whose value are the attributes that fill adds.
func (m *message) nest(kind uint16, fill func(*message)) {
	at := len(*m)
	m.put(kind|attrNested, nil)
	fill(m)
	native.PutUint16((*m)[at:], uint16(len(*m)-at))
}
