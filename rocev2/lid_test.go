package rocev2

import "testing"

// TestLID: a LID is the lower half of an IPv4 address.
func TestLID(t *testing.T) {
	for _, c := range []struct {
		addrs []string
		lid   uint16
		dlid  uint16
		to    string // empty: no destination
	}{
		{[]string{"fd00::1/64", "198.18.3.1/24", "10.0.0.1/8"}, 0x301, 0x302, "198.18.3.2"},
		{[]string{"198.18.3.1/16"}, 0x301, 0xff07, "198.18.255.7"},
		{[]string{"198.18.3.1/24"}, 0x301, 0, ""},
		{[]string{"fd00::1/64"}, 0, 0x302, ""},
		{nil, 0, 1, ""},
	} {
		n := newNIC(t, testConfig(macA, c.addrs...))
		if n.LID() != c.lid {
			t.Errorf("%v: LID %#x, want %#x", c.addrs, n.LID(), c.lid)
		}
		av, ok := n.LIDVector(c.dlid)
		if ok != (c.to != "") || ok && av != (AddressVector{DGID: gid(c.to)}) {
			t.Errorf("%v to LID %#x: %v, %t", c.addrs, c.dlid, av, ok)
		}
		if _, err := n.net.NewPath(0, av); ok && err != nil {
			t.Errorf("%v to LID %#x: %v", c.addrs, c.dlid, err)
		}
	}
}
