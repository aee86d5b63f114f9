package qp

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// TestRoundTripOfNoTime: an acknowledgement at the instant of its packet is a measurement, not the lack of one.
func TestRoundTripOfNoTime(t *testing.T) {
	const now = mono.Time(1000)
	psn, next := bth.MakePSN(5), bth.MakePSN(6)
	var m rttTimer
	if rtt := m.onAck(now, next, next); rtt != 0 {
		t.Errorf("without a packet: %v", rtt)
	}
	m.onSent(now, psn)
	if rtt := m.onAck(now, psn, next); rtt != 0 {
		t.Errorf("without an acknowledgement: %v", rtt)
	}
	if rtt := m.onAck(now, next, next); rtt != leastRTT {
		t.Errorf("at once: %v", rtt)
	}
}
