package e2e

import (
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// faultCase is a rule on the sender's NIC and its expected effects.
type faultCase struct {
	rule string
	args string // of roceperf; 64 packets unless given
	hit  uint64 // exactly; 0: some
	mine counts // counters of the sender, at least
	peer counts // counters of the receiver, at least
	link counts // the same, but only on AF_UNIX: bridges drop such frames
	psn  int    // position in the flow where the rule acts; -1: anywhere
}

type counts = map[string]uint64

// faultCases expect no counter of timeouts: a tail loss probe or the timeout repairs a loss without NAK.
var faultCases = []faultCase{
	{rule: "tx drop psn=+3 n=1", hit: 1, psn: 3,
		mine: counts{"retransmitted_packets": 1, "packet_seq_err": 1}, peer: counts{"out_of_sequence": 1}},
	{rule: "tx drop psn=+3 n=1,2", hit: 2, psn: 3,
		mine: counts{"retransmitted_packets": 2, "packet_seq_err": 1}},
	{rule: "tx drop psn=+63 n=1", hit: 1, psn: 63, mine: counts{"retransmitted_packets": 1}},
	{rule: "tx corrupt 20 psn=+3 n=1", hit: 1, psn: 3,
		mine: counts{"retransmitted_packets": 1}, peer: counts{"rx_icrc_encapsulated": 1, "out_of_sequence": 1}},
	{rule: "tx truncate 64 psn=+3 n=1", hit: 1, psn: -1,
		mine: counts{"retransmitted_packets": 1}, peer: counts{"out_of_sequence": 1}, link: counts{"rx_dropped_short": 1}},
	{rule: "tx ecn psn=+0..10 n=1", hit: 11, psn: -1, peer: counts{"np_ecn_marked_roce_packets": 11}},
	{rule: "tx duplicate psn=+3 n=1", hit: 1, psn: 3, peer: counts{"duplicate_request": 1}},
	{rule: "tx delay 2ms psn=+3 n=1", hit: 1, psn: 3, peer: counts{"out_of_sequence": 1}},
	{rule: "tx reorder 3 psn=+3 n=1", hit: 1, psn: 3, peer: counts{"out_of_sequence": 1}},
	{rule: "rx drop op=ack count=1", args: "write-bw -s 1k -n 64 -Q 1", hit: 1, psn: -1},
	{rule: "rx drop psn=+3 op=readresp n=1", args: "read-bw -s 64k -n 4", hit: 1, psn: 3,
		mine: counts{"implied_nak_seq_err": 1}, peer: counts{"duplicate_request": 1}},
	{rule: "both drop p=0.01 seed=7", args: "write-bw -s 64k -n 40", psn: -1, mine: counts{"retransmitted_packets": 1}},
	{rule: "both drop p=0.01 seed=7", args: "read-bw -s 64k -n 40", psn: -1},
	{rule: "both drop p=0.01 seed=7", args: "send-bw -s 8k -n 20 -q 16", psn: -1, mine: counts{"retransmitted_packets": 1}},
	{rule: "both reorder 2 p=0.01 seed=3", args: "send-bw -s 64k -n 40", psn: -1},
	{rule: "both duplicate 2 p=0.05 seed=3", args: "send-bw -s 64k -n 40", psn: -1, peer: counts{"duplicate_request": 1}},
	{rule: "both drop p=0.01 seed=9", args: "atomic-lat -n 300", psn: -1},
	{rule: "both duplicate 2 p=0.2 seed=4", args: "atomic-lat -n 300", psn: -1, peer: counts{"duplicate_request": 1}},
	{rule: "both delay 1ms p=0.1 seed=6", args: "atomic-lat -n 300", psn: -1},
}

// TestExactFaults adds rules with rocectl. The transfer survives each rule. The rule list, counters and capture show
// it.
func TestExactFaults(t *testing.T) {
	for name, o := range map[string]netlab.LabOptions{"tap": onTAP, "unix": onUnix, "udp": onUDP, "switch": onSwitch, "shards": onShards, "shards on sockets": onUDPShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			l.verify("write-bw -n 1") // address resolution completes before the test
			segments := l.Link(0).Segments
			for _, c := range faultCases {
				if c.args == "" {
					c.args = "write-bw -s 64k -n 4"
				}
				t.Run(c.rule+"/"+c.args, func(t *testing.T) { l.at(t).fault(c) })
			}
			if n := l.Link(0).Segments; n != segments {
				t.Errorf("without rules the NIC sends super-frames of %d segments, before it was %d", n, segments)
			}
		})
	}
}

func (l *rig) fault(c faultCase) {
	nic := l.Host[0].Device
	stop := l.capture(0) // before the rule, because a late frame of the previous case may match it
	l.Run(0, "fault", "add", nic, c.rule)
	defer l.Run(0, "fault", "clear", nic)
	if link := l.Link(0); link.Faults != 1 || link.Segments != 0 {
		l.T.Errorf("with a rule the NIC has %d rules and sends super-frames of %d segments", link.Faults, link.Segments)
	}
	mine, peer := l.counters(0), l.counters(1)
	l.verify(c.args)
	records := l.decoded(stop())
	l.atLeast(0, mine, c.mine)
	l.atLeast(1, peer, c.peer)
	if l.Bed == nil && !strings.HasPrefix(l.Host[0].Addr, "127.") { // UDP sockets do not carry damaged headers
		l.atLeast(1, peer, c.link)
	}
	rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", nic)
	if len(rules) != 1 || rules[0].Rule != c.rule {
		l.T.Fatalf("rules are %+v", rules)
	}
	if hit := rules[0].Hit; hit != c.hit && c.hit != 0 || hit == 0 || rules[0].Matched < hit {
		l.T.Errorf("rule has matched %d and hit %d, want %d", rules[0].Matched, hit, c.hit)
	}
	l.commented(c, rules[0].Hit, records)
}

// atLeast checks the minimum growth of counters.
func (l *rig) atLeast(i int, before, want counts) {
	l.T.Helper()
	after := l.counters(i)
	for name, n := range want {
		if _, ok := after[name]; !ok {
			l.T.Errorf("no counter %s", name)
		}
		if got := after[name] - before[name]; got < n {
			l.T.Errorf("%s of %s has grown by %d, want %d", name, l.Host[i].Device, got, n)
		}
	}
}

// commented finds the frames that the rule has changed, by their comments.
func (l *rig) commented(c faultCase, hit uint64, records []record) {
	l.T.Helper()
	action := strings.Fields(c.rule)[1]
	found := uint64(0)
	for _, r := range records {
		if !strings.HasPrefix(r.Comment, "fault: "+action) {
			continue
		}
		found++
		if !strings.Contains(r.Comment, c.rule) {
			l.T.Errorf("comment %q does not name the rule", r.Comment)
		}
		if first, ok := firstPSN(records, r); c.psn >= 0 && (!ok || (r.PSN-first)&(1<<24-1) != uint32(c.psn)) {
			l.T.Errorf("the rule has acted on PSN %d of a flow that starts at %d", r.PSN, first)
		}
		if c.psn >= 0 && hit == 1 && recordedBefore(records, r) {
			l.T.Errorf("the capture has PSN %d also without the comment %q", r.PSN, r.Comment)
		}
		if c.psn >= 0 && action == "drop" && r.Dir == "out" && !sentAgain(records, r) {
			l.T.Errorf("the dropped PSN %d is not sent again", r.PSN)
		}
		if (action == "corrupt") != (r.ICRC == "bad") && action != "truncate" {
			l.T.Errorf("ICRC is %s in the frame with the comment %q", r.ICRC, r.Comment)
		}
		if (action == "ecn") != (r.ECN == "ce") {
			l.T.Errorf("ECN is %s in the frame with the comment %q", r.ECN, r.Comment)
		}
	}
	if found != hit {
		l.T.Errorf("%d frames of the capture have a comment, the rule has hit %d", found, hit)
	}
}

// firstPSN returns the first PSN of a frame's flow.
func firstPSN(records []record, of record) (uint32, bool) {
	for _, r := range records {
		if r.Base != nil && of.Base != nil && r.QPN == of.QPN && r.Dir == of.Dir &&
			strings.Contains(r.Opcode, "Response") == strings.Contains(of.Opcode, "Response") {
			return r.PSN, true
		}
	}
	return 0, false
}

// recordedBefore reports whether a sent frame has an earlier record.
func recordedBefore(records []record, of record) bool {
	for _, r := range records {
		if r.Packet == of.Packet {
			break
		}
		if of.Dir == "out" && r.Base != nil && of.Base != nil && *r.Base == *of.Base && r.Dir == of.Dir {
			return true
		}
	}
	return false
}

// sentAgain reports whether a lost frame has a later record without a comment.
func sentAgain(records []record, lost record) bool {
	return slices.ContainsFunc(records, func(r record) bool {
		return r.Packet > lost.Packet && r.Comment == "" && r.Dir == lost.Dir && r.Base != nil && r.QPN == lost.QPN && r.PSN == lost.PSN
	})
}

// TestFaultsOnOwnTraffic: rules act on the traffic of a NIC to itself. The capture has each frame as sent and as
// received; the dropped one only as sent.
func TestFaultsOnOwnTraffic(t *testing.T) {
	lab.Long(t)
	for name, o := range map[string]netlab.LabOptions{"tap": onTAP, "unix": onUnix, "udp": onUDP, "switch": onSwitch, "shards": onShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			other := l.Host[1]
			l.Host[1] = l.Host[0]
			t.Cleanup(func() { l.Host[1] = other }) // before the lab ends its hosts
			nic := l.Host[0].Device
			l.Run(0, "fault", "add", nic, "tx drop psn=+3 n=1")
			stop, before := l.capture(0), l.counters(0)
			l.verify("write-bw -s 64k -n 4")
			l.atLeast(0, before, counts{"retransmitted_packets": 1, "packet_seq_err": 1, "out_of_sequence": 1})
			dropped := 0
			for _, r := range l.decoded(stop()) {
				if strings.HasPrefix(r.Comment, "fault: drop") && r.Dir == "out" {
					dropped++
				}
			}
			if dropped != 1 {
				t.Errorf("the capture has %d dropped frames, want 1", dropped)
			}
		})
	}
}

// TestBadRule: the program and the daemon refuse invalid rules.
func TestBadRule(t *testing.T) {
	l := newLab(t, onUnix)
	nic := l.Host[0].Device
	for _, args := range [][]string{
		{"fault", "add", nic, "tx explode"},
		{"fault", "add", nic, "tx drop psn=x"},
		{"fault", "add", nic},
	} {
		p := l.Ctl(0, args...)
		if code := p.Exit(lab.Limit); code != 2 {
			t.Errorf("rocectl %v: exit code %d\n%s", args, code, &p.Diag)
		}
	}
	l.Ctl(0, "fault", "add", "rxe_z", "tx drop").Fails(lab.Limit, "no such NIC", "rxe_z")
	l.Ctl(0, "fault", "list", "rxe_z").Fails(lab.Limit, "no such NIC", "rxe_z")
	if rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", nic); len(rules) != 0 {
		t.Errorf("rules are %+v", rules)
	}
}
