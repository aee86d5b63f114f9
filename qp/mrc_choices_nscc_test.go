package qp_test

import (
	"fmt"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// window returns the window of an NSCC in per cent of the maximum, after samples that arrive 20 us apart.
func window(t *testing.T, p ccalgo.Params, samples ...ccalgo.Sample) uint64 {
	t.Helper()
	c, err := ccalgo.New("nscc", p)
	if err != nil {
		t.Fatal(err)
	}
	c.Reset(1000)
	for i, s := range samples {
		c.OnAck(mono.Time(20_000*(i+1)), s)
	}
	w, _ := c.Limits()
	return w * 100 / 1e6
}

// nsccChoices are the choices of congestion control.
func nsccChoices(t *testing.T) []choice {
	const us = time.Microsecond
	small := ccalgo.Params{"max_cwnd_bytes": 1e6, "eta_bytes": 1e-9, "qa_gate": 31}
	bad := ccalgo.Sample{Bytes: 1000, RTT: 42 * us, ECN: true}
	reported := bad
	reported.Receiver = ccalgo.Receiver{Reported: true, Received: 4}
	stale := bad
	stale.RTT = 1 << 16 * bth.MRCTimestampUnit
	fits := stale
	fits.RTT--
	const sent = 1000 * bth.MRCTimestampUnit
	rtt := func(age mono.Time) time.Duration { return ccalgo.EchoedRTT(sent+age, sent, 1000) }
	return []choice{
		{"NSCC: round trips beyond the range of timestamps", "silent; 16 bits of 128 ns repeat every 8.4 ms",
			fmt.Sprintf("discarded: a marked round trip of %v leaves %d %% of the window, one of %v leaves %d %%", stale.RTT, window(t, small, bad, stale),
				fits.RTT, window(t, small, bad, fits)), "`ccalgo.NSCC.OnAck`"},
		{"NSCC: echoed timestamps of packets sent longer ago", "silent", fmt.Sprintf("discarded: %v after 10 us, %v after 9 ms",
			rtt(mono.Time(10*us)), rtt(mono.Time(9000*us))), "`ccalgo.EchoedRTT`"},
		{"NSCC: round trips of packets that were sent again", "the timestamp makes them unambiguous", "measured, unless the first transmission is older than the range",
			"`retrans.MRC.Since`"},
		{"NSCC: average delay", "over the last base RTT, by any method; one simulator takes a weight of 0.0125 for a SACK",
			fmt.Sprintf("that weight: one SACK of long delay leaves %d %% of the window. Without MRC's reports the last delay is the average: %d %%",
				window(t, small, reported, reported), window(t, small, bad, bad)), "`NSCC.average`"},
		{"NSCC: a delay of \"about 0\"", "silent; one simulator has 1 us", "below 1 us", "`noDelay`"},
		{"NSCC: bytes in flight", "sent less received, which drifts when a packet that counted as lost arrives",
			"those of the queue pair: payload that is neither acknowledged nor lost", "`ccalgo.NSCC`"},
		{"NSCC: headers in the receiver's count", "UDP length + 40 for each packet", "taken off as for full packets: 88 bytes each", "`reportedHeaders`"},
		{"NSCC: quick adaptation with more bytes than the window", "silent; one simulator leaves the window", "leaves the window", "`NSCC.quick`"},
		{"NSCC: size of a packet that a NACK or an inferred loss reports", "its own", "an MTU", "`NSCC.nack`, `NSCC.OnLoss`"},
		{"NSCC: room in the window for a packet", "more than the bytes in flight; UET: by an MTU", "more than the bytes in flight", "`NSCC.Limits`"},
	}
}
