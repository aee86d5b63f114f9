package dut

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
)

// wire carries Ethernet frames between the tester and the device.
type wire struct {
	fd   int
	to   unix.Sockaddr // of AF_UNIX: the device's socket
	path string        // of our socket, removed by close
	mtu  int           // of the interface, 0 if there is none
	vnet bool          // frames have a virtio header, so that super-frames can be segmented
}

// testerSuffix is added to the path of the device's socket: the tester's socket.
const testerSuffix = ".tester"

// openLink opens the link that --link names: an interface, tap:NAME, or unix:PATH.
func openLink(name string) (*wire, error) {
	if path, ok := strings.CutPrefix(name, "unix:"); ok {
		return openSocket(path+testerSuffix, path)
	}
	if device, ok := strings.CutPrefix(name, "tap:"); ok {
		return openTAP(device)
	}
	return openInterface(name)
}

// openSocket returns a link of AF_UNIX datagrams, as QEMU and the daemon's port "unix" have it. It replaces a socket file that no
// process holds.
func openSocket(local, remote string) (*wire, error) {
	const longest = len(unix.RawSockaddrUnix{}.Path) - 1
	if len(local) > longest {
		return nil, fmt.Errorf("link %s: the path has %d bytes; a socket's path has at most %d", local, len(local), longest)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &wire{fd: fd, to: &unix.SockaddrUnix{Name: remote}}
	at := &unix.SockaddrUnix{Name: local}
	err = unix.Bind(fd, at)
	if err == unix.EADDRINUSE {
		switch i, e := os.Lstat(local); {
		case e == nil && i.Mode().Type() != os.ModeSocket:
			err = errors.New("the file is not a socket; remove it, or use another path")
		case unix.Connect(fd, at) == unix.ECONNREFUSED:
			err = cmp.Or(os.Remove(local), unix.Bind(fd, at))
		default:
			err = fmt.Errorf("another process has this socket; end the one that \"ss -xap | grep %s\" names, or use another path", local)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("link %s: %w", local, err), l.close())
	}
	l.path = local
	return l, l.prepare()
}

// openInterface returns a link on an Ethernet interface, by AF_PACKET. It needs CAP_NET_RAW. The tester has an address of its
// own there, for which the interface becomes promiscuous.
func openInterface(name string) (*wire, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w; name an interface of ip link, tap:NAME or unix:PATH", name, err)
	}
	const all = 0x0300 // ETH_P_ALL in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		return nil, fmt.Errorf("link %s: packet socket, which needs CAP_NET_RAW: %w", name, err)
	}
	l := &wire{fd: fd, mtu: i.MTU}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		return nil, errors.Join(fmt.Errorf("link %s: %w", name, err), l.close())
	}
	// A virtual interface delivers super-frames, and frames whose checksum the kernel would compute when they leave. The kernel
	// removes VLAN tags, and delivers them beside the frame.
	for name, option := range map[string]int{"PACKET_VNET_HDR": unix.PACKET_VNET_HDR, "PACKET_AUXDATA": unix.PACKET_AUXDATA} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			return nil, errors.Join(fmt.Errorf("link %s: %s: %w", i.Name, name, err), l.close())
		}
	}
	l.vnet = true
	m := unix.PacketMreq{Ifindex: int32(i.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return nil, errors.Join(fmt.Errorf("link %s: %w", name, err), l.close())
	}
	return l, l.prepare()
}

// openTAP returns a link on a TAP device, which it creates if it does not exist. The device's side is the interface.
func openTAP(name string) (*wire, error) {
	if len(name) == 0 || len(name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("link tap:%s: the name has %d bytes; an interface's name has 1 to %d", name, len(name), unix.IFNAMSIZ-1)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link tap:%s: /dev/net/tun: %w", name, err)
	}
	l := &wire{fd: fd}
	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("link tap:%s: the TAP device, which needs CAP_NET_ADMIN: %w", name, err), l.close())
	}
	if i, err := net.InterfaceByName(name); err == nil {
		l.mtu = i.MTU
	}
	return l, nil
}

// prepare asks for the kernel's time of each received frame.
func (l *wire) prepare() error {
	if err := unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return errors.Join(fmt.Errorf("time stamps: %w", err), l.close())
	}
	return nil
}

// sendLimit bounds the wait for a link that is full. Tests shorten it.
var sendLimit = 2 * time.Second

// send sends a frame. It waits while the link is full.
func (l *wire) send(frame []byte) error {
	if l.vnet {
		frame = append(make([]byte, vnet.HeaderLen), frame...)
	}
	return untilRoom(func() (err error) {
		if l.to == nil {
			_, err = unix.Write(l.fd, frame)
			return err
		}
		return unix.Sendto(l.fd, frame, 0, l.to)
	})
}

// untilRoom repeats a send while the queue of a socket, a TAP device or an interface (ENOBUFS) is full. It polls by time,
// because the kernel does not tell when the queue of another socket has room.
func untilRoom(send func() error) error {
	const pause = 100 * time.Microsecond
	for began := time.Now(); ; time.Sleep(pause) {
		err := send()
		if err != unix.EAGAIN && err != unix.ENOBUFS {
			return err
		}
		if time.Since(began) > sendLimit {
			return fmt.Errorf("full for %v: %w", sendLimit, err)
		}
	}
}

// received describes a frame that has been read.
type received struct {
	n   int
	age time.Duration // since the kernel received the frame; 0 of a TAP
	own bool          // this side sent the frame
	tag []byte        // VLAN tag that the kernel has removed, nil for none
}

// recv reads a frame into b.
func (l *wire) recv(b []byte) (r received, err error) {
	var control [256]byte
	n, used, _, from, err := unix.Recvmsg(l.fd, b, control[:], 0)
	if err == unix.ENOTSOCK {
		n, err = unix.Read(l.fd, b)
		return received{n: n}, err
	}
	if err != nil {
		return r, err
	}
	r.n = n
	if a, ok := from.(*unix.SockaddrLinklayer); ok {
		r.own = a.Pkttype == unix.PACKET_OUTGOING
	}
	messages, err := unix.ParseSocketControlMessage(control[:used])
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})):
			t := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			r.age = max(0, time.Since(time.Unix(t.Unix())))
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA:
			r.tag = removedTag(m.Data)
		}
	}
	return r, err
}

// removedTag returns the VLAN tag in a struct tpacket_auxdata (packet(7)), nil if the frame had none.
func removedTag(aux []byte) []byte {
	const tci, tpid, length = 16, 18, 20
	if len(aux) < length || binary.NativeEndian.Uint32(aux)&unix.TP_STATUS_VLAN_VALID == 0 {
		return nil
	}
	kind := uint16(etherVLAN)
	if binary.NativeEndian.Uint32(aux)&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		kind = binary.NativeEndian.Uint16(aux[tpid:])
	}
	tag := binary.BigEndian.AppendUint16(nil, kind)
	return binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(aux[tci:]))
}

// Fields of the virtio header (virtio 1.2, 5.1.6).
const (
	vnetNeedsChecksum = 1
	vnetUDPSegments   = 5
)

// split returns the frames of received bytes with their tag: the segments of a super-frame, else one. Missing UDP checksums become 0.
func (l *wire) split(b, tag []byte) [][]byte {
	if !l.vnet {
		return [][]byte{b}
	}
	if len(b) < vnet.HeaderLen {
		return nil
	}
	h, frame := b[:vnet.HeaderLen], b[vnet.HeaderLen:]
	size := 0
	if h[1] == vnetUDPSegments {
		size = int(binary.NativeEndian.Uint16(h[4:]))
	} else if l4, body, _, ok := inet.UDPBody(frame); ok && h[0]&vnetNeedsChecksum != 0 {
		clear(frame[l4+6 : body])
	}
	frames := make([][]byte, link.Segments(frame, size))
	for i := range frames {
		frames[i] = retag(link.Segment(nil, frame, size, i), tag)
	}
	return frames
}

// wait blocks until a frame can be read, at most for d.
func (l *wire) wait(d time.Duration) (bool, error) {
	p := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(d.Milliseconds()))
	if err == unix.EINTR {
		return false, nil
	}
	return n > 0, err
}

func (l *wire) close() error {
	err := unix.Close(l.fd)
	if l.path != "" {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
