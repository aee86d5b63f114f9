package fault

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"pgregory.net/rapid"

	"roced.io/roced/internal/base/fault"
)

// Return values of the program.
const (
	next = 0xffffffff
	lost = 7 // TC_ACT_REDIRECT, to an interface that does not exist
)

// inNamespace runs the rest of a test in a new network namespace.
func inNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
}

func load(t testing.TB) *Program {
	t.Helper()
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// sink makes a device that accepts all frames, including copies of the program.
func sink(t testing.TB, p *Program) netlink.Link {
	t.Helper()
	// Without IPv6 the kernel sends no frames of its own.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	d := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "sink", MTU: 9000}, PeerName: "drain"}
	if err := netlink.LinkAdd(d); err != nil {
		t.Fatal(err)
	}
	var l netlink.Link
	for _, name := range []string{"drain", "sink"} {
		var err error
		if l, err = netlink.LinkByName(name); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	p.settings.Ifindex = uint32(l.Attrs().Index)
	return l
}

func sent(t testing.TB) uint64 {
	t.Helper()
	l, err := netlink.LinkByName("sink")
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Statistics.TxPackets
}

// run passes a frame to the program.
func run(t testing.TB, p *Program, d fault.Dir, frame []byte) (answer uint32, out []byte) {
	t.Helper()
	prog := p.objs.FaultRx
	if d == fault.Tx {
		prog = p.objs.FaultTx
	}
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	answer, err := prog.Run(opts)
	if err != nil {
		t.Fatalf("run on %d bytes: %v", len(frame), err)
	}
	return answer, opts.DataOut
}

var opcodes = []byte{0x11, 0x11, 0x11, 0x11, 0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x0a, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14,
	0x24, 0x2a, 0x64, 0x81, 0xc6, 0xd1, 0xdc, 0xe4, 0xf1, 0xf1, 0xff}

var addrs = []string{"198.18.0.1", "198.18.0.2", "fd00::1", "fd00::2"}

// genFrame draws a frame, which is usually RoCEv2.
func genFrame(t *rapid.T) []byte {
	v6 := rapid.Bool().Draw(t, "v6")
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	if rapid.IntRange(0, 5).Draw(t, "vlan") == 0 {
		b = append(b, 0x81, 0, 0xa0, byte(rapid.SampledFrom([]int{0, 7}).Draw(t, "vlan id")))
	}
	pick := rapid.IntRange(0, 1)
	src, dst := pick.Draw(t, "src"), pick.Draw(t, "dst")
	payload := rapid.SliceOfN(rapid.Byte(), 5, 80).Draw(t, "payload")
	payload[4] = rapid.SampledFrom([]byte{0x1f, 0x60}).Draw(t, "extended syndrome")
	payload[0] = rapid.SampledFrom([]byte{0, 0x1f, 0x20, 0x21, 0x60, 0x80}).Draw(t, "syndrome")
	udp := make([]byte, 20, 20+len(payload))
	binary.BigEndian.PutUint16(udp, rapid.SampledFrom([]uint16{49152, 50001, 65535, 7}).Draw(t, "source port"))
	binary.BigEndian.PutUint16(udp[2:], rapid.SampledFrom([]uint16{4791, 4791, 4791, 4791, 4971, 4971, 4792}).Draw(t, "port"))
	udp[8] = rapid.SampledFrom(opcodes).Draw(t, "opcode")
	binary.BigEndian.PutUint32(udp[12:], rapid.SampledFrom([]uint32{0x11, 0x12, 0xffff31}).Draw(t, "qpn")|uint32(rapid.Byte().Draw(t, "ecn"))<<24)
	psn := (0xfffffe + rapid.Uint32Range(0, 6).Draw(t, "psn")) & 0xffffff
	binary.BigEndian.PutUint32(udp[16:], psn|uint32(rapid.SampledFrom([]uint32{0, 1 << 31}).Draw(t, "ackreq")))
	udp = append(udp, payload...)
	length := len(udp) - rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1, 40}).Draw(t, "shorter")
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	if v6 {
		b = append(append(b, 0x86, 0xdd), ipv6(t, src, dst, len(udp))...)
	} else {
		b = append(append(b, 0x08, 0x00), ipv4(t, src, dst, len(udp))...)
	}
	b = append(b, udp...)
	b = append(b, make([]byte, rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "padding"))...)
	if rapid.IntRange(0, 15).Draw(t, "cut") == 0 {
		b = b[:rapid.IntRange(54, len(b)).Draw(t, "length")]
	}
	return b
}

func ipv4(t *rapid.T, src, dst, n int) []byte {
	options := rapid.SampledFrom([]int{0, 0, 0, 4, 40}).Draw(t, "options")
	ip := make([]byte, 20+options)
	ip[0], ip[1], ip[8], ip[9] = byte(0x40|len(ip)/4), rapid.Byte().Draw(t, "tos"), 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+n))
	binary.BigEndian.PutUint16(ip[6:], rapid.SampledFrom([]uint16{0x4000, 0x4000, 0, 0x2000, 0x0001}).Draw(t, "fragment"))
	copy(ip[12:], netip.MustParseAddr(addrs[src]).AsSlice())
	copy(ip[16:], netip.MustParseAddr(addrs[dst]).AsSlice())
	binary.BigEndian.PutUint16(ip[10:], rapid.Uint16().Draw(t, "checksum"))
	return ip
}

func ipv6(t *rapid.T, src, dst, n int) []byte {
	ip := make([]byte, 40)
	ip[0], ip[1] = 0x60|rapid.Byte().Draw(t, "class")>>4, rapid.Byte().Draw(t, "label")
	binary.BigEndian.PutUint16(ip[4:], uint16(n))
	ip[6], ip[7] = rapid.SampledFrom([]byte{17, 17, 17, 17, 44}).Draw(t, "next"), 64
	copy(ip[8:], netip.MustParseAddr(addrs[2+src]).AsSlice())
	copy(ip[24:], netip.MustParseAddr(addrs[2+dst]).AsSlice())
	return ip
}

// genRule draws the text of a rule that the program supports.
func genRule(t *rapid.T) fault.Rule {
	one := func(name string, texts ...string) string { return rapid.SampledFrom(texts).Draw(t, name) }
	text := one("dir", "rx", "tx", "both") + " " +
		one("action", "drop", "duplicate", "duplicate 3", "corrupt", "corrupt 0", "corrupt -1", "corrupt 30", "corrupt -70", "ecn") +
		one("by qpn", "", " qpn=0x11", " qpn=0xffff31", " qpn=0xffff31") +
		one("by psn", "", "", " psn=+0", " psn=+1..3", " psn=0xffffff", " psn=0xffffff..1") +
		one("by class", "", "", " op=request", " op=response", " op=ack", " op=nak", " op=nak", " op=send", " op=write", " op=read",
			" op=readresp", " op=atomic", " op=cnp", " op=any") +
		one("by sighting", "", "", " n=1", " n=2,3") +
		one("by peer", "", "", "", " peer=198.18.0.1", " peer=fd00::2") +
		one("by source", "", "", "", " src=198.18.0.2", " src=fd00::1") +
		one("by destination", "", "", "", " dst=198.18.0.1", " dst=fd00::2") +
		one("by path", "", "", "", " path=0/2", " path=3/4", " path=7/65535") +
		one("share", "", "", " p=0.5", " p=0.3 seed=7") + one("limit", "", "", " count=1", " count=3")
	r, err := fault.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLikeTheEngine compares the program with internal/base/fault on the same frames.
func TestLikeTheEngine(t *testing.T) {
	inNamespace(t)
	p := load(t)
	sink(t, p)
	rapid.Check(t, func(r *rapid.T) {
		var e fault.Engine
		rules := rapid.SliceOfN(rapid.Custom(genRule), 1, 5).Draw(r, "rules")
		if err := e.SetRules(rules); err != nil {
			r.Fatal(err)
		}
		if err := p.SetRules(rules); err != nil {
			r.Fatal(err)
		}
		before, copies := sent(t), uint64(0)
		for range rapid.IntRange(1, 40).Draw(r, "frames") {
			d := rapid.SampledFrom([]fault.Dir{fault.Rx, fault.Tx}).Draw(r, "dir")
			frame := genFrame(r)
			answer, out := run(t, p, d, append([]byte(nil), frame...))
			want := e.Process(0, d, frame)
			if dropped := answer == lost; dropped != (want.Copies == 0) || !dropped && answer != next {
				r.Fatalf("%s % x: answer %#x, want %d copies: %s", d, frame, answer, want.Copies, want.Comment)
			}
			if diff := cmp.Diff(want.Frame, out); want.Copies > 0 && diff != "" {
				r.Fatalf("%s: frame after %q: (-want +got)\n%s", d, want.Comment, diff)
			}
			if d == fault.Tx && want.Copies > 1 {
				copies += uint64(want.Copies - 1)
			}
		}
		s, err := p.Stats()
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(e.RuleStats(), s.Rules, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			r.Fatalf("counters: (-want +got)\n%s", diff)
		}
		if got := sent(t) - before; got != copies {
			r.Fatalf("%d copies were sent, want %d", got, copies)
		}
	})
}
