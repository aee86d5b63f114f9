package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/rocev2"
)

// directBed makes the network without bridges where direct says so. The interfaces
// have the MACs of the frames that tests send from namespace 0 to namespace 1.
func directBed(t testing.TB, direct [2]bool) *netlab.Bed {
	t.Helper()
	b, err := netlab.NewDirect(direct)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	setMACs(t, b, direct)
	return b
}

func setMACs(t testing.TB, b *netlab.Bed, direct [2]bool) {
	t.Helper()
	for i, n := range b.NS {
		if !direct[i] {
			continue // the MAC is that of a TAP
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

func openPacket(t testing.TB, n *netlab.Namespace, addrs ...netip.Addr) *Packet {
	t.Helper()
	p, err := OpenPacket(PacketConfig{Interface: netlab.Veth, Netns: n.Path(), Addrs: addrs, Offload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if p.Mode() != "AF_PACKET" {
		t.Errorf("mode: %s", p.Mode())
	}
	return p
}

// packetPair opens a port on each end of a veth.
func packetPair(t testing.TB) (b *netlab.Bed, tx, rx *Packet) {
	t.Helper()
	b = directBed(t, [2]bool{true, true})
	return b, openPacket(t, b.NS[0], addr4[0], addr6[0]), openPacket(t, b.NS[1], addr4[1], addr6[1])
}

func TestPacketSingleFrames(t *testing.T) {
	_, tx, rx := packetPair(t)
	buf := make([]byte, 1<<17)
	for _, a := range [][2]netip.Addr{addr4, addr6} {
		for _, size := range []int{16, 300, 1080, 4152, 8900} {
			f := frame(a[0], a[1], 7, 0, size)
			mustSend(t, tx, f)
			n, seg, ok := recv(t, rx, buf, 2*time.Second)
			if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
				t.Fatalf("%v, %d bytes: received %d bytes, segment size %d, %v", a[0], size, n, seg, ok)
			}
		}
	}
}

// TestPacketSuperFrames sends super-frames to another packet port, which gets them whole,
// and over a bridge to a TAP without offload, for which the kernel cuts them apart.
func TestPacketSuperFrames(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			b := directBed(t, [2]bool{true, whole})
			tx := openPacket(t, b.NS[0], addr4[0], addr6[0])
			var rx Port
			if whole {
				rx = openPacket(t, b.NS[1], addr4[1], addr6[1])
			} else {
				rx = openTAP(t, TAPConfig{Name: "roce0", Netns: b.NS[1].Path(), Bridge: netlab.Bridge, MTU: netlab.MTU})
				warmUp(t, tx, rx)
			}
			segs := tx.Offload().MaxSegments
			for _, a := range [][2]netip.Addr{addr4, addr6} {
				for _, c := range [][2]int{{4152, 15 * 4152}, {1080, 56*1080 - 500}, {96, segs * 96}, {1080, 1081}} {
					checkSuperFrame(t, tx, rx, frame(a[0], a[1], 0xfffe, c[0], c[1]), whole)
				}
			}
		})
	}
}

// TestPacketGRO cuts super-frames apart on their way, and has the receiving kernel merge
// the datagrams again (generic receive offload) or not. They must be what their ICRCs were
// computed over.
func TestPacketGRO(t *testing.T) {
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprintf("merged=%v", merged), func(t *testing.T) {
			b, tx, rx := packetPair(t)
			changeLink(t, b.NS[0], netlab.Veth, func(l netlink.Link) error {
				return errors.Join(netlink.LinkSetGSOMaxSize(l, 2000), netlink.LinkSetGSOIPv4MaxSize(l, 2000))
			})
			if merged { // which a veth does only for senders without TSO
				changeLink(t, b.NS[0], netlab.Veth, func(l netlink.Link) error { return ethtool(l, unix.ETHTOOL_STSO, 0) })
				changeLink(t, b.NS[1], netlab.Veth, func(l netlink.Link) error { return ethtool(l, unix.ETHTOOL_SGRO, 1) })
			}
			for _, a := range [][2]netip.Addr{addr4, addr6} {
				checkSuperFrame(t, tx, rx, frame(a[0], a[1], 0xfffe, 1080, 20*1080-100), merged)
			}
		})
	}
}

// ethtool sets a feature of a device.
func ethtool(l netlink.Link, cmd, data uint32) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd, data}
	ifr := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(ifr.name[:], l.Attrs().Name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); e != 0 {
		return e
	}
	return nil
}

// TestPacketLimits checks that Offload promises what the kernel takes.
func TestPacketLimits(t *testing.T) {
	_, tx, rx := packetPair(t)
	o := tx.Offload()
	const hdr4 = 42
	mustSend(t, tx, frame(addr4[0], addr4[1], 7, 96, 96*o.MaxSegments))
	if frames, segs := count(t, rx); frames != 1 || segs != o.MaxSegments {
		t.Errorf("%d segments arrive in %d frames, want %d in 1", segs, frames, o.MaxSegments)
	}
	n := o.MaxBytes - hdr4
	mustSend(t, tx, frame(addr4[0], addr4[1], 7, 4152, n))
	if frames, segs := count(t, rx); frames != 1 || segs != (n+4151)/4152 {
		t.Errorf("%d bytes arrive as %d segments in %d frames", n, segs, frames)
	}
}

// olderKernel has the kernel refuse super-frames of more segments than max, as older ones
// do, and all frames behind the room-th. It returns how many frames it has taken.
func olderKernel(p *Packet, max, room int) (taken *int) {
	taken = new(int)
	p.writev = func(fd int, iov *unix.Iovec, n int) unix.Errno {
		seg := segmentSize(&p.txHdr)
		if seg != 0 && rocev2.Segments(joined(p.iov[1:n]), seg) > max {
			return unix.EINVAL
		}
		if *taken == room {
			return unix.ENOBUFS
		}
		*taken++
		return writev(fd, iov, n)
	}
	return taken
}

// joined is the contents of iov.
func joined(iov []unix.Iovec) (b []byte) {
	for _, v := range iov {
		b = append(b, unsafe.Slice(v.Base, v.Len)...)
	}
	return b
}

// TestPacketRefusedSuperFrames has the kernel refuse super-frames: they arrive as single
// frames, the port takes shorter ones then, and says so when it takes none any more.
func TestPacketRefusedSuperFrames(t *testing.T) {
	best := rocev2.Offload{MaxSegments: usoMaxSegments, MaxBytes: usoMaxBytes}
	older := rocev2.Offload{MaxSegments: usoMaxSegmentsOld, MaxBytes: usoMaxBytes}
	for _, c := range []struct {
		name  string
		max   int // segments that the kernel takes
		sizes []int
		whole []bool // do they arrive uncut
		want  []rocev2.Offload
	}{
		{"64 segments", usoMaxSegmentsOld, []int{40, 100, 64, 128}, []bool{true, false, true, false}, []rocev2.Offload{best, older, older, older}},
		{"none", 0, []int{100, 64, 2}, []bool{false, false, false}, []rocev2.Offload{older, {}, {}}},
		{"none, short ones first", 0, []int{2, 100}, []bool{false, false}, []rocev2.Offload{{}, {}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, tx, rx := packetPair(t)
			olderKernel(tx, c.max, -1)
			for i, segs := range c.sizes {
				for j, a := range [][2]netip.Addr{addr4, addr6} {
					checkSuperFrame(t, tx, rx, frame(a[0], a[1], uint16(0xfffe-j), 96, 96*segs-5), c.whole[i])
				}
				if tx.Offload() != c.want[i] {
					t.Errorf("after %d segments: %+v, want %+v", segs, tx.Offload(), c.want[i])
				}
			}
			if none := strings.Contains(tx.Mode(), "takes no UDP super-frames"); none != (c.max == 0) || tx.Stats() != (Stats{}) {
				t.Errorf("mode %s, stats %+v", tx.Mode(), tx.Stats())
			}
		})
	}
}

// TestPacketRefusedFrames has the kernel refuse what is no better as single frames: it is
// not for being a super-frame.
func TestPacketRefusedFrames(t *testing.T) {
	_, tx, _ := packetPair(t)
	best, f := tx.Offload(), frame(addr4[0], addr4[1], 7, 96, 10*96)
	answer := unix.EINVAL
	tx.writev = func(int, *unix.Iovec, int) unix.Errno { return answer }
	for i := range 2 {
		if err := tx.Send(clock(), f); !errors.Is(err, unix.EINVAL) || tx.Stats().SendDropped != uint64(i+1) {
			t.Errorf("%v, %+v", err, tx.Stats())
		}
	}
	if answer = unix.EAGAIN; tx.Send(clock(), f) != ErrAgain {
		t.Error("no room, but not put off")
	}
	if tx.Offload() != best {
		t.Errorf("%+v, had %+v", tx.Offload(), best)
	}
}

// TestPacketRefusedWithoutRoom lets the interface's queue be full before or amid the single
// frames of a refused super-frame.
func TestPacketRefusedWithoutRoom(t *testing.T) {
	for _, room := range []int{0, 4} {
		_, tx, rx := packetPair(t)
		taken := olderKernel(tx, 0, room)
		err := tx.Send(clock(), frame(addr4[0], addr4[1], 7, 96, 10*96))
		st := tx.Stats()
		if room == 0 && (err != ErrAgain || st.Again != 1 || tx.Offload().MaxSegments == 0) {
			t.Errorf("no room: %v, %+v, %+v", err, st, tx.Offload())
		}
		if room != 0 && (err != nil || st.SendDropped != uint64(10-room) || tx.Offload().MaxSegments != 0) {
			t.Errorf("room for %d: %v, %+v, %+v", room, err, st, tx.Offload())
		}
		if frames, _ := count(t, rx); *taken != room || frames != room {
			t.Errorf("room for %d: %d taken, %d arrive", room, *taken, frames)
		}
	}
}

// edit returns the frame of addr4 with some bytes changed.
func edit(change func(b []byte) []byte) []byte {
	return change(frame(addr4[0], addr4[1], 1, 0, 64).AppendTo(nil))
}

// strangers are frames that are not for the NIC. All look like RoCEv2 at first sight.
var strangers = map[string][]byte{
	"another IPv4 address":                        frame(addr4[0], netip.MustParseAddr("198.18.0.3"), 1, 0, 64).AppendTo(nil),
	"another IPv6 address":                        frame(addr6[0], netip.MustParseAddr("2001:db8::3"), 1, 0, 64).AppendTo(nil),
	"IPv6 address that differs in the first word": frame(addr6[0], netip.MustParseAddr("2001:db7::2"), 1, 0, 64).AppendTo(nil),
	"another port":                                edit(func(b []byte) []byte { b[37]++; return b }),
	"another station":                             edit(func(b []byte) []byte { b[5] = 9; return b }),
	"broadcast":                                   edit(func(b []byte) []byte { copy(b, "\xff\xff\xff\xff\xff\xff"); return b }),
	"TCP":                                         edit(func(b []byte) []byte { b[23] = unix.IPPROTO_TCP; return b }),
	"ARP":                                         edit(func(b []byte) []byte { b[13] = 6; return b }),
	"later fragment":                              edit(func(b []byte) []byte { b[20], b[21] = 0, 5; return b }),
	"VLAN": edit(func(b []byte) []byte {
		return append(append(bytes.Clone(b[:12]), 0x81, 0, 0, 5), b[12:]...)
	}),
	"hop-by-hop options": func() []byte {
		b := frame(addr6[0], addr6[1], 1, 0, 64).AppendTo(nil)
		b[20] = 0
		return b
	}(),
	"Ethernet header only":     edit(func(b []byte) []byte { return b[:14] }),
	"cut off in the IP header": edit(func(b []byte) []byte { return b[:30] }),
}

// TestPacketFilter sends frames that the port must not receive, each before one that it
// must.
func TestPacketFilter(t *testing.T) {
	_, tx, rx := packetPair(t)
	buf := make([]byte, 1<<17)
	next := uint16(0)
	arrives := func(t *testing.T, f *rocev2.Frame) {
		t.Helper()
		mustSend(t, tx, f)
		n, _, err := rx.Recv(clock(), buf)
		if err != nil || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
			t.Errorf("received %x, %v", buf[:n], err)
		}
	}
	for name, b := range strangers {
		t.Run(name, func(t *testing.T) {
			mustSend(t, tx, &rocev2.Frame{Bufs: [][]byte{b}, Len: len(b)})
			next++
			arrives(t, frame(addr4[0], addr4[1], next, 0, 100))
		})
	}
	t.Run("IPv4 options", func(t *testing.T) {
		b := frame(addr4[0], addr4[1], 1, 0, 64).AppendTo(nil)
		b = append(append(bytes.Clone(b[:34]), 1, 1, 1, 1), b[34:]...)
		b[14]++
		binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
		arrives(t, &rocev2.Frame{Bufs: [][]byte{b}, Len: len(b)})
	})
	t.Run("own frames", func(t *testing.T) {
		if n, _, err := tx.Recv(clock(), buf); err == nil {
			t.Errorf("%x", buf[:n])
		}
	})
}

// TestPacketAddresses changes them while the port is open; there can be many.
func TestPacketAddresses(t *testing.T) {
	_, tx, rx := packetPair(t)
	buf := make([]byte, 1<<17)
	var many []netip.Addr
	for i := range 128 {
		many = append(many, netip.AddrFrom4([4]byte{198, 18, 2, byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 13: 1, 14: 2, 15: byte(i)}))
	}
	for _, addrs := range [][]netip.Addr{many, nil, {addr4[1]}} {
		if err := rx.SetAddrs(addrs); err != nil {
			t.Fatal(err)
		}
		for _, to := range append(many[:len(many):len(many)], addr4[1], addr6[1]) {
			want := false
			for _, a := range addrs {
				want = want || a == to
			}
			from := addr4[0]
			if to.Is6() {
				from = addr6[0]
			}
			mustSend(t, tx, frame(from, to, 7, 0, 64))
			if _, _, err := rx.Recv(clock(), buf); (err == nil) != want {
				t.Fatalf("with %d addresses, to %v: %v", len(addrs), to, err)
			}
		}
	}
}

// TestPacketDownAndUp sets the interface down, on which the port says so, and up.
func TestPacketDownAndUp(t *testing.T) {
	b, tx, rx := packetPair(t)
	changeLink(t, b.NS[1], netlab.Veth, netlink.LinkSetDown)
	until(t, rx, "down", func() bool { return rx.FD() == -1 })
	if s := rx.State(); s.Up || s.Err == nil || !strings.Contains(s.Err.Error(), "set down") {
		t.Errorf("state %+v", s)
	}
	if _, _, err := rx.Recv(clock(), make([]byte, 100)); !errors.Is(err, ErrDown) {
		t.Errorf("receive: %v", err)
	}
	until(t, tx, "no carrier", func() bool { return tx.FD() == -1 })
	if err := tx.Send(clock(), frame(addr4[0], addr4[1], 7, 0, 64)); !errors.Is(err, ErrDown) {
		t.Errorf("send: %v", err)
	}
	changeLink(t, b.NS[1], netlab.Veth, netlink.LinkSetUp)
	until(t, rx, "up", func() bool { return rx.State().Up && rx.FD() >= 0 })
	until(t, tx, "carrier", func() bool { return tx.FD() >= 0 })
	mustSend(t, tx, frame(addr4[0], addr4[1], 7, 0, 64))
	if _, _, ok := recv(t, rx, make([]byte, 1<<17), 2*time.Second); !ok {
		t.Error("nothing arrives")
	}
	if st := rx.Stats(); st.Lost != 0 || st.Reopened != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestPacketInterfaceAnew deletes the interface; the port finds the one that is made in
// its place.
func TestPacketInterfaceAnew(t *testing.T) {
	b, tx, rx := packetPair(t)
	deleteLink(t, b.NS[1], netlab.Veth)
	until(t, rx, "gone", func() bool { return rx.FD() == -1 && rx.Stats().Lost == 1 })
	if s := rx.State(); s.Err == nil || !strings.Contains(s.Err.Error(), "does not exist") {
		t.Errorf("state %+v", s)
	}
	if err := b.Wire(); err != nil {
		t.Fatal(err)
	}
	setMACs(t, b, [2]bool{true, true})
	for _, p := range []*Packet{tx, rx} {
		until(t, p, "the new interface", func() bool { return p.FD() >= 0 && p.Stats().Reopened == 1 })
		if p.Mode() != "AF_PACKET" {
			t.Errorf("mode: %s", p.Mode())
		}
	}
	mustSend(t, tx, frame(addr4[0], addr4[1], 7, 0, 64))
	if _, _, ok := recv(t, rx, make([]byte, 1<<17), 2*time.Second); !ok {
		t.Error("nothing arrives")
	}
}

// TestPacketMTU follows that of the interface and refuses one that is too small.
func TestPacketMTU(t *testing.T) {
	b, _, rx := packetPair(t)
	for _, c := range []struct {
		mtu int
		up  bool
	}{{1500, true}, {300, false}, {9000, true}} {
		changeLink(t, b.NS[1], netlab.Veth, func(l netlink.Link) error { return netlink.LinkSetMTU(l, c.mtu) })
		rx.Poll(clock())
		s := rx.State()
		if s.Up != c.up || c.up && s.MTU != c.mtu || !c.up && !strings.Contains(s.Err.Error(), "no room for path MTU 256") {
			t.Errorf("MTU %d: %+v", c.mtu, s)
		}
	}
}

// TestPacketOverruns floods a port that does not receive.
func TestPacketOverruns(t *testing.T) {
	_, tx, rx := packetPair(t)
	if err := unix.SetsockoptInt(rx.sock, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<16); err != nil {
		t.Fatal(err)
	}
	const sent = 500
	for range sent {
		mustSend(t, tx, frame(addr4[0], addr4[1], 7, 0, 4000))
	}
	frames, _ := count(t, rx)
	if got := rx.Stats().Overruns; got == 0 || int(got)+frames != sent {
		t.Errorf("%d received and %d overruns of %d", frames, got, sent)
	}
}

func TestPacketAllocations(t *testing.T) {
	_, tx, rx := packetPair(t)
	super := frame(addr4[0], addr4[1], 0, 1080, 20*1080)
	single := frame(addr4[0], addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<17)
	allocs := testing.AllocsPerRun(200, func() {
		now := clock()
		if tx.Send(now, super) != nil || tx.Send(now, single) != nil {
			t.Error("not sent")
		}
		for {
			if _, _, err := rx.Recv(now, buf); err != nil {
				return
			}
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestPacketFaultsOfConfig(t *testing.T) {
	b := directBed(t, [2]bool{true, true})
	for name, want := range map[string]string{
		"nothing": "does not exist", "lo": "is not an Ethernet interface", "": "", "a-name-that-is-too-long": "",
	} {
		p, err := OpenPacket(PacketConfig{Interface: name, Netns: b.NS[0].Path()})
		if err == nil {
			p.Close()
			t.Errorf("%q: opened", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, err := OpenPacket(PacketConfig{Interface: netlab.Veth, Netns: "/nowhere"}); err == nil {
		t.Error("opened in a namespace that does not exist")
	}
}
