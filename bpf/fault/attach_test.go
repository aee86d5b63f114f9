package fault

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
)

// modes returns the attach modes that the kernel supports.
func modes(t *testing.T) []attach.Mode {
	t.Helper()
	inNamespace(t)
	a, err := Attach("lo", attach.TCX)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return []attach.Mode{attach.Clsact}
	}
	must(t, err)
	must(t, a.Close())
	return []attach.Mode{attach.TCX, attach.Clsact}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// joined makes a veth between "left" and "right", and routes 198.18.0.2 over left.
func joined(t *testing.T) {
	t.Helper()
	inNamespace(t)
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}))
	right, err := netlink.LinkByName("right")
	must(t, err)
	left, err := netlink.LinkByName("left")
	must(t, err)
	must(t, errors.Join(netlink.LinkSetUp(right), netlink.LinkSetUp(left)))
	addr, err := netlink.ParseAddr("198.18.0.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(left, addr))
	must(t, netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: left.Attrs().Index, IP: net.IPv4(198, 18, 0, 2), HardwareAddr: right.Attrs().HardwareAddr, State: netlink.NUD_PERMANENT,
	}))
	eventually(t, "left has a queue", func() bool {
		l, err := netlink.LinkByName("left")
		must(t, err)
		return l.Attrs().OperState == netlink.OperUp
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 10 s: " + what)
		}
	}
}

// sendSuper sends packets with PSNs from 0 on in one super-frame.
func sendSuper(t *testing.T, packets int) {
	t.Helper()
	const size = 1000
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, size))
	b := make([]byte, packets*size)
	for i := range packets {
		b[i*size] = byte(bth.OpWriteMiddle)
		binary.BigEndian.PutUint32(b[i*size+4:], 0x11)
		binary.BigEndian.PutUint32(b[i*size+8:], uint32(i))
	}
	must(t, unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Port: bth.UDPPort, Addr: [4]byte{198, 18, 0, 2}}))
}

func attached(t *testing.T, name string, m attach.Mode, rule string) *Attachment {
	t.Helper()
	a, err := Attach(name, m)
	must(t, err)
	r, err := fault.Parse(rule)
	must(t, err)
	must(t, a.SetRules([]fault.Rule{r}))
	return a
}

func stats(t *testing.T, a *Attachment) Stats {
	t.Helper()
	s, err := a.Stats()
	must(t, err)
	return s
}

// TestSuperFrames applies rules to packets of super-frames, which the program segments, in both directions.
func TestSuperFrames(t *testing.T) {
	for _, m := range modes(t) {
		t.Run(string(m), func(t *testing.T) {
			joined(t)
			left, right := attached(t, "left", m, "tx drop psn=3..4"), attached(t, "right", m, "rx ecn psn=5")
			if left.Mode() != m {
				t.Errorf("attached by %s", left.Mode())
			}
			sendSuper(t, 10)
			eventually(t, "8 packets arrive", func() bool { return stats(t, right).Rx.Frames == 8 })
			s := stats(t, left)
			if want := (Counters{Frames: 10, Supers: 1}); s.Tx != want || s.Rules[0].Hit != 2 {
				t.Errorf("left: %+v", s)
			}
			must(t, left.Close())
			sendSuper(t, 10)
			eventually(t, "10 packets arrive", func() bool { return stats(t, right).Rx.Frames == 18 })
			if s := stats(t, right); s.Rx.Supers != 1 || s.Rx.Unsplit != 0 || s.Rules[0].Hit != 2 {
				t.Errorf("right: %+v", s)
			}
			must(t, right.Close())
			nothingLeft(t)
		})
	}
}

func nothingLeft(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	must(t, err)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "rf") {
			t.Errorf("%s is left", l.Attrs().Name)
		}
		qdiscs, err := netlink.QdiscList(l)
		must(t, err)
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				t.Errorf("%s has clsact", l.Attrs().Name)
			}
		}
	}
}

// TestOneAtATime checks that Attach refuses a second program on an interface, and that Clean does not affect the first.
func TestOneAtATime(t *testing.T) {
	for _, m := range modes(t) {
		t.Run(string(m), func(t *testing.T) {
			joined(t)
			a := attached(t, "left", m, "tx drop")
			if _, err := Attach("left", m); err == nil || !strings.Contains(err.Error(), "another process") {
				t.Errorf("a second one: %v", err)
			}
			if err := Clean("left"); err == nil || !strings.Contains(err.Error(), "another process") {
				t.Errorf("clean: %v", err)
			}
			sendSuper(t, 4)
			eventually(t, "4 packets are dropped", func() bool { return stats(t, a).Rules[0].Hit == 4 })
			must(t, a.Close())
			must(t, Clean("left"))
			nothingLeft(t)
		})
	}
	if err := Clean("nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("no such interface: %v", err)
	}
}
