package flow

import (
	"math/bits"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// RTT summarizes the times from a request to its response at the observation point. It covers the path from there to
// the responder and back.
type RTT struct {
	Samples uint64        `json:"samples"`
	Min     time.Duration `json:"min_ns"`
	Max     time.Duration `json:"max_ns"`
	Last    time.Duration `json:"last_ns"`
	// Smoothed is the moving average with a gain of 1/8 (RFC 6298 2).
	Smoothed time.Duration `json:"smoothed_ns"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
}

// rttBuckets is the number of histogram buckets: four in each power of two of nanoseconds, up to about a minute.
const rttBuckets = 4 * 36

// probe is a request without a response yet.
type probe struct {
	psn bth.PSN
	at  mono.Time
}

// timer measures RTTs.
type timer struct {
	probes  [32]probe // ring, ordered by PSN
	head, n int
	RTT
	counts [rttBuckets]uint32
}

// start records a request that requires a response. A full ring drops its oldest entry.
func (t *timer) start(p bth.PSN, now mono.Time) {
	if t.n == len(t.probes) {
		t.head++
		t.n--
	}
	t.probes[(t.head+t.n)%len(t.probes)] = probe{p, now}
	t.n++
}

// void drops the requests from PSN p on, because they are retransmitted. A response may then answer any of the
// transmissions (Karn and Partridge, "Improving Round-Trip Time Estimates", 1987).
func (t *timer) void(p bth.PSN) {
	for t.n > 0 && !t.probes[(t.head+t.n-1)%len(t.probes)].psn.Before(p) {
		t.n--
	}
}

// answered takes an RTT sample from the last request that an acknowledgement of p covers. With exact, only a request
// with PSN p counts.
func (t *timer) answered(p bth.PSN, now mono.Time, exact bool) {
	for t.n > 0 {
		q := t.probes[t.head%len(t.probes)]
		if q.psn.After(p) {
			return
		}
		t.head = (t.head + 1) % len(t.probes)
		t.n--
		next := t.probes[t.head]
		if t.n > 0 && !next.psn.After(p) || exact && q.psn != p {
			continue
		}
		if d := now.Sub(q.at); d >= 0 { // else the capture's times decrease
			t.add(d)
		}
	}
}

func (t *timer) add(d time.Duration) {
	t.Samples++
	t.Last = d
	t.Max = max(t.Max, d)
	t.counts[rttBucket(d)]++
	if t.Samples == 1 {
		t.Min, t.Smoothed = d, d
		return
	}
	t.Min = min(t.Min, d)
	t.Smoothed += (d - t.Smoothed) / 8
}

func rttBucket(d time.Duration) int {
	if d < 4 {
		return int(d)
	}
	n := bits.Len64(uint64(d)) - 3 // keep the two bits after the leading one
	return min(4*n+int(d>>n), rttBuckets-1)
}

// rttBound returns the upper bound of bucket i.
func rttBound(i int) time.Duration {
	if i < 8 {
		return time.Duration(i)
	}
	n := i/4 - 1
	return time.Duration(i%4+5)<<n - 1
}

// summary returns the RTT with its quantiles. The error of a quantile is at most 25 %.
func (t *timer) summary() RTT {
	r := t.RTT
	r.P50, r.P99 = t.quantile(50), t.quantile(99)
	return r
}

// quantile returns the given percentile of the samples.
func (t *timer) quantile(percent uint64) time.Duration {
	rank, sum := (t.Samples*percent+99)/100, uint64(0)
	for i, n := range t.counts {
		if sum += uint64(n); sum >= rank && n > 0 {
			return min(rttBound(i), t.Max)
		}
	}
	return 0
}
