package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// index returns the index of the veth in a namespace.
func index(t testing.TB, n *namespace.Namespace) (index int) {
	onVeth(t, n, func(l netlink.Link) error {
		index = l.Attrs().Index
		return nil
	})
	return index
}

// TestGroups sends to groups. The NICs in the group, also on the same machine, receive each packet once with a valid ICRC.
// The sender and NICs that have left the group do not receive it.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		group, src, beside string
		linkLocal          bool
	}{{"239.10.0.1", "198.18.0.1", "198.18.1.1", false}, {"ff15::99", "fd00::1", "fd00::77", false}, {"ff02::99", "fd00::1", "fd00::77", true}} {
		b := bed(t)
		group, src, beside := netip.MustParseAddr(c.group), netip.MustParseAddr(c.src), netip.MustParseAddr(c.beside)
		if beside.Is6() {
			onVeth(t, b.NS[0], func(l netlink.Link) error {
				a, err := netlink.ParseAddr(c.beside + "/64")
				if err == nil {
					a.Flags = unix.IFA_F_NODAD
					err = netlink.AddrAdd(l, a)
				}
				return err
			})
		}
		tx, _ := open(t, b, 0, src)
		near, _ := open(t, b, 0, beside)
		far, _ := open(t, b, 1)
		ports := []*Port{tx, near, far}
		for i, p := range ports {
			p.SetLink(index(t, b.NS[max(i-1, 0)]), link.State{Up: true, MTU: namespace.MTU})
			if err := p.Group(inet.GIDOf(group), true); err != nil {
				t.Fatal(err)
			}
		}
		f := frame(src, group, 0xc000, 0, packet(0, 100), packet(1, 100))
		f.Bufs[0][ethLen+8] = 7 // TTL, or part of an IPv6 address
		if group.Is6() {
			f = frame(src, group, 0xc000, 0, packet(0, 100), packet(1, 100))
		}
		within := func(p *Port, wait time.Duration) bool {
			t.Helper()
			got := recv(t, p, wait)
			for i, s := range got {
				check(t, s, src, group, 0xc000, 0, packet(i, 100))
			}
			return len(got) == 2
		}
		arrives := func(p *Port) bool { return within(p, porttest.Limit) }
		for deadline := clock().Add(porttest.Limit); clock() < deadline; { // the kernel must first detect the carrier
			mustSend(t, tx, f)
			if within(far, time.Second) {
				break
			}
		}
		recv(t, near, 50*time.Millisecond)
		for recv(t, near, 50*time.Millisecond) != nil {
		}
		mustSend(t, tx, f)
		if !arrives(far) || !arrives(near) || recv(t, tx, 50*time.Millisecond) != nil {
			t.Errorf("%s: not at all who are in the group, or at the sender", c.group)
		}
		// Memberships belong to an interface: on another one no packet arrives, and the port joins again on the first
		// one.
		const lo = 1
		far.SetLink(lo, link.State{Up: true, MTU: namespace.MTU})
		mustRecvNothing(t, far)
		mustSend(t, tx, f)
		mustRecvNothing(t, far)
		far.SetLink(index(t, b.NS[1]), link.State{Up: true, MTU: namespace.MTU})
		mustRecvNothing(t, far)
		mustSend(t, tx, f)
		if !arrives(far) {
			t.Errorf("%s: nothing after the interface has changed", c.group)
		}
		if err := near.Group(inet.GIDOf(group), false); err != nil || len(near.groups) != 0 {
			t.Errorf("%v", err)
		}
		mustSend(t, tx, f)
		arrives(far)
		mustRecvNothing(t, near)
	}
}

func mustRecvNothing(t *testing.T, p *Port) {
	t.Helper()
	if got := recv(t, p, 50*time.Millisecond); got != nil {
		t.Errorf("%d datagrams", len(got))
	}
}

// TestWarm: the port tries an address first that received several times in a row, and still finds datagrams to another
// address.
func TestWarm(t *testing.T) {
	_, tx, rx := openBoth(t)
	buf := make([]byte, 1<<17)
	// arrive returns the number of calls that it takes to receive a datagram to an address.
	arrive := func(from, to netip.Addr) (calls int) {
		mustSend(t, tx, frame(from, to, 0xc000, 0, packet(0, 3000)))
		waitFD(rx, porttest.Limit)
		for calls = 1; ; calls++ {
			if _, _, err := rx.Recv(clock(), buf); err == nil {
				break
			} else if err != port.ErrAgain || calls > maxTries+1 {
				t.Fatalf("%v after %d calls", err, calls)
			}
		}
		if _, _, err := rx.Recv(clock(), buf); err != port.ErrAgain {
			t.Fatalf("a second datagram: %v", err)
		}
		return calls
	}
	for range warmFrom + 1 {
		arrive(addr4[0], addr4[1])
	}
	if n := arrive(addr4[0], addr4[1]); n != 1 || rx.tries != 1 {
		t.Errorf("the usual address: %d calls, %d without epoll", n, rx.tries)
	}
	if n := arrive(addr6[0], addr6[1]); n > maxTries+1 || rx.row != 0 {
		t.Errorf("another address: %d calls; %d in a row", n, rx.row)
	}
	if n := arrive(addr4[0], addr4[1]); n != 1 {
		t.Errorf("the usual address afterwards: %d calls", n)
	}
}

// TestNoStarvation checks that an address receives datagrams during a flood to another one.
func TestNoStarvation(t *testing.T) {
	_, tx, rx := openBoth(t)
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 3000)))
	recvAll(t, rx, 1)
	for range 2560 {
		mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 3000)))
	}
	mustSend(t, tx, frame(addr6[0], addr6[1], 0xc000, 0, packet(0, 100)))
	buf := make([]byte, 1<<17)
	for i := range 640 {
		frame, _, err := rx.Recv(clock(), buf)
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if len(frame) < 1000 {
			return
		}
	}
	t.Error("the other address gets nothing")
}
