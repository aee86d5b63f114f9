package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

// TestOthers passes frames that are not RoCEv2. The program does not report them.
func TestOthers(t *testing.T) {
	s := open(t, 1<<20)
	p := bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: []byte("data")}
	change := func(v6 bool, at int, v byte) []byte {
		f := frame(v6, 7, bth.UDPPort, p.AppendTo(nil))
		f[at] = v
		return f
	}
	for name, f := range map[string][]byte{
		"ARP":        change(false, 13, 6),
		"other port": frame(false, 7, 4790, p.AppendTo(nil)),
		"TCP":        change(false, 23, 6), "v6 TCP": change(true, 20, 6),
		"fragment": change(false, 20, 0x20), "later fragment": change(false, 21, 1),
		"version": change(false, 14, 0x55), "header length": change(false, 14, 0x44), "v6 version": change(true, 14, 0x40),
		"longer header": change(false, 14, 0x4f), "no BTH": frame(false, 7, bth.UDPPort, make([]byte, 11)),
	} {
		if got := run(t, s, f, 0); len(got) != 0 {
			t.Errorf("%s: %x", name, got)
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
