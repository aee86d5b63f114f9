package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// irnTimer is IRN's timeout: RTO_low while few packets are in flight, so that the loss of
// a short message is noticed soon and not many packets are sent again in vain, RTO_high
// otherwise (3.1). The variant dynamic computes it from round trips, as TCP does (4.3):
// smoothed time plus four deviations, RTO_high before there are any, RTO_low at least.
type irnTimer struct {
	low, high time.Duration
	few       uint32 // N
	dynamic   bool

	base          mono.Time // instant from which the timeout counts
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

// rto is the timeout while that many packets are in flight.
func (m *irnTimer) rto(inFlight uint32) time.Duration {
	switch {
	case m.dynamic && m.roundTripSeen:
		return m.backoff.of(max(m.low, m.srtt+4*m.rttvar))
	case !m.dynamic && inFlight <= m.few:
		return m.backoff.of(m.low)
	}
	return m.backoff.of(m.high)
}

// sent times one new packet after another; what was sent again cannot be timed (Karn).
func (m *irnTimer) sent(now mono.Time, psn bth.PSN, rtx bool) {
	switch {
	case rtx && m.timing && psn == m.timed:
		m.timing = false
	case !rtx && m.dynamic && !m.timing:
		m.timing, m.timed, m.timedAt = true, psn, now
	}
}

// acknowledged takes a sample if the acknowledgement covers the packet that is timed
// (RFC 6298, section 2).
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

// progress begins the timeout anew: more has been acknowledged in order.
func (m *irnTimer) progress(now mono.Time) { m.base = now; m.backoff.progress() }

// expired tells of a timeout: what is sent again cannot be timed.
func (m *irnTimer) expired() { m.backoff.expired(); m.timing = false }
