package xdp

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
)

// TestGroups joins and leaves groups. The port joins its groups again on a new interface.
func TestGroups(t *testing.T) {
	for i, group := range []netip.Addr{netip.MustParseAddr("239.10.0.1"), netip.MustParseAddr("ff15::99")} {
		listed := []string{"01000AEF", "ff150000000000000000000000000099"}[i] // on a little-endian machine
		b := veth(t, 1500, 1)
		p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
		f := frame(addrs(0)[i], group, 4791, 1, 100)
		copy(f.Bufs[0], []byte{1, 0, 0x5e, 10, 0, 1}) // multicast address of any group
		other := roce(0, false, 2, 100)
		set := func(in bool) {
			t.Helper()
			if err := p.Group(inet.GIDOf(group), in); err != nil {
				t.Fatal(err)
			}
		}
		absent := func() {
			t.Helper()
			send(t, peer, f)
			send(t, peer, other)
			expect(t, p, other)
		}
		absent()
		set(true)
		send(t, peer, f)
		expect(t, p, f)
		if err := p.SetAddrs(addrs(1)); err != nil {
			t.Fatal(err)
		}
		send(t, peer, f)
		expect(t, p, f)
		set(false)
		absent()
		inNS(t, b, 0, netlink.LinkDel)
		until(t, p, "the interface to go", func() bool { return p.Stats().Lost == 1 })
		set(true)
		fresh := veth(t, 1500, 1)
		moveTo(t, fresh, b)
		until(t, p, "the new interface", func() bool { return p.State().Up })
		peer = open(t, fresh, 0, Config{})
		send(t, peer, f)
		if n, ok := recv(t, p, make([]byte, 1<<17), porttest.Limit); !ok || n != f.Len {
			t.Errorf("%v: nothing on the new interface", group)
		}
		if !strings.Contains(memberships(t, b), listed) {
			t.Errorf("%v: the kernel is not in the group:\n%s", group, memberships(t, b))
		}
	}
}

// memberships returns the multicast memberships of namespace 1 (proc(5)).
func memberships(t *testing.T, b *netlab.Bed) (text string) {
	t.Helper()
	err := b.NS[1].Do(func() error {
		four, err := os.ReadFile("/proc/thread-self/net/igmp")
		six, err6 := os.ReadFile("/proc/thread-self/net/igmp6")
		text = string(four) + string(six)
		return errors.Join(err, err6)
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}
