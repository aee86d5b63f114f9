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

// TestLongestRead: the responder keeps a READ of half of the PSN space, which takes 2 GiB with a path MTU of 256 bytes, until it is
// answered.
func TestLongestRead(t *testing.T) {
	var d rdQueue
	first := bth.MakePSN(0xfffff0)
	d.add(resource{first: first, span: maxSpan}, 1)
	if d.expire(first.Add(maxSpan)); d.Len() != 1 || d.next() == nil {
		t.Error("the READ has expired with its request")
	}
	if d.expire(first.Add(maxSpan + 1)); d.Len() != 0 {
		t.Error("a READ beyond half of the PSN space is left")
	}
}
