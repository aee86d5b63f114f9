package udp

import (
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notices reports each warning once, and keeps the last one for Mode.
type notices struct {
	warn   func(string)
	port   uint16 // of the peers
	known  map[string]bool
	latest string
	hints  int // that tell has got from ICMP messages
}

// maxNotices is the maximum number of warnings to remember. maxHints is the maximum number of different hints by ICMP, which
// an off-path attacker can forge for any peer; the counter Refused counts all of them.
const (
	maxNotices = 256
	maxHints   = 64
)

func (n *notices) tell(what string) {
	if n.known[what] {
		return
	}
	if n.known == nil || len(n.known) >= maxNotices {
		n.known = map[string]bool{}
	}
	n.known[what] = true
	n.latest = what
	if n.warn != nil {
		n.warn(what)
	}
}

// hint reports an ICMP message for a peer. Nothing verifies such a message, and the port does not act on it.
func (n *notices) hint(peer netip.Addr, e unix.Errno) {
	text := "unverified ICMP message: " + n.meaning(peer, e)
	if n.known[text] {
		return
	}
	if n.hints >= maxHints {
		return
	}
	n.hints++
	n.tell(text)
}

func (n *notices) last() string { return n.latest }

// meanings explains errors of system calls and of ICMP messages.
var meanings = map[unix.Errno]string{
	unix.EMSGSIZE:     "packets are too long for the path to %v: choose a smaller path MTU, or a smaller MTU of the interface or route",
	unix.ECONNREFUSED: "%v refuses UDP port %d: it has no NIC",
	unix.EPERM:        "a firewall of this host forbids UDP to %v, port %d",
	unix.EACCES:       "UDP to %v is forbidden, by a route or a firewall on the way",
	unix.ENETUNREACH:  "there is no route to %v",
	unix.EHOSTUNREACH: "%v cannot be reached",
	unix.EFAULT:       "a program has freed memory that was being sent to %v",
	unix.EINVAL:       "the kernel does not send to %v from the NIC's address",
}

// failed reports an error for a peer.
func (n *notices) failed(peer netip.Addr, e unix.Errno) { n.tell(n.meaning(peer, e)) }

func (n *notices) meaning(peer netip.Addr, e unix.Errno) string {
	switch format, known := meanings[e]; {
	case strings.Contains(format, "%d"):
		return fmt.Sprintf(format, peer, n.port)
	case known:
		return fmt.Sprintf(format, peer)
	}
	return fmt.Sprintf("UDP to %v: %v", peer, e)
}

// drainErrors empties the error queue of a socket, and reports whether it contained an ICMP message.
func (p *Port) drainErrors(s *source) (remote bool) {
	for {
		var from [unix.SizeofSockaddrInet6]byte
		var oob [256]byte
		h := unix.Msghdr{Name: &from[0], Namelen: uint32(len(from)), Control: &oob[0]}
		h.SetControllen(len(oob))
		_, _, e := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&h)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return remote
		}
		remote = p.icmp(&from, oob[:h.Controllen]) || remote
	}
}

// extendedErr is struct sock_extended_err (linux/errqueue.h).
type extendedErr struct {
	errno              uint32
	origin, kind, code uint8
	_                  uint8
	info, data         uint32
}

// icmp reports an error for a datagram to a peer. It returns true if the error is an ICMP message.
func (p *Port) icmp(to *[unix.SizeofSockaddrInet6]byte, oob []byte) bool {
	for {
		level, typ, data, rest, ok := next(oob)
		if !ok {
			return false
		}
		oob = rest
		v4 := level == unix.IPPROTO_IP && typ == unix.IP_RECVERR
		if !v4 && (level != unix.IPPROTO_IPV6 || typ != unix.IPV6_RECVERR) || len(data) < int(unsafe.Sizeof(extendedErr{})) {
			continue
		}
		e := (*extendedErr)(unsafe.Pointer(&data[0]))
		if e.origin == unix.SO_EE_ORIGIN_LOCAL {
			return false // the send call returns the same error
		}
		p.Counters.Refused++
		n := (*name)(to)
		if a, ok := netip.AddrFromSlice(n.addr(v4)); ok {
			p.told.hint(a, unix.Errno(e.errno))
		}
		return true
	}
}
