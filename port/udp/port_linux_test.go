package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// check compares headers, ICRC and data of a received segment with the sent packet.
func check(t *testing.T, got []byte, src, dst netip.Addr, port uint16, tos uint8, want []byte) {
	t.Helper()
	typ := binary.BigEndian.Uint16(got[12:])
	d, ok := bth.ReadDatagram(typ, got[ethLen:])
	if !ok || d.Src != src || d.Dst != dst || d.SPort != port || d.TOS != tos || d.End != len(got)-ethLen {
		t.Fatalf("headers %+v of %d bytes, want %v > %v port %d, TOS %#x", d, len(got), src, dst, port, tos)
	}
	if err := bth.CheckICRC(got[ethLen:]); err != nil {
		t.Errorf("ID %d, %d bytes: %v", d.ID, len(got), err)
	}
	if body := got[ethLen+d.UDP+udpLen:]; !bytes.Equal(body[:len(body)-bth.ICRCLen], want) {
		t.Errorf("data of %d bytes differ from what was sent, %d bytes", len(body)-bth.ICRCLen, len(want))
	}
}

// TestDatagrams sends single datagrams and super-frames in both directions over IPv4 and IPv6.
func TestDatagrams(t *testing.T) {
	_, tx, rx := openBoth(t)
	for _, addrs := range [][2]netip.Addr{addr4, addr6} {
		for i, sizes := range [][]int{{0}, {4}, {4096}, {8000}, {4096, 4096, 100}, slices.Repeat([]int{1024}, 60), slices.Repeat([]int{4}, 128)} {
			tos := []uint8{0, 2, 0x6b}[i%3]
			var packets [][]byte
			for j, n := range sizes {
				packets = append(packets, packet(j, n))
			}
			port := uint16(0xc000 + i)
			mustSend(t, tx, frame(addrs[0], addrs[1], port, tos, packets...))
			for j, s := range recvAll(t, rx, len(sizes)) {
				check(t, s, addrs[0], addrs[1], port, tos, packets[j])
			}
			mustSend(t, rx, frame(addrs[1], addrs[0], port, tos, packets[0]))
			check(t, recvAll(t, tx, 1)[0], addrs[1], addrs[0], port, tos, packets[0])
		}
	}
	if s := rx.Stats(); s != (port.Stats{}) {
		t.Errorf("%+v", s)
	}
	if o := tx.Offload(); o.MaxSegments != maxSegments {
		t.Errorf("%+v", o)
	}
}

// TestJoined receives an unsegmented super-frame in one call.
func TestJoined(t *testing.T) {
	_, tx, rx := openBoth(t)
	for _, addrs := range [][2]netip.Addr{addr4, addr6} {
		mustSend(t, tx, frame(addrs[0], addrs[1], 0xc000, 0, slices.Repeat([][]byte{packet(0, 1024)}, 60)...))
		if got := recv(t, rx, porttest.Limit); len(got) != 60 {
			t.Errorf("%v: %d datagrams at first", addrs[1], len(got))
		}
	}
}

// TestManyShortDatagrams receives short datagrams in order, in batches.
func TestManyShortDatagrams(t *testing.T) {
	_, tx, rx := openBoth(t)
	for round := range 20 {
		const count = 100
		for i := range count {
			size := 8 + 4*(i%7)
			if i == 50 {
				size = 6000 // one long datagram among them
			}
			mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(i, size)))
		}
		for i, s := range recvAll(t, rx, count) {
			if psn := binary.BigEndian.Uint32(s[ethLen+ipv4Len+udpLen+8:]); psn != uint32(i) {
				t.Fatalf("round %d: %d after %d", round, psn, i-1)
			}
		}
	}
	if rx.batch.parts == nil {
		t.Error("no batch was received")
	}
}

// TestRefusedSuperFrames checks that the port sends single datagrams if the kernel does not segment.
func TestRefusedSuperFrames(t *testing.T) {
	_, tx, rx := openBoth(t)
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 4)))
	recvAll(t, rx, 1)
	// UDP_SEGMENT is refused without checksums (EINVAL).
	if err := unix.SetsockoptInt(tx.locals[0].list[0].fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{100, 64, 3} {
		var packets [][]byte
		for i := range count {
			packets = append(packets, packet(i, 64))
		}
		mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 2, packets...))
		for i, s := range recvAll(t, rx, count) {
			check(t, s, addr4[0], addr4[1], 0xc000, 2, packets[i])
		}
		if tx.Offload().MaxSegments != maxSegmentsOld || tx.single != (count <= maxSegmentsOld) {
			t.Errorf("after %d: %+v, single %v", count, tx.Offload(), tx.single)
		}
	}
}

// TestSourcePortTaken sends from another port when the requested port is in use, and when there are too many sockets. The
// ICRC must be valid.
func TestSourcePortTaken(t *testing.T) {
	b, tx, rx := openBoth(t)
	var other int
	err := b.NS[0].Do(func() (err error) {
		other, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		return errors.Join(err, unix.Bind(other, &unix.SockaddrInet4{Port: 0xc123}))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	packets := [][]byte{packet(0, 100), packet(1, 100), packet(2, 60)}
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc123, 0, packets...))
	for i, s := range recvAll(t, rx, 3) {
		check(t, s, addr4[0], addr4[1], 0xc124, 0, packets[i])
	}
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc123, 0, packet(7, 48)))
	check(t, recvAll(t, rx, 1)[0], addr4[0], addr4[1], 0xc124, 0, packet(7, 48))
	for i := range uint16(maxSources + 100) {
		mustSend(t, tx, frame(addr4[0], addr4[1], 0xd000+i, 0, packets[0]))
		if s := recvAll(t, rx, 1)[0]; bth.CheckICRC(s[ethLen:]) != nil {
			t.Fatalf("port %d: ICRC", i)
		}
	}
	if n := len(tx.locals[0].list); n != maxSources {
		t.Errorf("%d sockets", n)
	}
}

// TestTrimmed sends a trimmed packet of MRC with another source port and IP ID than the kernel uses. It has no ICRC to adapt, so
// its last header must arrive unchanged.
func TestTrimmed(t *testing.T) {
	b, tx, rx := openBoth(t)
	var other int
	err := b.NS[0].Do(func() (err error) {
		other, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		return errors.Join(err, unix.Bind(other, &unix.SockaddrInet4{Port: 0xc123}))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	for _, source := range []uint16{0xc122, 0xc123} {
		p := packet(7, bth.METHLen)
		p[0] = byte(bth.TransportMRC | bth.OpWriteMiddle)
		whole := append(headers(addr4[0], addr4[1], source, bth.MRCDSCPTrimmed<<2, 9, len(p)), p...)
		mustSend(t, tx, &link.Frame{Bufs: [][]byte{whole}, Len: len(whole), HdrLen: len(whole) - len(p)})
		got := recvAll(t, rx, 1)[0]
		if !bytes.Equal(got[len(got)-len(p):], p) || len(got) != len(whole) || got[ethLen+1] != bth.MRCDSCPTrimmed<<2 {
			t.Errorf("from port %#x: sent\n%x, received\n%x", source, whole, got)
		}
	}
}

// TestTaken opens a port while another socket uses the RoCEv2 port.
func TestTaken(t *testing.T) {
	b := bed(t)
	open(t, b, 0)
	_, err := Open(Config{Netns: b.NS[0].Path()}, 0, []netip.Addr{addr6[0]})
	if err == nil || !strings.Contains(err.Error(), "is taken") || !strings.Contains(err.Error(), addr6[0].String()) {
		t.Errorf("%v", err)
	}
	_, err = Open(Config{Netns: b.NS[0].Path()}, 0, []netip.Addr{addr4[1]})
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("an address of somebody else: %v", err)
	}
}

// TestRefusedByPeer sends to a peer without a NIC, which replies with ICMP errors. The port loses no datagrams because of them.
func TestRefusedByPeer(t *testing.T) {
	b := bed(t)
	tx, warnings := open(t, b, 0)
	for _, addrs := range [][2]netip.Addr{addr4, addr6} {
		f := frame(addrs[0], addrs[1], 0xc000, 0, packet(0, 100))
		for deadline := clock().Add(porttest.Limit); !slices.ContainsFunc(*warnings, func(w string) bool {
			return strings.Contains(w, addrs[1].String()+" refuses")
		}); time.Sleep(10 * time.Millisecond) {
			if clock() > deadline {
				t.Fatalf("not told: %q", *warnings)
			}
			mustSend(t, tx, f)
		}
		mustSend(t, tx, f) // causes another ICMP error
		rx, _ := open(t, b, 1, addrs[1])
		time.Sleep(50 * time.Millisecond)
		mustSend(t, tx, f)
		recvAll(t, rx, 1)
		rx.Close()
	}
	if tx.Stats().Refused == 0 || len(*warnings) != 2 {
		t.Errorf("%+v, %q", tx.Stats(), *warnings)
	}
}

// TestUnsendable checks that the port reports each error once and sends the next datagram.
func TestUnsendable(t *testing.T) {
	b := bed(t)
	tx, warnings := open(t, b, 0)
	rx, _ := open(t, b, 1)
	onVeth(t, b.NS[0], func(l netlink.Link) error {
		dst := netlink.NewIPNet(net4("198.19.0.1"))
		return netlink.RouteAdd(&netlink.Route{Dst: dst, Type: unix.RTN_PROHIBIT})
	})
	for i, c := range []struct {
		dst  netip.Addr
		size int
		want string
	}{
		{addr4[1], 20_000, "too long for the path to 198.18.0.2"},
		{addr6[1], 20_000, "too long for the path to fd00::2"},
		{netip.MustParseAddr("198.19.0.1"), 64, "to 198.19.0.1 is forbidden"},
		{netip.MustParseAddr("198.19.77.1"), 64, "no route to 198.19.77.1"},
	} {
		src := addr4[0]
		if c.dst.Is6() {
			src = addr6[0]
		}
		for range 3 {
			err := tx.Send(clock(), frame(src, c.dst, 0xc000, 0, packet(0, c.size)))
			if err == nil || errors.Is(err, port.ErrAgain) {
				t.Errorf("%v: %v", c.dst, err)
			}
		}
		if len(*warnings) != i+1 || !strings.Contains((*warnings)[i], c.want) {
			t.Errorf("%v: %q", c.dst, *warnings)
		}
	}
	if !strings.Contains(tx.Mode(), (*warnings)[3]) || tx.Stats().SendDropped != 12 {
		t.Errorf("mode %q, %+v", tx.Mode(), tx.Stats())
	}
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 100)))
	recvAll(t, rx, 1)
	if err := tx.Send(clock(), &link.Frame{Bufs: [][]byte{make([]byte, 60)}, Len: 60}); err == nil {
		t.Error("no datagram, but sent")
	}
}

func net4(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

// TestFullQueue fills a queue. The port reports that it is full, and that there is room again.
func TestFullQueue(t *testing.T) {
	b, tx, _ := openBoth(t)
	onVeth(t, b.NS[0], func(l netlink.Link) error {
		return netlink.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       1 << 20, Buffer: 1 << 20, Limit: 1 << 20, // buffer in ticks of 64 ns
		})
	})
	f := frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 4000))
	mustSend(t, tx, f)
	for name, c := range map[string]struct {
		option, size int
		want         error
	}{
		"socket":    {unix.SO_SNDBUF, 10_000, port.ErrAgain},
		"interface": {unix.SO_SNDBUFFORCE, 16 << 20, port.ErrRefused}, // port.Backlog retries
	} {
		if err := unix.SetsockoptInt(tx.locals[0].list[0].fd, unix.SOL_SOCKET, c.option, c.size); err != nil {
			t.Fatal(err)
		}
		sent := 0
		err := tx.Send(clock(), f)
		for ; err == nil && sent < 10_000; sent++ {
			err = tx.Send(clock(), f)
		}
		if !errors.Is(err, c.want) || tx.Stats().SendDropped != 0 {
			t.Fatalf("%s: after %d: %v, %+v", name, sent, err, tx.Stats())
		}
		for deadline := clock().Add(porttest.Limit); err != nil; err = tx.Send(clock(), f) {
			if clock() > deadline || !errors.Is(err, c.want) {
				t.Fatalf("%s: still %v", name, err)
			}
			if c.want == port.ErrRefused {
				time.Sleep(time.Millisecond) // a poll
				continue
			}
			if wait := max(0, tx.NextTimeout().Sub(clock())); !waitFD(tx, min(wait, porttest.Limit)) && wait > porttest.Limit {
				t.Fatalf("%s: nothing tells of room", name)
			}
		}
		if tx.NextTimeout() != 1<<63-1 {
			t.Errorf("%s: next timeout %v", name, tx.NextTimeout())
		}
	}
}

// TestOverrun counts datagrams that the kernel has dropped for lack of room.
func TestOverrun(t *testing.T) {
	b := bed(t)
	dst, warnings := open(t, b, 1, netip.MustParseAddr("198.18.1.2"))
	if err := unix.SetsockoptInt(dst.locals[0].rx, unix.SOL_SOCKET, unix.SO_RCVBUF, 20_000); err != nil {
		t.Fatal(err)
	}
	src, _ := open(t, b, 0, netip.MustParseAddr("198.18.1.1"))
	f := frame(src.addrs[0], dst.addrs[0], 0xc000, 0, packet(0, 1000))
	mustSend(t, src, f) // the first datagram waits for ARP
	recvAll(t, dst, 1)
	const sent = 200
	for range sent {
		mustSend(t, src, f)
	}
	got, all := 0, sent
	lost := func() int { return int(dst.Stats().Overruns) }
	for deadline := clock().Add(porttest.Limit); got+lost() < all && clock() < deadline; {
		if recv(t, dst, 100*time.Millisecond) != nil {
			got++
			continue
		}
		mustSend(t, src, f) // reports the losses before it
		all++
	}
	if got+lost() != all || lost() == 0 {
		t.Errorf("%d sent, %d received, %d counted", all, got, lost())
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], "rmem_max") {
		t.Errorf("%q", *warnings)
	}
}

// TestAddresses adds and removes addresses of an open port.
func TestAddresses(t *testing.T) {
	b, tx, rx := openBoth(t)
	change := func(do func(netlink.Link, *netlink.Addr) error) {
		onVeth(t, b.NS[1], func(l netlink.Link) error {
			a, err := netlink.ParseAddr("198.18.0.99/24")
			if err != nil {
				return err
			}
			return do(l, a)
		})
	}
	added := netip.MustParseAddr("198.18.0.99")
	change(netlink.AddrAdd)
	if err := rx.SetAddrs(append(slices.Clone(rx.addrs), added)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		mustSend(t, tx, frame(addr4[0], added, 0xc000, 0, packet(0, 100)))
		check(t, recvAll(t, rx, 1)[0], addr4[0], added, 0xc000, 0, packet(0, 100))
		change(netlink.AddrDel)
		if err := rx.SetAddrs(rx.addrs[:2]); err != nil {
			t.Fatal(err)
		}
		if err := rx.Send(clock(), frame(added, addr4[0], 0xc000, 0, packet(0, 100))); err == nil {
			t.Error("sent from an address that is gone")
		}
		// The port retries until the address exists.
		if err := rx.SetAddrs(append(slices.Clone(rx.addrs), added)); !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("round %d: %v", round, err)
		}
		if !strings.Contains(rx.Mode(), "without 1 of 3") {
			t.Errorf("mode %q", rx.Mode())
		}
		change(netlink.AddrAdd)
		for deadline := clock().Add(porttest.Limit); len(rx.locals) < 3; recv(t, rx, 50*time.Millisecond) {
			if clock() > deadline {
				t.Fatal("the address was not tried for again")
			}
		}
	}
}

// TestLoopback connects several NICs on one machine with different addresses.
func TestLoopback(t *testing.T) {
	b := bed(t)
	a1, _ := open(t, b, 0, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"))
	a2, _ := open(t, b, 0, netip.MustParseAddr("127.0.0.2"))
	a3, _ := open(t, b, 0, addr4[0], addr6[0])
	for i, c := range []struct {
		from, to *Port
		src, dst netip.Addr
	}{
		{a1, a2, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")},
		{a2, a1, netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")},
		{a1, a3, netip.MustParseAddr("::1"), addr6[0]},
		{a3, a2, addr4[0], netip.MustParseAddr("127.0.0.2")},
	} {
		packets := [][]byte{packet(0, 4096), packet(1, 4096), packet(2, i)}
		hello(t, c.from, c.to, c.src, c.dst)
		mustSend(t, c.from, frame(c.src, c.dst, 0xc000, 0, packets...))
		for j, s := range recvAll(t, c.to, 3) {
			check(t, s, c.src, c.dst, 0xc000, 0, packets[j])
		}
	}
}

// TestLink checks that the port carries no frames while the interface is down.
func TestLink(t *testing.T) {
	_, tx, _ := openBoth(t)
	tx.SetLink(0, link.State{Err: fmt.Errorf("unplugged")})
	_, _, err := tx.Recv(clock(), make([]byte, 2000))
	serr := tx.Send(clock(), frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 0)))
	if err != port.ErrDown || serr != port.ErrDown || tx.FD() != -1 || tx.State().Err == nil {
		t.Errorf("receive: %v, send: %v, %+v", err, serr, tx.State())
	}
	tx.SetLink(0, link.State{Up: true, MTU: 65536})
	if tx.State().MTU != link.MaxMTU || tx.FD() < 0 {
		t.Errorf("%+v", tx.State())
	}
}

// TestDropReason: a message about drops asks for a larger limit only if the limit is too small.
func TestDropReason(t *testing.T) {
	if s := dropReason(4 << 20); s != "the socket buffer of 4096 KiB was full; "+port.RaiseReceiveBuffer {
		t.Error(s)
	}
	if s := dropReason(port.ReceiveBuffer); strings.Contains(s, "rmem_max") {
		t.Error(s)
	}
}
