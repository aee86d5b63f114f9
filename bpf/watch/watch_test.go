package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/plugin/mono"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ethLen = 14

// frame returns an Ethernet frame with a UDP datagram over IPv4 or IPv6.
func frame(v6 bool, id uint16, port uint16, datagram []byte) []byte {
	n := 8 + len(datagram)
	b := make([]byte, 12, ethLen+48+len(datagram))
	be := binary.BigEndian
	if v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, byte(n>>8), byte(n), 17, 64)
		b = append(b, bytes.Repeat([]byte{0xfd, 1}, 16)...)
	} else {
		b = append(b, 8, 0, 0x45, 2, byte((n+20)>>8), byte(n+20), byte(id>>8), byte(id), 0x40, 0, 64, 17, 0, 0)
		b = append(b, 198, 18, 0, 1, 198, 18, 0, 2)
	}
	b = be.AppendUint16(b, 0xc123)
	b = be.AppendUint16(b, port)
	b = be.AppendUint16(b, uint16(n))
	b = append(append(b, 0, 0), datagram...)
	if port == bth.UDPPort && len(datagram) >= bth.BTHLen+bth.ICRCLen {
		if err := bth.SealICRC(b[ethLen:]); err != nil {
			panic(err)
		}
	}
	return b
}

// segments returns the n datagrams of a message and the corresponding super-frame. All datagrams except the last have size
// bytes of data.
func segments(v6 bool, n, size, last int) (frames [][]byte, super []byte) {
	headers := ethLen + 28
	if v6 {
		headers = ethLen + 48
	}
	for i := range n {
		p := bth.Packet{Opcode: bth.OpWriteMiddle, PKey: bth.DefaultPKey, DestQP: 17, PSN: bth.MakePSN(uint32(0xfffffe + i))}
		p.Payload = bytes.Repeat([]byte{byte(i)}, size)
		if i == n-1 {
			p.Opcode, p.Payload = bth.OpWriteLast, p.Payload[:last]
		}
		frames = append(frames, frame(v6, uint16(0xfffe+i), bth.UDPPort, p.AppendTo(nil)))
		if i == 0 {
			super = append(super, frames[0]...)
		} else {
			super = append(super, frames[i][headers:]...)
		}
	}
	return frames, super
}

// cut returns the part of a frame that the program copies.
func cut(f []byte, room int) []byte {
	headers := 28
	if f[12] == 0x86 {
		headers = 48
	}
	return f[ethLen:][:min(headers+room, len(f)-ethLen)]
}

// open observes the loopback interface of a new namespace.
func open(t *testing.T, ring uint32) *Socket {
	t.Helper()
	bed := newBed(t)
	var s *Socket
	must(t, bed.NS[0].Do(func() (err error) {
		s, err = Open("lo", ring)
		return err
	}))
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func newBed(t *testing.T) *netlab.Bed {
	t.Helper()
	bed, err := netlab.New()
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN and CAP_BPF: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, bed.Close()) })
	return bed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run passes a frame to the program with PROG_TEST_RUN and returns the packets that the reader receives. gsoSize is the
// segment size of a super-frame.
func run(t *testing.T, s *Socket, frame []byte, gsoSize int) (seen [][]byte) {
	t.Helper()
	var skb [192]byte // struct __sk_buff of linux/bpf.h
	const gsoSizeAt = 176
	binary.NativeEndian.PutUint32(skb[gsoSizeAt:], uint32(gsoSize))
	code, err := s.objs.Watch.Run(&ebpf.RunOptions{Data: frame, Context: skb})
	if err != nil {
		t.Fatalf("a frame of %d bytes, segments of %d: %v", len(frame), gsoSize, err)
	}
	if code != 0 {
		t.Errorf("the program lets the socket have %d bytes", code)
	}
	must(t, s.Read(time.Now(), func(_ mono.Time, ip []byte) { seen = append(seen, slices.Clone(ip)) }))
	return seen
}

func compare(t *testing.T, what string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d packets, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%s: packet %d is\n%x, want\n%x", what, i, got[i], want[i])
		}
	}
}

// TestProgram passes packets to the program. It reports RoCEv2 packets truncated, and those of super-frames like single ones.
func TestProgram(t *testing.T) {
	s := open(t, 1<<20)
	ack := bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, DestQP: 0x010001, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
	long := bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 0x010101, Payload: make([]byte, 1024)}
	mad := bth.Packet{Opcode: bth.TransportUD | bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 1, Payload: bytes.Repeat([]byte("mad!"), 64)}
	for _, v6 := range []bool{false, true} {
		for name, c := range map[string]struct {
			packet bth.Packet
			room   int
		}{"ack": {ack, 96}, "long": {long, 96}, "mad": {mad, 276}} {
			f := frame(v6, 7, bth.UDPPort, c.packet.AppendTo(nil))
			compare(t, fmt.Sprintf("%s, v6 %t", name, v6), run(t, s, f, 0), [][]byte{cut(f, c.room)})
			padded := append(slices.Clone(f), make([]byte, 6)...)
			got := run(t, s, padded, 0)
			if len(got) != 1 || !bytes.HasPrefix(got[0], cut(f, c.room)) {
				t.Errorf("%s, v6 %t: padded frame gives %x", name, v6, got)
			}
		}
		for n, size := range map[int]int{2: 1024, 3: 256, 64: 32, 128: 8} {
			frames, super := segments(v6, n, size, 4)
			var want [][]byte
			for _, f := range frames {
				want = append(want, cut(f, 96))
			}
			compare(t, fmt.Sprintf("%d segments, v6 %t", n, v6), run(t, s, super, bth.BTHLen+size+bth.ICRCLen), want)
		}
	}
}

// tagged returns a frame with VLAN tags.
func tagged(f []byte, types ...uint16) []byte {
	out := slices.Clone(f[:12])
	for i, t := range types {
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, t), uint16(0x4005+i))
	}
	return append(out, f[12:]...)
}

// extended returns an IPv6 frame with extension headers.
func extended(f []byte, headers ...[]byte) []byte {
	next := f[20]
	var all []byte
	for i := len(headers) - 1; i >= 0; i-- {
		h := slices.Clone(headers[i])
		next, h[0] = h[0], next
		all = append(h, all...)
	}
	out := append(slices.Clone(f[:54]), all...)
	out[20] = next
	binary.BigEndian.PutUint16(out[18:], binary.BigEndian.Uint16(f[18:])+uint16(len(all)))
	return append(out, f[54:]...)
}

// Extension headers, with their own number in place of that of the next header.
var (
	hopByHop    = []byte{0, 0, 1, 4, 0, 0, 0, 0}
	destination = append([]byte{60, 1, 1, 12}, make([]byte, 12)...)
	routing     = append([]byte{43, 2, 4, 0, 0, 0, 0, 0}, make([]byte, 16)...)
	atomic      = []byte{44, 0, 0, 0, 0, 0, 0, 1}
)

// TestTags passes frames with VLAN tags, and frames with extension headers. The reader receives them without both, and without the
// ICRC, which covers the extension headers.
func TestTags(t *testing.T) {
	s := open(t, 1<<20)
	ack := (&bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, DestQP: 17}).AppendTo(nil)
	long := (&bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: make([]byte, 1024)}).AppendTo(nil)
	for _, types := range [][]uint16{{0x8100}, {0x88a8, 0x8100}, {0x9100, 0x8100, 0x8100}} {
		for _, v6 := range []bool{false, true} {
			f := frame(v6, 7, bth.UDPPort, long)
			compare(t, fmt.Sprintf("tags %x, v6 %t", types, v6), run(t, s, tagged(f, types...), 0), [][]byte{cut(f, 96)})
		}
	}
	for name, headers := range map[string][][]byte{"hop by hop": {hopByHop}, "all": {hopByHop, destination, routing, atomic, destination}} {
		f := frame(true, 7, bth.UDPPort, ack)
		compare(t, name, run(t, s, extended(f, headers...), 0), [][]byte{f[ethLen : len(f)-bth.ICRCLen]})
		g := frame(true, 7, bth.UDPPort, long)
		compare(t, name, run(t, s, tagged(extended(g, headers...), 0x88a8, 0x8100), 0), [][]byte{cut(g, 96)})
	}
	mrc := frame(false, 7, bth.MRCUDPPort, long)
	compare(t, "MRC", run(t, s, mrc, 0), [][]byte{cut(mrc, 96)})
}

// TestOthers passes frames that are not RoCEv2. The program counts them by reason and does not report them.
func TestOthers(t *testing.T) {
	s := open(t, 1<<20)
	data := (&bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: []byte("data")}).AppendTo(nil)
	change := func(v6 bool, at int, v byte) []byte {
		f := frame(v6, 7, bth.UDPPort, data)
		f[at] = v
		return f
	}
	part := slices.Clone(atomic)
	part[3] = 1 // more fragments
	for _, c := range []struct {
		want  string
		frame []byte
	}{
		{"ARP", change(false, 13, 6)}, {"other UDP ports", frame(false, 7, 4790, data)}, {"TCP", change(false, 23, 6)}, {"TCP", change(true, 20, 6)},
		{"IP fragments", change(false, 20, 0x20)}, {"IP fragments", change(false, 21, 1)}, {"IP fragments", extended(change(true, 13, 0xdd), part)},
		{"malformed", change(false, 14, 0x55)}, {"malformed", change(false, 14, 0x44)}, {"malformed", change(true, 14, 0x40)},
		{"malformed", change(false, 14, 0x4f)}, {"malformed", frame(false, 7, bth.UDPPort, make([]byte, 11))},
		{"VXLAN", frame(false, 7, 4789, data)}, {"VXLAN", frame(true, 7, 8472, data)}, {"GENEVE", frame(false, 7, 6081, data)}, {"GRE", change(false, 23, 47)},
		{"IP in IP", change(false, 23, 4)}, {"IP in IP", change(true, 20, 41)}, {"ICMP", change(true, 20, 58)}, {"other IP protocols", change(false, 23, 50)},
		{"RoCE v1", append(make([]byte, 12), append([]byte{0x89, 0x15}, make([]byte, 60)...)...)},
		{"MPLS", append(make([]byte, 12), append([]byte{0x88, 0x47}, make([]byte, 60)...)...)},
		{"other EtherTypes", append(make([]byte, 12), append([]byte{0x88, 0xcc}, make([]byte, 60)...)...)},
		{"nested too deeply", extended(change(true, 13, 0xdd), slices.Repeat([][]byte{destination}, 9)...)},
		{"other EtherTypes", tagged(change(false, 13, 0), 0x8100, 0x8100, 0x8100, 0x8100, 0x8100)},
	} {
		before, err := s.Others()
		must(t, err)
		got := run(t, s, c.frame, 0)
		after, err := s.Others()
		must(t, err)
		for reason, n := range before {
			after[reason] -= n
		}
		maps.DeleteFunc(after, func(_ string, n uint64) bool { return n == 0 })
		if len(got) != 0 || len(after) != 1 || after[c.want] != 1 {
			t.Errorf("%s: %x, %v", c.want, got, after)
		}
	}
	if got := run(t, s, change(false, 13, 0), 0); len(got) != 1 {
		t.Errorf("what is RoCEv2 gives %d packets", len(got))
	}
}

// TestLost fills the ring buffer. The reader receives each packet or counts it as lost.
func TestLost(t *testing.T) {
	s := open(t, uint32(os.Getpagesize()))
	frames, super := segments(false, 128, 8, 4)
	seen := len(run(t, s, super, bth.BTHLen+8+bth.ICRCLen))
	lost, err := s.Lost()
	must(t, err)
	if lost == 0 || seen == 0 || uint64(seen)+lost != uint64(len(frames)) {
		t.Errorf("%d packets seen and %d lost of %d", seen, lost, len(frames))
	}
}

// TestInterface observes real frames on both ends of a veth, and on loopback, where each frame passes twice.
func TestInterface(t *testing.T) {
	bed := newBed(t)
	var ends [2]*Socket
	for i := range ends {
		must(t, bed.NS[i].Do(func() (err error) {
			ends[i], err = Open("v0", RingSize)
			return err
		}))
		defer func() { must(t, ends[i].Close()) }()
	}
	p := bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: make([]byte, 300)}
	want := [][]byte{}
	before := time.Now().Add(-time.Second)
	for i := range 50 {
		p.PSN = bth.MakePSN(uint32(i))
		f := frame(i%2 == 1, uint16(i), bth.UDPPort, p.AppendTo(nil))
		want = append(want, cut(f, 96))
		switch i % 5 {
		case 1:
			f = tagged(f, 0x8100)
		case 2:
			f = tagged(f, 0x88a8, 0x8100)
		}
		must(t, bed.NS[0].Do(func() error { return inject("v0", f) }))
	}
	for i, s := range ends {
		var got [][]byte
		for deadline := time.Now().Add(20 * time.Second); len(got) < len(want) && time.Now().Before(deadline); {
			must(t, s.Read(time.Now().Add(10*time.Millisecond), func(at mono.Time, ip []byte) {
				got = append(got, slices.Clone(ip))
				if when := time.Unix(0, int64(at)); when.Before(before) || when.After(time.Now().Add(time.Second)) {
					t.Errorf("a packet of just now has the time %v", when)
				}
			}))
		}
		compare(t, fmt.Sprintf("end %d", i), got, want)
	}
}

// inject sends a frame on an interface.
func inject(name string, frame []byte) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index})
}

// TestLoopback sends a datagram to the host itself. The reader receives it once.
func TestLoopback(t *testing.T) {
	bed := newBed(t)
	var s *Socket
	must(t, bed.NS[0].Do(func() (err error) {
		s, err = Open("lo", RingSize)
		return err
	}))
	defer func() { must(t, s.Close()) }()
	f := frame(false, 7, bth.UDPPort, (&bth.Packet{Opcode: bth.OpSendOnly, DestQP: 17}).AppendTo(nil))
	must(t, bed.NS[0].Do(func() error { return inject("lo", f) }))
	n := 0
	for deadline := time.Now().Add(20 * time.Second); n == 0 && time.Now().Before(deadline); {
		must(t, s.Read(time.Now().Add(10*time.Millisecond), func(mono.Time, []byte) { n++ }))
	}
	must(t, s.Read(time.Now(), func(mono.Time, []byte) { n++ }))
	if n != 1 {
		t.Errorf("a datagram was seen %d times", n)
	}
}

// TestGone deletes the observed interface.
func TestGone(t *testing.T) {
	bed := newBed(t)
	must(t, bed.NS[0].Do(func() error {
		if _, err := Open("nosuch", RingSize); err == nil || err.Error() != "interface nosuch: no such network interface" {
			t.Errorf("no such interface: %v", err)
		}
		s, err := Open("v0", RingSize)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Check(); err != nil {
			t.Errorf("while it is there: %v", err)
		}
		if out, err := exec.Command("ip", "link", "delete", "v0").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if err := s.Check(); !errors.Is(err, ErrGone) {
			t.Errorf("when it is gone: %v", err)
		}
		return nil
	}))
}

// FuzzPacket passes arbitrary records to the reader.
func FuzzPacket(f *testing.F) {
	f.Add(make([]byte, 16+68+96))
	f.Add([]byte{15: 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := Socket{ip: make([]byte, 0, 512)}
		if _, ip, ok := s.packet(b); ok && len(ip) > len(b) {
			t.Errorf("%d bytes from a record of %d", len(ip), len(b))
		}
	})
}
