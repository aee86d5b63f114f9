package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Now()

func clock() mono.Time { return mono.Time(time.Since(start)) + 1 }

var (
	addr4 = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}
	addr6 = [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	macs  = [2]inet.MAC{{2, 0, 0, 0, 0, 0xa}, {2, 0, 0, 0, 0, 0xb}}
)

// bed creates two namespaces whose interfaces have the addresses.
func bed(t testing.TB) *netlab.Bed {
	t.Helper()
	b, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// open opens a port in namespace i. It appends warnings to the returned slice.
func open(t testing.TB, b *netlab.Bed, i int, addrs ...netip.Addr) (*Port, *[]string) {
	t.Helper()
	if addrs == nil {
		addrs = []netip.Addr{addr4[i], addr6[i]}
	}
	warnings := &[]string{}
	p, err := Open(Config{Netns: b.NS[i].Path(), MAC: macs[i],
		Warn: func(what string) { *warnings = append(*warnings, what) }}, 0, addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.SetLink(0, link.State{Up: true, MTU: namespace.MTU})
	return p, warnings
}

func openBoth(t testing.TB) (b *netlab.Bed, tx, rx *Port) {
	t.Helper()
	b = bed(t)
	tx, _ = open(t, b, 0)
	rx, _ = open(t, b, 1)
	hello(t, tx, rx, addr4[0], addr4[1])
	hello(t, tx, rx, addr6[0], addr6[1])
	return b, tx, rx
}

// packet returns a RoCEv2 packet without its ICRC: a BTH and size bytes that depend on their position.
func packet(place, size int) []byte {
	b := make([]byte, bth.BTHLen+size)
	b[0], b[1] = 0x64, 0x40
	binary.BigEndian.PutUint32(b[8:], uint32(place))
	for i := range size {
		b[bth.BTHLen+i] = byte(i ^ i>>8 ^ place)
	}
	return b
}

// frame returns a frame or super-frame of packets with equal sizes; the last one may be shorter.
func frame(src, dst netip.Addr, port uint16, tos uint8, packets ...[]byte) *link.Frame {
	var whole, one []byte
	for i, p := range packets {
		h := headers(src, dst, port, tos, uint16(i), len(p)+bth.ICRCLen)
		one = append(append(h, p...), 0, 0, 0, 0)
		if err := bth.SealICRC(one[ethLen:]); err != nil {
			panic(err)
		}
		whole = append(whole, one[len(h):]...)
	}
	h := headers(src, dst, port, tos, 0, len(whole))
	f := &link.Frame{Bufs: [][]byte{h, whole[:7], nil, whole[7:]}, Len: len(h) + len(whole), HdrLen: len(h)}
	if len(packets) > 1 {
		f.SegSize = len(packets[0]) + bth.ICRCLen
	}
	return f
}

func headers(src, dst netip.Addr, port uint16, tos uint8, id uint16, size int) []byte {
	var h header
	h.init(link.SocketMAC(dst), dst, bth.UDPPort)
	var from name
	gid := inet.GIDOf(src)
	from.set(&gid, src.Is4(), port, 0)
	b := make([]byte, h.len)
	h.put(b, &from, tos, size)
	if src.Is4() {
		ip := b[ethLen:]
		binary.BigEndian.PutUint16(ip[4:], id)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], inet.Checksum(0, ip[:ipv4Len]))
	}
	return b
}

func mustSend(t testing.TB, p *Port, f *link.Frame) {
	t.Helper()
	if err := p.Send(clock(), f); err != nil {
		t.Fatal(err)
	}
}

// recv waits for a frame and returns its segments as frames.
func recv(t testing.TB, p *Port, wait time.Duration) (segments [][]byte) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for deadline := clock().Add(wait); ; {
		frame, size, err := p.Recv(clock(), buf)
		if err == nil {
			for i := range link.Segments(frame, size) {
				segments = append(segments, link.Segment(nil, frame, size, i))
			}
			return segments
		}
		if !errors.Is(err, port.ErrAgain) {
			t.Fatal(err)
		}
		left := deadline.Sub(clock())
		if left <= 0 {
			return nil
		}
		waitFD(p, min(left, max(p.NextTimeout().Sub(clock()), 0)))
	}
}

func waitFD(p *Port, d time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	n, _ := unix.Ppoll(fds, &ts, nil)
	return n > 0
}

// recvAll receives this many segments.
func recvAll(t testing.TB, p *Port, count int) (segments [][]byte) {
	t.Helper()
	for len(segments) < count {
		more := recv(t, p, porttest.Limit)
		if more == nil {
			t.Fatalf("%d of %d datagrams", len(segments), count)
		}
		segments = append(segments, more...)
	}
	return segments
}

// hello waits until datagrams arrive: the kernel adds the routes of an interface only when it has a carrier.
func hello(t testing.TB, from, to *Port, src, dst netip.Addr) {
	t.Helper()
	for deadline := clock().Add(porttest.Limit); clock() < deadline; {
		mustSend(t, from, frame(src, dst, 0xc000, 0, packet(0, 4)))
		if recv(t, to, 100*time.Millisecond) != nil {
			for recv(t, to, 20*time.Millisecond) != nil {
			}
			return
		}
	}
	t.Fatalf("nothing gets from %v to %v", src, dst)
}

// onVeth runs f with the interface of a namespace.
func onVeth(t testing.TB, n *namespace.Namespace, f func(netlink.Link) error) {
	t.Helper()
	err := n.Do(func() error {
		l, err := netlink.LinkByName(netlab.Veth)
		if err != nil {
			return err
		}
		return f(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}
