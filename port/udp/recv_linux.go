package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
)

// Recv implements port.Port. The received data follows the headers that the port makes.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if now >= p.Next {
		p.Poll(now)
	}
	if p.FD() < 0 {
		return nil, 0, port.ErrDown
	}
	if len(buf) <= maxHdr {
		return nil, 0, errors.New("udp: no room for a datagram")
	}
	for {
		frame, segSize, err := p.recvAny(buf)
		if err != nil || !p.fromItself(frame) {
			return frame, segSize, err
		}
		if !p.hot.addr.IsMulticast() {
			p.Counters.RecvDropped++
		}
	}
}

// maxStreak is the maximum number of consecutive receptions by one address while others may wait.
const maxStreak = 64

// A port with several addresses has to ask epoll for the one with a datagram. If the same address received several
// times in a row, the port tries that one first, which saves a call. Other addresses wait for maxTries calls at most.
const (
	warmFrom = 16
	maxTries = 15
)

// recvAny receives for the address that received last, or for another one if that has no datagram.
func (p *Port) recvAny(buf []byte) (frame []byte, segSize int, err error) {
	alone := len(p.locals)+len(p.groups) == 1
	if p.streak++; p.hot != nil && (alone || p.streak < maxStreak || !p.batch.empty()) {
		frame, segSize, err := p.recv(p.hot, buf)
		if err == port.ErrAgain && !alone {
			p.hot = nil // the next call checks the others; the caller handles received frames first
		}
		return frame, segSize, err
	}
	if p.hot == nil && p.warm != nil && p.row >= warmFrom && p.tries < maxTries {
		p.tries++
		frame, segSize, err := p.recv(p.warm, buf)
		if err != port.ErrAgain {
			p.hot, p.streak = p.warm, 1
		}
		return frame, segSize, err
	}
	p.streak, p.tries = 0, 0
	if p.hot = p.readable(); p.hot == nil {
		return nil, 0, port.ErrAgain
	}
	if p.row++; p.hot != p.warm {
		p.warm, p.row = p.hot, 0
	}
	return p.recv(p.hot, buf)
}

// readable returns an address with a received datagram, nil if there is none. It prefers an address other than the last
// one.
func (p *Port) readable() (l *local) {
	if len(p.locals) == 1 && len(p.groups) == 0 {
		return p.locals[0]
	}
	var ev [8]unix.EpollEvent
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(&ev[0])), uintptr(len(ev)), 0, 0, 0)
	if e != 0 {
		return nil
	}
	for i := range ev[:n] {
		for _, list := range [2][]*local{p.locals, p.groups} {
			for _, c := range list {
				if c.rx == int(ev[i].Fd) && (l == nil || l == p.hot) {
					l = c
				}
			}
		}
	}
	return l
}

// recv receives a datagram, or several that the kernel has coalesced.
func (p *Port) recv(l *local, buf []byte) (frame []byte, segSize int, err error) {
	if p.batch.of == l {
		if frame, segSize, ok := p.batch.take(p); ok {
			return frame, segSize, nil
		}
		if p.batch.dry {
			p.batch.dry = false
			return nil, 0, port.ErrAgain
		}
		if p.batch.worth() {
			return p.recvBatch(l)
		}
	}
	m := &p.in
	m.expect(buf[l.hdr.len:])
	size, e := m.do(unix.SYS_RECVMSG, l.rx, 0)
	if e == unix.EAGAIN {
		return nil, 0, port.ErrAgain
	}
	if e != 0 {
		return nil, 0, fmt.Errorf("udp: %v: receive: %w", l.addr, e)
	}
	p.batch.note(l, size)
	seg := p.head(l, &m.name, m.ctl.received(&m.hdr), buf, size)
	return buf[:l.hdr.len+size], seg, nil
}

// head makes the headers of received data from the control messages ctl, and returns the segment size.
func (p *Port) head(l *local, from *name, ctl []byte, buf []byte, size int) (segSize int) {
	tos, segSize := p.control(l, ctl)
	if segSize >= size {
		segSize = 0
	}
	l.hdr.put(buf, from, tos, size)
	return segSize
}

// control parses the control messages of a received message.
func (p *Port) control(l *local, b []byte) (tos uint8, segSize int) {
	for {
		level, typ, data, rest, ok := next(b)
		if !ok {
			return tos, segSize
		}
		b = rest
		switch {
		case len(data) == 0:
		case level == unix.IPPROTO_IP && typ == unix.IP_TOS, level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS:
			tos = data[0]
		case len(data) < 4:
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO:
			segSize = int(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL:
			p.dropped(l, binary.NativeEndian.Uint32(data))
		}
	}
}

// dropped counts datagrams that the kernel has dropped for lack of room. drops is the total since the socket was opened.
func (p *Port) dropped(l *local, drops uint32) {
	if drops == l.drops {
		return
	}
	p.Counters.Overruns += uint64(drops - l.drops)
	l.drops = drops
	p.told.tell(fmt.Sprintf("the kernel has dropped datagrams to %v: %s", l.addr, dropReason(l.room()/2)))
}

// dropReason explains drops at a socket with a buffer of so many bytes, as rocectl doctor does.
func dropReason(size int) string {
	text := fmt.Sprintf("the socket buffer of %d KiB was full", size>>10)
	if size < port.ReceiveBuffer {
		return text + "; " + port.RaiseReceiveBuffer
	}
	return text + ": the daemon gets too little processor time"
}

// room returns the size of the receive buffer in bytes. The kernel doubles the size that was set, for its own data.
func (l *local) room() int {
	n, _ := unix.GetsockoptInt(l.rx, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return n
}
