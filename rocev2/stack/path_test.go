package stack

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// TestEntropy checks that a path knows the entropy value that a receiver computes from the headers.
func TestEntropy(t *testing.T) {
	for _, addrs := range [][2]string{{"198.18.0.1", "198.18.0.2"}, {"fd00::1", "fd00::2"}} {
		p := Path{Src: inet.GIDOf(netip.MustParseAddr(addrs[0])), Dst: inet.GIDOf(netip.MustParseAddr(addrs[1]))}
		p.makeHeaders(&Config{MAC: inet.MAC{2}}, 7, &AddressVector{})
		p.SetSourcePort(0xc123)
		for _, entropy := range []uint32{0, 0x5678, 0x12345678} {
			frame := slices.Clone(p.Headers())
			if entropy != 0 {
				p.SetEntropy(frame, entropy)
			}
			want := bth.JoinEntropy(binary.BigEndian.Uint16(frame[p.L4():]), inet.FlowLabel(frame[p.L2():]))
			if got := p.Entropy(entropy); got != want {
				t.Errorf("from %s, entropy %#x: %#x, receivers see %#x", addrs[0], entropy, got, want)
			}
		}
		if p.VLAN() != 7 {
			t.Errorf("VLAN %d", p.VLAN())
		}
	}
}
