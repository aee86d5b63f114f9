package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// irnTimer is IRN's timeout: RTO_low while few packets are in flight, RTO_high otherwise (3.1). The loss of a short message
// is thus detected soon, and few packets are retransmitted unnecessarily. The variant dynamic computes the timeout from
// round-trip times, as TCP does (4.3): the smoothed time plus four deviations, at least RTO_low, and RTO_high before the
// first sample.
type irnTimer struct {
	low, high time.Duration
	few       uint32 // N
	dynamic   bool

	base          mono.Time // start of the timer
	srtt, rttvar  time.Duration
	backoff       backoff
	timing        bool // a packet is being timed
	timed         bth.PSN
	timedAt       mono.Time
	roundTripSeen bool
}

func (m *irnTimer) reset() {
	*m = irnTimer{low: m.low, high: m.high, few: m.few, dynamic: m.dynamic, backoff: m.backoff}
	m.backoff.progress()
}

// rto returns the timeout with that many packets in flight.
func (m *irnTimer) rto(inFlight uint32) time.Duration {
	switch {
	case m.dynamic && m.roundTripSeen:
		return m.backoff.of(max(m.low, m.srtt+4*m.rttvar))
	case !m.dynamic && inFlight <= m.few:
		return m.backoff.of(m.low)
	}
	return m.backoff.of(m.high)
}

// sent measures one new packet at a time; a retransmitted packet gives no sample (Karn).
func (m *irnTimer) sent(now mono.Time, psn bth.PSN, rtx bool) {
	switch {
	case rtx && m.timing && psn == m.timed:
		m.timing = false
	case !rtx && m.dynamic && !m.timing:
		m.timing, m.timed, m.timedAt = true, psn, now
	}
}

// acknowledged takes a sample if the acknowledgement covers the measured packet (RFC 6298, section 2).
func (m *irnTimer) acknowledged(now mono.Time, covers bool) {
	if !m.timing || !covers {
		return
	}
	rtt := now.Sub(m.timedAt)
	if m.roundTripSeen {
		m.rttvar += ((m.srtt - rtt).Abs() - m.rttvar) / 4
		m.srtt += (rtt - m.srtt) / 8
	} else {
		m.srtt, m.rttvar, m.roundTripSeen = rtt, rtt/2, true
	}
	m.timing = false
}

// progress restarts the timer at a cumulative acknowledgement.
func (m *irnTimer) progress(now mono.Time) { m.base = now; m.backoff.progress() }

// expired counts a timeout and drops the measured packet, which will be retransmitted.
func (m *irnTimer) expired() { m.backoff.expired(); m.timing = false }
