package udp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
)

const sourcePort = 0xc000

// tooBig returns an ICMP message that a packet of this source port is too long for a link of 600 bytes.
func tooBig(from, to netip.Addr) []byte {
	const mtu = 600
	if from.Is4() {
		b := make([]byte, 8+20+8)
		b[0], b[1] = 3, 4 // fragmentation needed, RFC 792
		binary.BigEndian.PutUint16(b[6:], mtu)
		ip := b[8:]
		ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(ip[2:], 4200)
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
		binary.BigEndian.PutUint16(ip[20:], sourcePort)
		binary.BigEndian.PutUint16(ip[22:], bth.UDPPort)
		sum := uint32(0)
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(b[2:], ^uint16(sum>>16+sum))
		return b
	}
	b := make([]byte, 8+40+8)
	b[0] = 2 // packet too big, RFC 4443; the kernel fills in the checksum
	binary.BigEndian.PutUint32(b[4:], 1280)
	ip := b[8:]
	ip[0], ip[6], ip[7] = 0x60, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(ip[4:], 4160)
	copy(ip[8:], from.AsSlice())
	copy(ip[24:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[40:], sourcePort)
	binary.BigEndian.PutUint16(ip[42:], bth.UDPPort)
	return b
}

// forge sends the message for a peer to the victim, from the other namespace.
func forge(t *testing.T, b *netlab.Bed, victim, peer netip.Addr) {
	t.Helper()
	err := b.NS[1].Do(func() error {
		family, proto := unix.AF_INET, unix.IPPROTO_ICMP
		var to unix.Sockaddr = &unix.SockaddrInet4{Addr: v4Bytes(victim)}
		if victim.Is6() {
			family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
			to = &unix.SockaddrInet6{Addr: victim.As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, tooBig(victim, peer), 0, to)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestForgedICMP sends forged messages that packets are too long. Long packets continue to pass, and the port reports the
// messages as hints.
func TestForgedICMP(t *testing.T) {
	b, tx, rx := openBoth(t)
	for _, a := range [][2]netip.Addr{addr4, addr6} {
		f := frame(a[0], a[1], sourcePort, 0, packet(0, 4096))
		mustSend(t, tx, f)
		recvAll(t, rx, 1)
		before := tx.Stats().Refused
		forge(t, b, a[0], a[1])
		for deadline := clock().Add(porttest.Limit); tx.Stats().Refused == before; {
			if clock() > deadline {
				t.Fatalf("%v: no ICMP message arrives", a[1])
			}
			mustSend(t, tx, f)
			recvAll(t, rx, 1)
		}
		mustSend(t, tx, f)
		recvAll(t, rx, 1)
		if want := fmt.Sprintf("unverified ICMP message: packets are too long for the path to %v", a[1]); !strings.Contains(tx.Mode(), want) {
			t.Errorf("mode %q, want %q", tx.Mode(), want)
		}
	}
	if tx.Stats().SendDropped != 0 {
		t.Errorf("%+v", tx.Stats())
	}
}

// TestHints: forged messages for many peers leave a bounded number of warnings.
func TestHints(t *testing.T) {
	told := 0
	n := notices{warn: func(string) { told++ }}
	peer := netip.MustParseAddr("198.18.0.1")
	for range 10_000 {
		n.hint(peer, unix.EHOSTUNREACH)
		n.hint(peer, unix.EHOSTUNREACH)
		peer = peer.Next()
	}
	if told != maxHints {
		t.Errorf("%d warnings, want %d", told, maxHints)
	}
}
