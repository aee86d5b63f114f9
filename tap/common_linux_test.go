package tap

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Now()

func clock() mono.Time { return mono.Time(time.Since(start)) + 1 }

// bed makes the two-namespace network.
func bed(t testing.TB) *netlab.Bed {
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

// tapPair opens a TAP in each namespace of a new bed.
func tapPair(t testing.TB, offload0, offload1 bool) (b *netlab.Bed, tx, rx *TAP) {
	t.Helper()
	b = bed(t)
	tx = openTAP(t, TAPConfig{Name: "roce0", Netns: b.NS[0].Path(), Bridge: netlab.Bridge, MTU: netlab.MTU, Offload: offload0})
	rx = openTAP(t, TAPConfig{Name: "roce0", Netns: b.NS[1].Path(), Bridge: netlab.Bridge, MTU: netlab.MTU, Offload: offload1})
	warmUp(t, tx, rx)
	warmUp(t, rx, tx)
	return b, tx, rx
}

// warmUp waits until frames pass from tx to rx: the kernel takes up to a second
// to tell a bridge that a port of it has come up.
func warmUp(t testing.TB, tx, rx Port) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for range 500 {
		mustSend(t, tx, frame(addr4[0], addr4[1], 0, 0, 16))
		if _, _, ok := recv(t, rx, buf, 10*time.Millisecond); ok {
			for ok {
				_, _, ok = recv(t, rx, buf, 20*time.Millisecond)
			}
			return
		}
	}
	t.Fatal("no frame passed")
}

func openTAP(t testing.TB, c TAPConfig) *TAP {
	t.Helper()
	p, err := OpenTAP(c)
	if err != nil {
		if unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
			t.Skipf("needs access to /dev/net/tun: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if p.OffloadNote() != "" {
		t.Logf("offload: %s", p.OffloadNote())
	}
	return p
}

var (
	addr4 = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}
	addr6 = [2]netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
)

// frame builds a RoCEv2-like frame, or a super-frame when segSize is not 0, with
// n bytes of UDP payload that tell their place.
func frame(src, dst netip.Addr, id uint16, segSize, n int) *rocev2.Frame {
	h := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 0x08, 0)
	if src.Is4() {
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(28+n))
		binary.BigEndian.PutUint16(ip[4:], id)
		ip = append(append(ip, src.AsSlice()...), dst.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip, 0))
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
		binary.BigEndian.PutUint16(udp[6:], sum(pseudo, uint32(17+8+n)))
	}
	h = append(h, udp...)
	body := make([]byte, n)
	for i := range body {
		body[i] = byte(i ^ i>>8 ^ int(id))
	}
	half := n / 3
	return &rocev2.Frame{Bufs: [][]byte{h, body[:half], nil, body[half:]}, Len: len(h) + n, HdrLen: len(h), SegSize: segSize}
}

// sum is the Internet checksum of b, not complemented, added to s.
func sum(b []byte, s uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// isTest reports whether b is one of the frames above and not some neighbour
// discovery of the kernel.
func isTest(b []byte) bool {
	if len(b) < 42 {
		return false
	}
	udp := b[34:]
	if b[12] == 0x86 {
		udp = b[54:]
	}
	return len(udp) >= 8 && binary.BigEndian.Uint16(udp[2:]) == 4791
}

// recv waits for a test frame for as long as wait.
func recv(t testing.TB, p Port, buf []byte, wait time.Duration) (n, segSize int, ok bool) {
	t.Helper()
	for deadline := clock().Add(wait); ; {
		n, segSize, err := p.Recv(clock(), buf)
		if err == nil {
			if isTest(buf[:n]) {
				return n, segSize, true
			}
			continue
		}
		if !errors.Is(err, ErrAgain) {
			t.Fatal(err)
		}
		left := deadline.Sub(clock())
		if left <= 0 {
			return 0, 0, false
		}
		waitFD(p, min(left, max(p.NextTimeout().Sub(clock()), 0)))
	}
}

func waitFD(p Port, d time.Duration) int16 {
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	unix.Ppoll(fds, &ts, nil)
	return fds[0].Revents
}

func mustSend(t testing.TB, p Port, f *rocev2.Frame) {
	t.Helper()
	if err := p.Send(clock(), f); err != nil {
		t.Fatal(err)
	}
}

// until runs Recv on p, as its NIC would, until cond holds.
func until(t testing.TB, p Monitored, what string, cond func() bool) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for deadline := clock().Add(10 * time.Second); !cond(); {
		if clock() > deadline {
			t.Fatalf("waited in vain for %s; state %+v", what, p.State())
		}
		p.Recv(clock(), buf)
		waitFD(p, min(10*time.Millisecond, max(p.NextTimeout().Sub(clock()), 0)))
	}
}
