package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/ethtool"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// iface is the name of the interface in both namespaces.
const iface = netlab.Veth

var start = time.Now()

func clock() mono.Time { return mono.Time(time.Since(start)) + 1 }

// veth creates two namespaces connected by a veth with this many queues.
func veth(t testing.TB, mtu, queues int) *netlab.Bed {
	t.Helper()
	b, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	for _, n := range b.NS {
		err := n.Do(func() error {
			l, err := netlink.LinkByName(iface)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetMTU(l, mtu), setQueues(l.Attrs().Name, queues))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// addrs returns the addresses of the interface of namespace i.
func addrs(i int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}), netip.MustParseAddr([]string{"fd00::1", "fd00::2"}[i])}
}

// open opens a port in namespace i.
func open(t testing.TB, b *netlab.Bed, i int, c Config) *Port {
	t.Helper()
	c.Interface, c.Netns, c.Addrs = iface, b.NS[i].Path(), addrs(i)
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	t.Logf("port %d: %s", i, p.Mode())
	return p
}

// frame returns a UDP frame with n bytes of payload that depend on their position.
func frame(src, dst netip.Addr, dport, id uint16, n int) *link.Frame {
	h := append(make([]byte, 12), 0x08, 0)
	if src.Is4() {
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(28+n))
		binary.BigEndian.PutUint16(ip[4:], id)
		h = append(append(append(h, ip...), src.AsSlice()...), dst.AsSlice()...)
	} else {
		h[12], h[13] = 0x86, 0xdd
		ip := []byte{0x60, 0, 0, 0, 0, 0, 17, 64}
		binary.BigEndian.PutUint16(ip[4:], uint16(8+n))
		h = append(append(append(h, ip...), src.AsSlice()...), dst.AsSlice()...)
	}
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp, 0xc123)
	binary.BigEndian.PutUint16(udp[2:], dport)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+n))
	h = append(h, udp...)
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ int(id))
	}
	third := n / 3
	return &link.Frame{Bufs: [][]byte{h, body[:third], nil, body[third:]}, Len: len(h) + n, HdrLen: len(h)}
}

// roce returns a RoCEv2 frame to the other namespace, over IPv4 or IPv6.
func roce(from int, six bool, id uint16, n int) *link.Frame {
	family := 0
	if six {
		family = 1
	}
	return frame(addrs(from)[family], addrs(1 - from)[family], 4791, id, n)
}

// recv waits up to the given time for a frame.
func recv(t testing.TB, p port.Port, buf []byte, wait time.Duration) (n int, ok bool) {
	t.Helper()
	for deadline := clock().Add(wait); ; {
		frame, _, err := p.Recv(clock(), buf)
		if err == nil {
			return copy(buf, frame), true
		}
		if !errors.Is(err, port.ErrAgain) {
			t.Fatal(err)
		}
		left := deadline.Sub(clock())
		if left <= 0 {
			return 0, false
		}
		waitFD(p, min(left, max(p.NextTimeout().Sub(clock()), 0)))
	}
}

func waitFD(p port.Port, d time.Duration) int16 {
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	unix.Ppoll(fds, &ts, nil)
	return fds[0].Revents
}

// send sends a frame without batching.
func send(t testing.TB, p *Port, f *link.Frame) {
	t.Helper()
	if err := p.Send(clock(), f); err != nil {
		t.Fatal(err)
	}
	p.flush(clock())
}

// until calls Recv of p, as its NIC would, until cond holds.
func until(t testing.TB, p port.Monitored, what string, cond func() bool) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for deadline := clock().Add(porttest.Limit); !cond(); {
		if clock() > deadline {
			t.Fatalf("waited in vain for %s; state %+v", what, p.State())
		}
		p.Recv(clock(), buf)
		waitFD(p, min(10*time.Millisecond, max(p.NextTimeout().Sub(clock()), 0)))
	}
}

// setQueues sets the numbers of receive and transmit queues of an interface in the calling thread's namespace.
func setQueues(name string, n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ch := channels{cmd: unix.ETHTOOL_SCHANNELS, rx: uint32(n), tx: uint32(n)}
	if err := ethtool.Request(fd, name, unsafe.Pointer(&ch)); err != nil {
		return fmt.Errorf("%d queues: %w", n, err)
	}
	return nil
}
