package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/ethtool"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
	"roced.io/roced/tap"
)

func open(t testing.TB, n *namespace.Namespace, addrs ...netip.Addr) *Port {
	t.Helper()
	p, err := Open(Config{Interface: netlab.Veth, Netns: n.Path(), Addrs: addrs, Offload: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if p.Mode() != "AF_PACKET" {
		t.Errorf("mode: %s", p.Mode())
	}
	return p
}

// pair opens a port on each end of a veth.
func pair(t testing.TB) (b *netlab.Bed, tx, rx *Port) {
	t.Helper()
	b = porttest.DirectBed(t, [2]bool{true, true})
	return b, open(t, b.NS[0], porttest.Addr4[0], porttest.Addr6[0]), open(t, b.NS[1], porttest.Addr4[1], porttest.Addr6[1])
}

func TestSingleFrames(t *testing.T) {
	_, tx, rx := pair(t)
	buf := make([]byte, 1<<17)
	for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
		for _, size := range []int{16, 300, 1080, 4152, 8900} {
			f := porttest.Frame(a[0], a[1], 7, 0, size)
			porttest.MustSend(t, tx, f)
			n, seg, ok := porttest.Recv(t, rx, buf, porttest.Limit)
			if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
				t.Fatalf("%v, %d bytes: received %d bytes, segment size %d, %v", a[0], size, n, seg, ok)
			}
		}
	}
}

// TestSuperFrames sends super-frames to another packet port, which receives them unsegmented. It also sends them over a
// bridge to a TAP without offload, for which the kernel segments them.
func TestSuperFrames(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			b := porttest.DirectBed(t, [2]bool{true, whole})
			tx := open(t, b.NS[0], porttest.Addr4[0], porttest.Addr6[0])
			var rx port.Port
			if whole {
				rx = open(t, b.NS[1], porttest.Addr4[1], porttest.Addr6[1])
			} else {
				var err error
				rx, err = tap.Open(tap.Config{Name: "roce0", Netns: b.NS[1].Path(), Bridge: netlab.Bridge, MTU: namespace.MTU})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { rx.Close() })
				porttest.WarmUp(t, tx, rx)
			}
			segs := tx.Offload().MaxSegments
			for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
				for _, c := range [][2]int{{4152, 15 * 4152}, {1080, 56*1080 - 500}, {96, segs * 96}, {1080, 1081}} {
					porttest.CheckSuperFrame(t, tx, rx, porttest.Frame(a[0], a[1], 0xfffe, c[0], c[1]), whole, !whole)
				}
			}
		})
	}
}

// TestGRO segments super-frames on their way. The receiving kernel merges the datagrams (generic receive offload) or not.
// Their ICRCs must be valid.
func TestGRO(t *testing.T) {
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprintf("merged=%v", merged), func(t *testing.T) {
			b, tx, rx := pair(t)
			porttest.ChangeLink(t, b.NS[0], netlab.Veth, func(l netlink.Link) error {
				return errors.Join(netlink.LinkSetGSOMaxSize(l, 2000), netlink.LinkSetGSOIPv4MaxSize(l, 2000))
			})
			if merged { // a veth merges only for senders without TSO
				porttest.ChangeLink(t, b.NS[0], netlab.Veth, func(l netlink.Link) error { return set(l, unix.ETHTOOL_STSO, 0) })
				porttest.ChangeLink(t, b.NS[1], netlab.Veth, func(l netlink.Link) error { return set(l, unix.ETHTOOL_SGRO, 1) })
			}
			for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
				porttest.CheckSuperFrame(t, tx, rx, porttest.Frame(a[0], a[1], 0xfffe, 1080, 20*1080-100), merged, false)
			}
		})
	}
}

// set sets a feature of an interface.
func set(l netlink.Link, cmd, data uint32) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	v := ethtool.Value{Cmd: cmd, Data: data}
	return v.Exchange(fd, l.Attrs().Name)
}

// TestLimits checks that the kernel accepts super-frames up to the limits of Offload.
func TestLimits(t *testing.T) {
	_, tx, rx := pair(t)
	o := tx.Offload()
	const hdr4 = 42
	porttest.MustSend(t, tx, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 96, 96*o.MaxSegments))
	if frames, segs := porttest.Count(t, rx); frames != 1 || segs != o.MaxSegments {
		t.Errorf("%d segments arrive in %d frames, want %d in 1", segs, frames, o.MaxSegments)
	}
	n := o.MaxBytes - hdr4
	porttest.MustSend(t, tx, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 4152, n))
	if frames, segs := porttest.Count(t, rx); frames != 1 || segs != (n+4151)/4152 {
		t.Errorf("%d bytes arrive as %d segments in %d frames", n, segs, frames)
	}
}

// olderKernel refuses super-frames with more segments than max, as older kernels do, and all frames after the first
// room ones. It returns the number of accepted frames.
func olderKernel(p *Port, max, room int) (taken *int) {
	taken = new(int)
	p.queue.Refuse = func(f *link.Frame) unix.Errno {
		if f.SegSize != 0 && link.Segments(f.AppendTo(nil), f.SegSize) > max {
			return unix.EINVAL
		}
		if *taken == room {
			return unix.ENOBUFS
		}
		*taken++
		return 0
	}
	return taken
}

// TestRefusedSuperFrames refuses super-frames. They arrive as single frames. The port then accepts shorter super-frames or
// none, and reports the latter in Mode.
func TestRefusedSuperFrames(t *testing.T) {
	best := link.Offload{MaxSegments: vnet.MaxSegments, MaxBytes: vnet.MaxBytes}
	older := link.Offload{MaxSegments: vnet.MaxSegmentsOld, MaxBytes: vnet.MaxBytes}
	for _, c := range []struct {
		name  string
		max   int // maximum number of segments that the kernel accepts
		sizes []int
		whole []bool // whether each super-frame arrives unsegmented
		want  []link.Offload
	}{
		{"64 segments", vnet.MaxSegmentsOld, []int{40, 100, 64, 128}, []bool{true, false, true, false}, []link.Offload{best, older, older, older}},
		{"none", 0, []int{100, 64, 2}, []bool{false, false, false}, []link.Offload{older, {}, {}}},
		{"none, short ones first", 0, []int{2, 100}, []bool{false, false}, []link.Offload{{}, {}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, tx, rx := pair(t)
			olderKernel(tx, c.max, -1)
			for i, segs := range c.sizes {
				for j, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
					porttest.CheckSuperFrame(t, tx, rx, porttest.Frame(a[0], a[1], uint16(0xfffe-j), 96, 96*segs-5), c.whole[i], false)
				}
				if tx.Offload() != c.want[i] {
					t.Errorf("after %d segments: %+v, want %+v", segs, tx.Offload(), c.want[i])
				}
			}
			if none := strings.Contains(tx.Mode(), "takes no UDP super-frames"); none != (c.max == 0) || tx.Stats() != (port.Stats{}) {
				t.Errorf("mode %s, stats %+v", tx.Mode(), tx.Stats())
			}
		})
	}
}

// TestRefusedFrames refuses super-frames and their single frames. Offload must not change.
func TestRefusedFrames(t *testing.T) {
	_, tx, _ := pair(t)
	best, f := tx.Offload(), porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 96, 10*96)
	answer := unix.EINVAL
	tx.queue.Refuse = func(*link.Frame) unix.Errno { return answer }
	for i := range 2 {
		if err := tx.Send(porttest.Clock(), f); !errors.Is(err, unix.EINVAL) || tx.Stats().SendDropped != uint64(i+1) {
			t.Errorf("%v, %+v", err, tx.Stats())
		}
	}
	if answer = unix.EAGAIN; tx.Send(porttest.Clock(), f) != port.ErrAgain {
		t.Error("no room, but not put off")
	}
	if tx.Offload() != best {
		t.Errorf("%+v, had %+v", tx.Offload(), best)
	}
}

// TestRefusedWithoutRoom fills the queue of the interface before or amid the single frames of a refused super-frame.
func TestRefusedWithoutRoom(t *testing.T) {
	for _, room := range []int{0, 4} {
		_, tx, rx := pair(t)
		taken := olderKernel(tx, 0, room)
		f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 96, 10*96)
		err := tx.Send(porttest.Clock(), f)
		st := tx.Stats()
		if err != port.ErrRefusedPart || st.Again != 1 || st.SendDropped != 0 || f.Begun != room || tx.Offload().MaxSegments == 0 {
			t.Errorf("room for %d: %v, %+v, %d sent, %+v", room, err, st, f.Begun, tx.Offload())
		}
		if frames, _ := porttest.Count(t, rx); *taken != room || frames != room {
			t.Errorf("room for %d: %d taken, %d arrive", room, *taken, frames)
		}
		olderKernel(tx, 0, -1)
		if err := tx.Send(porttest.Clock(), f); err != nil || tx.Offload().MaxSegments != 0 {
			t.Errorf("the rest after %d: %v, %+v", room, err, tx.Offload())
		}
		if frames, _ := porttest.Count(t, rx); frames != 10-room {
			t.Errorf("the rest after %d: %d arrive", room, frames)
		}
	}
}

// edit returns a modified frame of porttest.Addr4.
func edit(change func(b []byte) []byte) []byte {
	return change(porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 1, 0, 64).AppendTo(nil))
}

// tagged returns a frame with a VLAN tag of these two bytes.
func tagged(b []byte, tci ...byte) []byte {
	return slices.Concat(b[:12], []byte{0x81, 0}, tci, b[12:])
}

// others are frames that are similar to RoCEv2 frames but not for the NIC.
var others = map[string][]byte{
	"another IPv4 address":                        porttest.Frame(porttest.Addr4[0], netip.MustParseAddr("198.18.0.3"), 1, 0, 64).AppendTo(nil),
	"another IPv6 address":                        porttest.Frame(porttest.Addr6[0], netip.MustParseAddr("2001:db8::3"), 1, 0, 64).AppendTo(nil),
	"IPv6 address that differs in the first word": porttest.Frame(porttest.Addr6[0], netip.MustParseAddr("2001:db7::2"), 1, 0, 64).AppendTo(nil),
	"another port":                                edit(func(b []byte) []byte { b[37]++; return b }),
	"another station":                             edit(func(b []byte) []byte { b[5] = 9; return b }),
	"broadcast":                                   edit(func(b []byte) []byte { copy(b, "\xff\xff\xff\xff\xff\xff"); return b }),
	"TCP":                                         edit(func(b []byte) []byte { b[23] = unix.IPPROTO_TCP; return b }),
	"ARP":                                         edit(func(b []byte) []byte { b[13] = 6; return b }),
	"later fragment":                              edit(func(b []byte) []byte { b[20], b[21] = 0, 5; return b }),
	"VLAN":                                        edit(func(b []byte) []byte { return tagged(b, 0, 5) }),
	"VLAN with a priority":                        edit(func(b []byte) []byte { return tagged(b, 0xa0, 5) }),
	"the greatest VLAN":                           edit(func(b []byte) []byte { return tagged(b, 0x0f, 0xfe) }),
	"VLAN below a priority":                       edit(func(b []byte) []byte { return tagged(tagged(b, 0, 5), 0xa0, 0) }),
	"hop-by-hop options": func() []byte {
		b := porttest.Frame(porttest.Addr6[0], porttest.Addr6[1], 1, 0, 64).AppendTo(nil)
		b[20] = 0
		return b
	}(),
	"Ethernet header only":     edit(func(b []byte) []byte { return b[:14] }),
	"cut off in the IP header": edit(func(b []byte) []byte { return b[:30] }),
}

// TestFilter sends frames that the port must not receive, each before one that it must receive.
func TestFilter(t *testing.T) {
	_, tx, rx := pair(t)
	buf := make([]byte, 1<<17)
	next := uint16(0)
	arrives := func(t *testing.T, f *link.Frame) {
		t.Helper()
		porttest.MustSend(t, tx, f)
		got, _, err := rx.Recv(porttest.Clock(), buf)
		if err != nil || !bytes.Equal(got, f.AppendTo(nil)) {
			t.Errorf("received %x, %v", got, err)
		}
	}
	for name, b := range others {
		t.Run(name, func(t *testing.T) {
			porttest.MustSend(t, tx, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
			next++
			arrives(t, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], next, 0, 100))
		})
	}
	t.Run("IPv4 options", func(t *testing.T) {
		b := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 1, 0, 64).AppendTo(nil)
		b = append(append(bytes.Clone(b[:34]), 1, 1, 1, 1), b[34:]...)
		b[14]++
		binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
		arrives(t, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
	})
	t.Run("priority", func(t *testing.T) { // the kernel removes the tag
		for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
			for _, priority := range []byte{0, 0xa0} {
				plain := porttest.Frame(a[0], a[1], 1, 0, 64).AppendTo(nil)
				b := tagged(plain, priority, 0)
				porttest.MustSend(t, tx, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
				if got, _, err := rx.Recv(porttest.Clock(), buf); err != nil || !bytes.Equal(got, plain) {
					t.Errorf("priority %#x: received %x, %v", priority, got, err)
				}
			}
		}
	})
	t.Run("own frames", func(t *testing.T) {
		if got, _, err := tx.Recv(porttest.Clock(), buf); err == nil {
			t.Errorf("%x", got)
		}
	})
}

// TestAddresses changes many addresses of an open port.
func TestAddresses(t *testing.T) {
	_, tx, rx := pair(t)
	buf := make([]byte, 1<<17)
	var many []netip.Addr
	for i := range 128 {
		many = append(many, netip.AddrFrom4([4]byte{198, 18, 2, byte(i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 13: 1, 14: 2, 15: byte(i)}))
	}
	for _, addrs := range [][]netip.Addr{many, nil, {porttest.Addr4[1]}} {
		if err := rx.SetAddrs(addrs); err != nil {
			t.Fatal(err)
		}
		for _, to := range append(many[:len(many):len(many)], porttest.Addr4[1], porttest.Addr6[1]) {
			want := false
			for _, a := range addrs {
				want = want || a == to
			}
			from := porttest.Addr4[0]
			if to.Is6() {
				from = porttest.Addr6[0]
			}
			porttest.MustSend(t, tx, porttest.Frame(from, to, 7, 0, 64))
			if _, _, err := rx.Recv(porttest.Clock(), buf); (err == nil) != want {
				t.Fatalf("with %d addresses, to %v: %v", len(addrs), to, err)
			}
		}
	}
}

// TestDownAndUp sets the interface down and up, and checks the state of the port.
func TestDownAndUp(t *testing.T) {
	b, tx, rx := pair(t)
	porttest.ChangeLink(t, b.NS[1], netlab.Veth, netlink.LinkSetDown)
	porttest.Until(t, rx, "down", func() bool { return rx.FD() == -1 })
	if s := rx.State(); s.Up || s.Err == nil || !strings.Contains(s.Err.Error(), "set down") {
		t.Errorf("state %+v", s)
	}
	if _, _, err := rx.Recv(porttest.Clock(), make([]byte, 100)); !errors.Is(err, port.ErrDown) {
		t.Errorf("receive: %v", err)
	}
	porttest.Until(t, tx, "no carrier", func() bool { return tx.FD() == -1 })
	if err := tx.Send(porttest.Clock(), porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 64)); !errors.Is(err, port.ErrDown) {
		t.Errorf("send: %v", err)
	}
	porttest.ChangeLink(t, b.NS[1], netlab.Veth, netlink.LinkSetUp)
	porttest.Until(t, rx, "up", func() bool { return rx.State().Up && rx.FD() >= 0 })
	porttest.Until(t, tx, "carrier", func() bool { return tx.FD() >= 0 })
	porttest.MustSend(t, tx, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 64))
	if _, _, ok := porttest.Recv(t, rx, make([]byte, 1<<17), porttest.Limit); !ok {
		t.Error("nothing arrives")
	}
	if st := rx.Stats(); st.Lost != 0 || st.Reopened != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestInterfaceAnew replaces the interface. The port finds the new one.
func TestInterfaceAnew(t *testing.T) {
	b, tx, rx := pair(t)
	porttest.DeleteLink(t, b.NS[1], netlab.Veth)
	porttest.Until(t, rx, "gone", func() bool { return rx.FD() == -1 && rx.Stats().Lost == 1 })
	if s := rx.State(); s.Err == nil || !strings.Contains(s.Err.Error(), "does not exist") {
		t.Errorf("state %+v", s)
	}
	if err := b.Wire(); err != nil {
		t.Fatal(err)
	}
	porttest.SetMACs(t, b, [2]bool{true, true})
	for _, p := range []*Port{tx, rx} {
		porttest.Until(t, p, "the new interface", func() bool { return p.FD() >= 0 && p.Stats().Reopened == 1 })
		if p.Mode() != "AF_PACKET" {
			t.Errorf("mode: %s", p.Mode())
		}
	}
	porttest.MustSend(t, tx, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 64))
	if _, _, ok := porttest.Recv(t, rx, make([]byte, 1<<17), porttest.Limit); !ok {
		t.Error("nothing arrives")
	}
}

// TestMTU changes the MTU of the interface. The port refuses an MTU that is too small.
func TestMTU(t *testing.T) {
	b, _, rx := pair(t)
	for _, c := range []struct {
		mtu int
		up  bool
	}{{1500, true}, {300, false}, {9000, true}} {
		porttest.ChangeLink(t, b.NS[1], netlab.Veth, func(l netlink.Link) error { return netlink.LinkSetMTU(l, c.mtu) })
		rx.Poll(porttest.Clock())
		s := rx.State()
		if s.Up != c.up || c.up && s.MTU != c.mtu || !c.up && !strings.Contains(s.Err.Error(), "is too small for path MTU 256") {
			t.Errorf("MTU %d: %+v", c.mtu, s)
		}
	}
}

// TestOverruns floods a port that does not receive.
func TestOverruns(t *testing.T) {
	_, tx, rx := pair(t)
	if err := unix.SetsockoptInt(rx.sock, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<16); err != nil {
		t.Fatal(err)
	}
	const sent = 500
	for range sent {
		porttest.MustSend(t, tx, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 4000))
	}
	frames, _ := porttest.Count(t, rx)
	if got := rx.Stats().Overruns; got == 0 || int(got)+frames != sent {
		t.Errorf("%d received and %d overruns of %d", frames, got, sent)
	}
}

func TestAllocations(t *testing.T) {
	_, tx, rx := pair(t)
	super := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 1080, 20*1080)
	single := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<17)
	allocs := testing.AllocsPerRun(200, func() {
		now := porttest.Clock()
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

func TestFaultsOfConfig(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	for name, want := range map[string]string{
		"nothing": "does not exist", "lo": "is not an Ethernet interface", "": "", "a-name-that-is-too-long": "",
	} {
		p, err := Open(Config{Interface: name, Netns: b.NS[0].Path()})
		if err == nil {
			p.Close()
			t.Errorf("%q: opened", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, err := Open(Config{Interface: netlab.Veth, Netns: "/nowhere"}); err == nil {
		t.Error("opened in a namespace that does not exist")
	}
}

// TestProbe opens a port while the loopback interface is up, and while it is down. The probe must determine the limits of
// the kernel and must not leave on another interface.
func TestProbe(t *testing.T) {
	for _, up := range []bool{true, false} {
		b := porttest.DirectBed(t, [2]bool{true, true})
		if !up {
			porttest.ChangeLink(t, b.NS[0], "lo", netlink.LinkSetDown)
		}
		lo, v := sent(t, b.NS[0], "lo"), sent(t, b.NS[0], netlab.Veth)
		p := open(t, b.NS[0], porttest.Addr4[0])
		want := uint64(0)
		if up {
			want = 1
		}
		if n := sent(t, b.NS[0], "lo").TxPackets - lo.TxPackets; n != want {
			t.Errorf("loopback up %v: %d frames sent, want %d", up, n, want)
		}
		if n := sent(t, b.NS[0], netlab.Veth).TxBytes - v.TxBytes; n >= vnet.MaxBytes {
			t.Errorf("loopback up %v: %d bytes sent on the interface", up, n)
		}
		var tooMany []byte
		vnet.Probe(func(b []byte) error { // half the segment size makes twice the segments
			binary.NativeEndian.PutUint16(b[4:], binary.NativeEndian.Uint16(b[4:])/2)
			tooMany = b
			return nil
		})
		if err := p.sendLoopback(tooMany); up != errors.Is(err, unix.EINVAL) {
			t.Errorf("loopback up %v: too many segments: %v", up, err)
		}
	}
}

// sent returns the statistics of an interface.
func sent(t *testing.T, n *namespace.Namespace, name string) (s netlink.LinkStatistics) {
	t.Helper()
	porttest.ChangeLink(t, n, name, func(l netlink.Link) error {
		s = *l.Attrs().Statistics
		return nil
	})
	return s
}
