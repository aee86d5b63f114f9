package fabric

import (
	"testing"

	"roced.io/roced/internal/sim/engine"
)

// TestDeadlockThreshold: links that wait for each other are a deadlock if the packets that wait are enough to keep them stopped.
func TestDeadlockThreshold(t *testing.T) {
	for _, c := range []struct {
		stuck, other int64
		deadlock     bool
	}{
		{100_000, 0, true},
		{100_000, 100_000, true},
		{50_000, 0, false}, // below the threshold of 62 KB
		{50_000, 100_000, false},
		{0, 100_000, false},
	} {
		g := Dumbbell(Wires{HostRate: 100e9, Delay: engine.Microsecond}, 1, 1)
		n, err := New(new(engine.Engine), Config{Graph: g, Seed: 1, Switch: func(int, int) SwitchConfig {
			return SwitchConfig{Buffer: BufferConfig{Bytes: 1 << 20}, PFC: PFCConfig{Lossless: 1, Headroom: 10_000}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"left-right", "right-left"} {
			ls, err := n.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			l := ls[0]
			s := l.dst.(*Switch)
			at := &s.ports[l.dstPort]
			at.stocks[0] = stock{bytes: c.stuck + c.other, stopped: true}
			l.paused, l.pausedSince = 1, 7
			if c.stuck > 0 {
				at.add(&Packet{Bytes: uint32(c.stuck), in: uint16(l.dstPort)})
			}
			if c.other > 0 {
				s.ports[1-l.dstPort].add(&Packet{Bytes: uint32(c.other), in: uint16(l.dstPort)})
			}
		}
		d := n.Deadlock()
		if (d != nil) != c.deadlock || d != nil && (len(d.Links) != 2 || d.Links[0].Name != "left-right" || d.Since != 7 || d.Class != 0) {
			t.Errorf("%d bytes wait, %d do not: %+v", c.stuck, c.other, d)
		}
	}
}
