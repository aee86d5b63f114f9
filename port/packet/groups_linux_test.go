package packet

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port/link"
)

// groups are multicast groups with the form in which the kernel lists them (proc(5), on a little-endian machine).
var groups = map[string]string{"239.10.0.1": "01000AEF", "ff15::99": "ff150000000000000000000000000099"}

// inGroup reports whether the kernel is a member of a group in namespace n.
func inGroup(t *testing.T, n *namespace.Namespace, group string) (yes bool) {
	t.Helper()
	err := n.Do(func() error {
		for _, name := range []string{"igmp", "igmp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			yes = yes || strings.Contains(string(text), groups[group])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// toGroup returns a frame to a group.
func toGroup(group netip.Addr) *link.Frame {
	from := porttest.Addr4[0]
	if group.Is6() {
		from = porttest.Addr6[0]
	}
	f := porttest.Frame(from, group, 7, 0, 64)
	copy(f.Bufs[0], []byte{1, 0, 0x5e, 10, 0, 1}) // multicast address of any group
	return f
}

// TestGroups joins and leaves groups, and checks the memberships of the kernel.
func TestGroups(t *testing.T) {
	b, tx, rx := pair(t)
	buf := make([]byte, 1<<17)
	check := func(group string, want bool) {
		t.Helper()
		porttest.MustSend(t, tx, toGroup(netip.MustParseAddr(group)))
		if _, _, err := rx.Recv(porttest.Clock(), buf); (err == nil) != want || inGroup(t, b.NS[1], group) != want {
			t.Errorf("%s: in it %v, received: %v; want %v", group, inGroup(t, b.NS[1], group), err, want)
		}
	}
	set := func(group string, in bool) {
		t.Helper()
		if err := rx.Group(inet.GIDOf(netip.MustParseAddr(group)), in); err != nil {
			t.Fatal(err)
		}
	}
	for group := range groups {
		check(group, false)
		set(group, true)
		set(group, true) // a second time, without effect
		check(group, true)
		if err := rx.SetAddrs([]netip.Addr{porttest.Addr4[1], porttest.Addr6[1]}); err != nil {
			t.Fatal(err)
		}
		check(group, true)
		set(group, false)
		check(group, false)
	}
	for i := range 30 { // more groups than a socket can join
		set(netip.AddrFrom4([4]byte{239, 11, 0, byte(i)}).String(), true)
	}
	if err := rx.Group(inet.GIDOf(porttest.Addr4[1]), true); err == nil {
		t.Error("is in a group that is none")
	}
	check("239.10.0.1", false)
}

// TestGroupsAnew replaces the interface. The port joins its groups on the new one, including those that were added
// without an interface.
func TestGroupsAnew(t *testing.T) {
	b, tx, rx := pair(t)
	porttest.DeleteLink(t, b.NS[1], netlab.Veth)
	before := rx.Group(inet.GIDOf(netip.MustParseAddr("239.10.0.1")), true) // the port may not have detected the loss of the interface yet
	porttest.Until(t, rx, "gone", func() bool { return rx.FD() == -1 })
	for group := range groups {
		if err := rx.Group(inet.GIDOf(netip.MustParseAddr(group)), true); err != nil {
			t.Fatalf("%v, before: %v", err, before)
		}
	}
	if err := b.Wire(); err != nil {
		t.Fatal(err)
	}
	porttest.SetMACs(t, b, [2]bool{true, true})
	porttest.ChangeLink(t, b.NS[1], netlab.Veth, netlink.LinkSetUp)
	for _, p := range []*Port{tx, rx} {
		porttest.Until(t, p, "the new interface", func() bool { return p.FD() >= 0 && p.Stats().Reopened == 1 })
	}
	for group := range groups {
		porttest.MustSend(t, tx, toGroup(netip.MustParseAddr(group)))
		if _, _, err := rx.Recv(porttest.Clock(), make([]byte, 1<<17)); err != nil || !inGroup(t, b.NS[1], group) {
			t.Errorf("%s: in it %v, received: %v", group, inGroup(t, b.NS[1], group), err)
		}
	}
}
