package port

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/port/link"
)

// EthLen is the length of an Ethernet header, and the length of the shortest usable frame.
const EthLen = 14

// CloseSocket closes *fd unless it is -1, and sets it to -1.
func CloseSocket(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// ReceiveBuffer is the receive buffer in bytes that a UDP socket of a NIC requests: room for several hundred super-frames.
// RaiseReceiveBuffer is the remedy if the kernel does not grant it to an ordinary user.
const (
	ReceiveBuffer      = 32 << 20
	RaiseReceiveBuffer = "sysctl net.core.rmem_max=33554432"
)

// SetBuffers sets the receive and the send buffer of a socket in bytes; 0 leaves one as it is. Without CAP_NET_ADMIN
// the kernel grants up to net.core.rmem_max and wmem_max.
func SetBuffers(fd, receive, send int) {
	for _, o := range [...]struct{ force, option, size int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send},
	} {
		if o.size != 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.force, o.size) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.option, o.size)
		}
	}
}

// JoinGroup makes a socket join a multicast group on the interface with this index.
func JoinGroup(fd int, group netip.Addr, index int) error {
	if group.Is4() {
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
}

// maxVector is the limit of the kernel on the entries of a vector (UIO_MAXIOV).
const maxVector = 1024

// Vector points to the buffers of a frame for writev(2) or sendmsg(2).
type Vector struct {
	entries [maxVector]unix.Iovec
	flat    []byte // copy of a frame with too many buffers
}

// Set makes entry i point to b, which must not be empty.
func (v *Vector) Set(i int, b []byte) {
	v.entries[i].Base = &b[0]
	v.entries[i].SetLen(len(b))
}

// Gather makes the entries from the first one on point to the buffers of f, and returns all entries up to the last.
// It copies a frame with more buffers than the vector has room for.
func (v *Vector) Gather(first int, f *link.Frame) []unix.Iovec {
	bufs := f.Bufs
	if first+len(bufs) > maxVector {
		v.flat = f.AppendTo(v.flat[:0])
		bufs = [][]byte{v.flat}
	}
	n := first
	for _, b := range bufs {
		if len(b) > 0 {
			v.Set(n, b)
			n++
		}
	}
	return v.entries[:n]
}

// Entries returns the first n entries.
func (v *Vector) Entries(n int) []unix.Iovec { return v.entries[:n] }

// RawVector calls readv(2) or writev(2), and repeats an interrupted call. It does not notify the Go scheduler: the
// descriptor does not block, and the thread belongs to the NIC.
func RawVector(trap uintptr, fd int, v []unix.Iovec) (int, unix.Errno) {
	return raw(trap, fd, unsafe.Pointer(&v[0]), uintptr(len(v)))
}

// RawMessage calls sendmsg(2) or recvmsg(2) in the same way.
func RawMessage(trap uintptr, fd int, m *unix.Msghdr, flags int) (int, unix.Errno) {
	return raw(trap, fd, unsafe.Pointer(m), uintptr(flags))
}

func raw(trap uintptr, fd int, p unsafe.Pointer, arg uintptr) (int, unix.Errno) {
	for {
		r, _, e := unix.RawSyscall(trap, uintptr(fd), uintptr(p), arg)
		if e != unix.EINTR {
			return int(r), e
		}
	}
}
