package qp

import (
	"math"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// TestRTTTimer times one or two of 20 packets, 5 and 9. Each case has another acknowledgement.
func TestRTTTimer(t *testing.T) {
	const first, second, now = mono.Time(1000), mono.Time(1400), mono.Time(1500)
	for _, c := range []struct {
		name     string
		una, nxt uint32
		second   bool
		want     time.Duration
	}{
		{"the packet is acknowledged", 6, 20, false, 500},
		{"it is not", 5, 20, false, 0},
		{"only the first is acknowledged", 6, 20, true, 500},
		{"both are, and later packets are outstanding", 10, 20, true, 500},
		{"all packets are", 20, 20, true, 100},
		{"all are, and it is the only one", 20, 20, false, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m rttTimer
			una, nxt := bth.MakePSN(c.una), bth.MakePSN(c.nxt)
			if got := m.onAck(now, una, nxt); got != 0 {
				t.Errorf("before a packet is sent: %v", got)
			}
			m.onSent(first, bth.MakePSN(5))
			if c.second {
				m.onSent(second, bth.MakePSN(9))
			}
			if got := m.onAck(now, una, nxt); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if m.running() != (c.want == 0) {
				t.Errorf("the timer runs: %t", m.running())
			}
		})
	}
	t.Run("packets far apart", func(t *testing.T) {
		var m rttTimer
		m.onSent(0, bth.MakePSN(5))
		m.onSent(mono.Time(time.Hour), bth.MakePSN(6))
		if got, least := m.onAck(mono.Time(time.Hour+1), bth.MakePSN(7), bth.MakePSN(7)), time.Hour-math.MaxUint32; got < least {
			t.Errorf("%v, want at least %v: the time between them has a maximum", got, least)
		}
	})
}
