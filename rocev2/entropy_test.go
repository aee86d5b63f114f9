package rocev2

import (
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/qp"
)

// TestEntropy: a packet leaves by the path of its entropy value, in another frame than packets of other paths. The receiver
// reports the value; with IPv4, which has no flow label, only its lower half.
func TestEntropy(t *testing.T) {
	paths := []uint32{0, 0, 0xabcdc123, 0xabcdc123, 0x1c123, 0xffff}
	for _, c := range []struct {
		sgid      uint8
		from, to  string
		ipv6Label uint32
	}{{0, "10.0.0.1", "10.0.0.2", 0}, {1, "fd00::1", "fd00::2", 0xffff}} {
		cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
		cfg.Offload = superOffload()
		a := newNIC(t, cfg)
		s := newScript(sends(0x22, 0, slices.Repeat([]int{64}, len(paths))...)...)
		s.paths = paths
		q := plug(t, a, 0x11, qp.RC, s)
		connect(t, a, q, c.sgid, c.to, &macB)
		a.net.SetQPNs(&q.path, 0x11, 0x22)
		a.sch.activate(q)
		frames := transmit(a, 0)
		if len(frames) != 4 {
			t.Errorf("%s: %d frames, want 4", c.from, len(frames))
		}
		b := newNIC(t, testConfig(macB, "10.0.0.2/24", "fd00::2/64"))
		got := newScript()
		connect(t, b, plug(t, b, 0x22, qp.RC, got), c.sgid, c.from, &macA)
		for _, w := range frames {
			b.Receive(0, w.b, w.segSize)
		}
		for _, f := range split(frames) {
			if err := bth.CheckICRC(f[inet.EthernetLen:]); err != nil {
				t.Errorf("%s: %v", c.from, err)
			}
		}
		var want []uint32
		for _, p := range paths {
			if p == 0 {
				p = uint32(q.path.SourcePort())
			}
			want = append(want, p&(c.ipv6Label<<16|0xffff))
		}
		if !slices.Equal(got.from, want) {
			t.Errorf("%s: paths %#x, want %#x", c.from, got.from, want)
		}
	}
}
