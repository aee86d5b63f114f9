package engine

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/packet"
	"roced.io/roced/port/xdp"
)

// xdpLink is a link that exchanges RoCEv2 frames by AF_XDP and receives all others by a packet socket, which does not see the
// frames that XDP takes: ARP, neighbour discovery and raw flows.
type xdpLink struct {
	*xdp.Port
	rest *packet.Port
	wait int // an epoll descriptor over both
	in   int // the descriptor of the XDP port that it contains, -1 for none
	turn bool
}

// openXDP opens a link on an interface for RoCEv2 frames to addrs.
func openXDP(device, ns string, addrs []netip.Addr) (_ port.Monitored, err error) {
	l := &xdpLink{in: -1, wait: -1}
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	if l.rest, err = packet.Open(packet.Config{Interface: device, Netns: ns, All: true}); err != nil {
		return nil, err
	}
	if l.Port, err = xdp.Open(xdp.Config{Interface: device, Netns: ns, Addrs: addrs}); err != nil {
		return nil, err
	}
	if l.wait, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	return l, l.add(l.rest.FD())
}

// add adds a descriptor to those that the loop waits for.
func (l *xdpLink) add(fd int) error {
	if fd < 0 {
		return nil
	}
	return unix.EpollCtl(l.wait, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// FD implements port.Port.
func (l *xdpLink) FD() int {
	fd := l.Port.FD()
	if fd != l.in { // the kernel removes a closed descriptor
		if l.in = fd; l.add(fd) != nil {
			l.in = -1
		}
	}
	if fd < 0 {
		return -1
	}
	return l.wait
}

// Recv implements port.Port. The two sockets take turns.
func (l *xdpLink) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	l.turn = !l.turn
	for i := range 2 {
		if (i == 0) == l.turn {
			frame, segSize, err = l.Port.Recv(now, buf)
		} else if frame, segSize, err = l.rest.Recv(now, buf); errors.Is(err, port.ErrDown) {
			err = port.ErrAgain // the XDP port decides
		}
		if err == nil || !errors.Is(err, port.ErrAgain) {
			break
		}
	}
	return frame, segSize, err
}

// NextTimeout implements port.Port.
func (l *xdpLink) NextTimeout() mono.Time { return l.Port.NextTimeout().Min(l.rest.NextTimeout()) }

// Poll implements port.Monitored.
func (l *xdpLink) Poll(now mono.Time) {
	l.Port.Poll(now)
	l.rest.Poll(now)
}

// Close implements port.Port.
func (l *xdpLink) Close() error {
	port.CloseSocket(&l.wait)
	var errs []error
	if l.Port != nil {
		errs = append(errs, l.Port.Close())
	}
	if l.rest != nil {
		errs = append(errs, l.rest.Close())
	}
	return errors.Join(errs...)
}
