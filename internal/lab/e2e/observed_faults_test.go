package e2e

import (
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// TestObservedFaults is the README's example: exact faults on the interface between two peers, and their effects in `rocectl
// watch` and in a capture.
func TestObservedFaults(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onFrames)
	l.verify("write-bw -n 1") // address resolution completes before the test
	faults := l.faultRun("tx drop psn=+2 n=1,2", "tx ecn psn=+5 n=1", "rx corrupt op=ack count=1")
	watched, capture := l.watchLink(1, netlab.Veth), l.capture(0)
	l.verify("write-bw -s 64k -n 4")
	records, report := l.decoded(capture()), watched()
	for _, r := range faults().Rules {
		if want := map[bool]uint64{true: 2, false: 1}[strings.HasPrefix(r.Rule, "tx drop")]; r.Hit != want {
			t.Errorf("%s has hit %d", r.Rule, r.Hit)
		}
	}
	flows := asked(report, l.Host[0].Addr)
	if len(flows) != 1 {
		t.Fatalf("%+v", report.Flows)
	}
	f := flows[0]
	if f.Requests.CE != 1 || f.CNPs != 1 || f.Requests.Retransmitted == 0 || f.Responses.NAKs.PSNSequence == 0 {
		t.Errorf("watched: %+v", f)
	}
	seen := map[string]int{}
	for _, r := range records {
		if r.Base == nil || r.Dir != "in" {
			continue
		}
		if r.Opcode == "CNP" {
			seen["CNP"]++
		}
		if r.ICRC == "bad" {
			seen["bad ICRC"]++
		}
		if r.Syndrome != nil && bth.Syndrome(*r.Syndrome).IsNAK() { // the NAK itself may be the corrupted frame
			seen["NAK"]++
		}
	}
	if seen["CNP"] != 1 || seen["bad ICRC"] != 1 || seen["NAK"] == 0 {
		t.Errorf("captured: %v", seen)
	}
}
