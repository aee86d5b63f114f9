// Package planes is a link on several ports, each in a plane of the network. The planes are separate: no frame gets from one
// to another.
//
// The UDP source port of a RoCEv2 packet, which MRC selects by its entropy values, selects the plane. If the port there is
// down, the packet takes the next plane whose port is up. EV probes of MRC keep their plane, because they test it. Other
// frames, such as ARP, leave in all planes: a peer may have lost any of them.
//
// All ports have the same Ethernet and IP addresses. So headers and ICRC of a packet do not depend on its plane.
//
// No promise: this package may change between releases.
package planes

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Port is a link on several ports. It is up while one of them is. A port without room for a frame delays the frames of all
// planes.
type Port struct {
	planes []plane
	next   int // plane to receive from
	ep     int // epoll set of all descriptors; -1: closed
}

// plane is one of the ports.
type plane struct {
	port.Monitored
	traffic Traffic
	blocked bool // it had no room for a frame
	watched int  // descriptor in the epoll set, -1: none
	mask    uint32
}

// Traffic counts the bytes of the frames of a plane, from the Ethernet header on.
type Traffic struct{ Sent, Received uint64 }

// New returns the link of these ports, in the order of the planes. It owns them unless it fails.
func New(ports []port.Monitored) (*Port, error) {
	if len(ports) < 1 || len(ports) > path.MaxPlanes {
		return nil, fmt.Errorf("planes: %d ports: must be from 1 to %d", len(ports), path.MaxPlanes)
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("planes: epoll: %w", err)
	}
	p := &Port{ep: ep}
	for _, q := range ports {
		p.planes = append(p.planes, plane{Monitored: port.NewBacklog(q), watched: -1})
	}
	return p, nil
}

// Send implements port.Port.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	first, probe, ok := p.planeOf(f)
	if !ok {
		return p.sendAll(now, f)
	}
	for i := range p.planes {
		err := p.planes[(first+i)%len(p.planes)].send(now, f)
		if err != port.ErrDown || probe {
			return err
		}
	}
	return port.ErrDown
}

// planeOf returns the plane of a RoCEv2 packet, and whether it is an EV probe. ok is false for other frames.
func (p *Port) planeOf(f *link.Frame) (i int, probe, ok bool) {
	b, body := f.Bufs[0], f.HdrLen
	if body == 0 { // all of the frame is in b
		if _, body, _, ok = inet.UDPBody(b); !ok {
			return 0, false, false
		}
	}
	source := binary.BigEndian.Uint16(b[body-inet.UDPLen:])
	return path.EVPlane(bth.JoinEntropy(source, 0), len(p.planes)), isProbe(b[body:]), true
}

// isProbe reports whether a packet, from its BTH on, is an EV probe.
func isProbe(b []byte) bool {
	if len(b) < bth.BTHLen+bth.ERTHLen || bth.Opcode(b[0]) != bth.OpcodeMRCEndpointRequest {
		return false
	}
	var h bth.ERTH
	h.Decode(b[bth.BTHLen:])
	return h.Op == bth.MRCEVProbe
}

// sendAll sends a frame in all planes. It fails only if no port takes the frame.
func (p *Port) sendAll(now mono.Time, f *link.Frame) error {
	all := port.ErrDown
	for i := range p.planes {
		switch err := p.planes[i].send(now, f); {
		case err == nil:
			all = nil
		case all == port.ErrDown:
			all = err
		}
	}
	return all
}

// send sends a frame in the plane.
func (q *plane) send(now mono.Time, f *link.Frame) error {
	err := q.Send(now, f)
	q.blocked = err == port.ErrAgain
	if err == nil {
		q.traffic.Sent += uint64(f.Len)
	}
	return err
}

// Recv implements port.Port. The planes take turns, frame by frame, so that they reorder packets little.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	result := port.ErrDown
	for range p.planes {
		q := &p.planes[p.next]
		p.pass()
		frame, segSize, err = q.Recv(now, buf)
		switch err {
		case nil:
			q.traffic.Received += uint64(len(frame))
			return frame, segSize, nil
		case port.ErrDown:
		case port.ErrAgain:
			result = err
		default:
			return nil, 0, err
		}
	}
	return nil, 0, result
}

// pass gives the next plane its turn to deliver frames.
func (p *Port) pass() { p.next = (p.next + 1) % len(p.planes) }

// NextTimeout implements port.Port.
func (p *Port) NextTimeout() mono.Time {
	t := mono.Never
	for i := range p.planes {
		t = t.Min(p.planes[i].NextTimeout())
	}
	return t
}

// FD implements port.Port. The descriptor is readable when a port has frames, or has room for a frame again.
func (p *Port) FD() int {
	up := false
	for i := range p.planes {
		q := &p.planes[i]
		q.watch(p.ep)
		up = up || q.watched >= 0
	}
	if !up {
		return -1
	}
	return p.ep
}

// watch updates the descriptor of the plane in the epoll set.
func (q *plane) watch(ep int) {
	fd, mask := q.FD(), uint32(unix.EPOLLIN)
	if q.blocked {
		mask |= unix.EPOLLOUT
	}
	if fd == q.watched && (fd < 0 || mask == q.mask) {
		return
	}
	op := unix.EPOLL_CTL_MOD
	if fd != q.watched {
		if op = unix.EPOLL_CTL_ADD; q.watched >= 0 {
			_ = unix.EpollCtl(ep, unix.EPOLL_CTL_DEL, q.watched, nil) // fails if the descriptor has been closed
		}
	}
	if fd >= 0 && unix.EpollCtl(ep, op, fd, &unix.EpollEvent{Events: mask, Fd: int32(fd)}) != nil {
		fd = -1 // the next call tries again
	}
	q.watched, q.mask = fd, mask
}

// Offload implements port.Port: the super-frames that all ports accept that are up.
func (p *Port) Offload() (o link.Offload) {
	first := true
	for i := range p.planes {
		q := &p.planes[i]
		if !q.State().Up {
			continue
		}
		own := q.Offload()
		if first {
			o, first = own, false
		}
		o.MaxSegments, o.MaxBytes = min(o.MaxSegments, own.MaxSegments), min(o.MaxBytes, own.MaxBytes)
	}
	return o
}

// State implements port.Monitored. The MTU is that of the plane with the smallest.
func (p *Port) State() (s link.State) {
	for i := range p.planes {
		q := p.planes[i].State()
		if q.Up {
			s.Up = true
			s.Ports |= 1 << i
		}
		if q.MTU != 0 && (s.MTU == 0 || q.MTU < s.MTU) {
			s.MTU = q.MTU
		}
		if s.Err == nil {
			s.Err = q.Err
		}
	}
	if s.Up {
		s.Err = nil
	}
	return s
}

// Poll implements port.Monitored.
func (p *Port) Poll(now mono.Time) {
	for i := range p.planes {
		p.planes[i].Poll(now)
	}
}

// Stats implements port.Monitored.
func (p *Port) Stats() (s port.Stats) {
	for i := range p.planes {
		s.Add(p.planes[i].Stats())
	}
	return s
}

// Plane returns the state of plane i, and its traffic.
func (p *Port) Plane(i int) (link.State, Traffic) {
	return p.planes[i].State(), p.planes[i].traffic
}

// Close implements port.Port.
func (p *Port) Close() error {
	var errs []error
	for i := range p.planes {
		errs = append(errs, p.planes[i].Close())
	}
	if p.ep >= 0 {
		errs = append(errs, unix.Close(p.ep))
		p.ep = -1
	}
	return errors.Join(errs...)
}

var _ port.Monitored = (*Port)(nil)
