// Package porttest has fixtures for the tests of ports: networks, frames, and checks of received frames.
package porttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

var start = time.Now()

// Clock returns the time since the start of the program.
func Clock() mono.Time { return mono.Time(time.Since(start)) + 1 }

// Bed makes a network of two namespaces whose interfaces are bridged.
func Bed(t testing.TB) *netlab.Bed {
	t.Helper()
	b, err := netlab.New()
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// WarmUp waits until frames pass from tx to rx. The kernel takes up to a second to notify a bridge that a port of it has
// come up.
func WarmUp(t testing.TB, tx, rx port.Port) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for range 500 {
		MustSend(t, tx, Frame(Addr4[0], Addr4[1], 0, 0, 16))
		if _, _, ok := Recv(t, rx, buf, 10*time.Millisecond); ok {
			for ok {
				_, _, ok = Recv(t, rx, buf, 20*time.Millisecond)
			}
			return
		}
	}
	t.Fatal("no frame passed")
}

// Addresses of the two ends of a test, by namespace.
var (
	Addr4 = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}
	Addr6 = [2]netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
)

// Frame builds a frame with n bytes of UDP payload to the RoCEv2 port, or a super-frame if segSize is not 0. Each byte of
// the payload depends on its position.
func Frame(src, dst netip.Addr, id uint16, segSize, n int) *link.Frame {
	h := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 0x08, 0)
	if src.Is4() {
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(28+n))
		binary.BigEndian.PutUint16(ip[4:], id)
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		inet.PutChecksum(ip[10:], 0, ip)
		h = append(h, ip...)
	} else {
		h[12], h[13] = 0x86, 0xdd
		ip := []byte{0x60, 0, 0, 0, 0, 0, 17, 64}
		binary.BigEndian.PutUint16(ip[4:], uint16(8+n))
		h = append(append(append(h, ip...), src.AsSlice()...), dst.AsSlice()...)
	}
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp, 0xc123)
	binary.BigEndian.PutUint16(udp[2:], 4791)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+n))
	if segSize != 0 {
		pseudo := append(src.AsSlice(), dst.AsSlice()...)
		binary.BigEndian.PutUint16(udp[6:], ^inet.Checksum(uint64(17+8+n), pseudo))
	}
	h = append(h, udp...)
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ int(id))
	}
	half := n / 3
	return &link.Frame{Bufs: [][]byte{h, body[:half], nil, body[half:]}, Len: len(h) + n, HdrLen: len(h), SegSize: segSize}
}

// isTest reports whether b is a frame of Frame, in contrast to neighbour discovery of the kernel.
func isTest(b []byte) bool {
	l4, _, _, ok := inet.UDPBody(b)
	return ok && binary.BigEndian.Uint16(b[l4+2:]) == 4791
}

// Limit is a time to wait for a frame that must arrive. Only a failing test waits so long.
const Limit = time.Minute

// Recv waits up to the given time for a frame of Frame, and copies it into buf.
func Recv(t testing.TB, p port.Port, buf []byte, wait time.Duration) (n, segSize int, ok bool) {
	t.Helper()
	for deadline := Clock().Add(wait); ; {
		frame, segSize, err := p.Recv(Clock(), buf)
		if err == nil {
			if isTest(frame) {
				return copy(buf, frame), segSize, true
			}
			continue
		}
		if !errors.Is(err, port.ErrAgain) {
			t.Fatal(err)
		}
		left := deadline.Sub(Clock())
		if left <= 0 {
			return 0, 0, false
		}
		WaitFD(p, min(left, max(p.NextTimeout().Sub(Clock()), 0)))
	}
}

// WaitFD waits until the descriptor of a port is readable, and returns its events.
func WaitFD(p port.Port, d time.Duration) int16 {
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	unix.Ppoll(fds, &ts, nil)
	return fds[0].Revents
}

// MustSend sends a frame.
func MustSend(t testing.TB, p port.Port, f *link.Frame) {
	t.Helper()
	if err := p.Send(Clock(), f); err != nil {
		t.Fatal(err)
	}
}

// Until calls Recv of p, as its NIC would, until cond holds.
func Until(t testing.TB, p port.Monitored, what string, cond func() bool) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for deadline := Clock().Add(Limit); !cond(); {
		if Clock() > deadline {
			t.Fatalf("timeout waiting for %s; state %+v", what, p.State())
		}
		p.Recv(Clock(), buf)
		WaitFD(p, min(10*time.Millisecond, max(p.NextTimeout().Sub(Clock()), 0)))
	}
}

// DirectBed makes a network without bridges in the namespaces that direct selects. See SetMACs.
func DirectBed(t testing.TB, direct [2]bool) *netlab.Bed {
	t.Helper()
	b, err := netlab.NewDirect(direct)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	SetMACs(t, b, direct)
	return b
}

// SetMACs gives the interfaces that direct selects the MACs of the frames of Frame, which go from namespace 0 to
// namespace 1.
func SetMACs(t testing.TB, b *netlab.Bed, direct [2]bool) {
	t.Helper()
	for i, n := range b.NS {
		if !direct[i] {
			continue // a TAP behind the bridge has the MAC
		}
		mac := []byte{2, 0, 0, 0, 0, byte(i + 1)}
		err := n.Do(func() error {
			l, err := netlink.LinkByName(netlab.Veth)
			if err != nil {
				return err
			}
			return netlink.LinkSetHardwareAddr(l, mac)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// CheckSuperFrame sends a super-frame and checks that its segments arrive. whole says whether they must arrive in one
// frame, or one by one. Each segment must be the one that the sender has computed its ICRC over: IP ID base plus i,
// and its own lengths. sums says whether the kernel must have computed their UDP checksums.
func CheckSuperFrame(t testing.TB, tx, rx port.Port, f *link.Frame, whole, sums bool) {
	t.Helper()
	flat := f.AppendTo(nil)
	segs := link.Segments(flat, f.SegSize)
	MustSend(t, tx, f)
	buf := make([]byte, 1<<17)
	var seg int
	for i := 0; i < segs; {
		n, s, ok := Recv(t, rx, buf, 2*time.Second)
		if !ok {
			t.Fatalf("segment %d of %d has not arrived", i, segs)
		}
		if got := link.Segments(buf[:n], s); whole != (got == segs) {
			t.Fatalf("received %d of %d segments at once", got, segs)
		}
		for k := range link.Segments(buf[:n], s) {
			want := link.Segment(nil, flat, f.SegSize, i)
			got := buf[:n]
			if whole {
				got = link.Segment(nil, buf[:n], s, k)
			}
			if sums {
				checkUDPSum(t, got, f.HdrLen)
			}
			binary.BigEndian.PutUint16(got[f.HdrLen-2:], 0)
			if !bytes.Equal(got, want) {
				t.Fatalf("segment %d:\ngot  %x\nwant %x", i, got[:f.HdrLen+8], want[:f.HdrLen+8])
			}
			i++
		}
		seg = s
	}
	if whole && seg != f.SegSize {
		t.Fatalf("segment size %d, want %d", seg, f.SegSize)
	}
}

// checkUDPSum checks the UDP checksum that the kernel has computed for a segment, as receivers other than a NIC of roced
// do. The frames of link.Segment have none.
func checkUDPSum(t testing.TB, frame []byte, hdrLen int) {
	t.Helper()
	addrs := frame[26:34]
	if frame[12] == 0x86 {
		addrs = frame[22:54]
	}
	udp := frame[hdrLen-8:]
	if len(udp)%2 != 0 {
		udp = append(udp[:len(udp):len(udp)], 0)
	}
	if s := inet.Checksum(uint64(17+len(frame)-hdrLen+8)+uint64(^inet.Checksum(0, addrs)), udp); s != 0 {
		t.Fatalf("UDP checksum is wrong: %#x", s)
	}
}

// DeleteLink deletes an interface of a namespace.
func DeleteLink(t testing.TB, n *namespace.Namespace, name string) {
	t.Helper()
	ChangeLink(t, n, name, netlink.LinkDel)
}

// ChangeLink applies change to an interface of a namespace.
func ChangeLink(t testing.TB, n *namespace.Namespace, name string, change func(netlink.Link) error) {
	t.Helper()
	err := n.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return change(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Count receives all pending frames and counts frames and segments.
func Count(t testing.TB, p port.Port) (frames, segments int) {
	buf := make([]byte, 1<<17)
	for {
		n, seg, ok := Recv(t, p, buf, 50*time.Millisecond)
		if !ok {
			return frames, segments
		}
		frames++
		segments += link.Segments(buf[:n], seg)
	}
}
