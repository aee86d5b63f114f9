// Package fault injects reproducible network faults. Rules drop, duplicate, delay, reorder, corrupt, truncate, trim
// and mark frames. A rule selects an exact event ("the first transmission of the third packet to queue pair 0x11") or a random
// share of all frames. Each rule has its own random number generator. The package is sans-I/O: it reads no clock, starts
// no goroutine, and gives the same results for the same frames, times and seeds.
package fault

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/base/suggest"
)

// Grammar is the language of rules, for help and manual.
const Grammar = `  rule      = dir action { condition }
  dir       = "rx" | "tx" | "both"        received, sent
  action    = "drop"
            | "duplicate" [ copies ]      additional copies, default 1
            | "delay" duration            such as 2ms
            | "reorder" frames [ duration ]
                                          hold the frame until that many later frames
                                          of the flow have passed, for at most
                                          duration (10ms)
            | "corrupt" [ offset ]        change the byte at offset from the BTH, or
                                          from the end if negative; without offset,
                                          a random byte
            | "truncate" length           cut the frame to length bytes
            | "trim" [ dscp ]             cut a WRITE of MRC behind its METH and TSETH,
                                          as switches do, and set its DSCP, 1 to 63,
                                          default 12; 16 means at the last hop. IP and
                                          UDP lengths follow; there is no ICRC. Other
                                          packets, and trimmed ones, pass unchanged
            | "ecn"                       mark Congestion Experienced
  condition = "qpn=" number               destination queue pair: 17 or 0x11
            | "psn=" [ "+" ] n [ ".." n ] PSNs; with +, counted from the first one
                                          seen in the flow
            | "n=" n { "," n }            number of the transmission, 1 = first
            | "op=" class                 request, response, ack, nak, send, write,
                                          read (the request), readresp, atomic, cnp, any
            | "peer=" address             address of the remote end
            | "src=" address              source address
            | "dst=" address              destination address
            | "path=" k "/" n             UDP source port is k modulo n: one of n paths,
                                          as ECMP selects them
            | "p=" probability            above 0, up to 1
            | "seed=" number              of the random numbers of p and corrupt
            | "count=" n                  at most n times
            | "any"                       all frames, not only RoCEv2
            | "name=" word                name in reports

A rule applies if all its conditions hold. The rules apply in their order, up to the
first drop. The rules of a NIC act on its frames to itself too: as they leave (tx) and
as they arrive (rx). They do not act on its own copies of multicast datagrams.

A flow is the set of frames with a common sequence of PSNs. Its frames have the same
direction, addresses, destination queue pair, and kind (requests, READ responses, other
responses, or CNPs). First PSNs and transmissions are counted for the 256 most recently
used flows and their last 4096 PSNs, starting when the rules are set.`

// Examples are rules with their meaning.
const Examples = `  tx drop psn=+3 n=1,2        the first two transmissions of the fourth packet
  tx drop qpn=0x11 psn=+3     every transmission, to one queue pair
  both drop p=0.01 seed=7     one per cent, always the same ones
  rx delay 2ms p=0.1          one in ten arrives late
  tx ecn psn=+0..10           the first eleven packets are marked
  rx corrupt op=ack n=1       the first transmission of each acknowledgement is damaged
  tx delay 100us path=1/4     one of four paths is longer
  rx trim p=0.01              a switch with a full queue cuts packets of MRC`

// Dir is the direction of frames as the NIC sees it.
type Dir string

// Directions of a rule. A frame has direction Rx or Tx.
const (
	Rx   Dir = "rx"
	Tx   Dir = "tx"
	Both Dir = "both"
)

// Action is the action of a rule.
type Action string

// Actions.
const (
	Drop      Action = "drop"
	Duplicate Action = "duplicate"
	Delay     Action = "delay"
	Reorder   Action = "reorder"
	Corrupt   Action = "corrupt"
	Truncate  Action = "truncate"
	Trim      Action = "trim"
	ECN       Action = "ecn"
)

// PSNs is an inclusive range of packet sequence numbers. It may wrap around unless it is relative.
type PSNs struct {
	Relative bool
	First    uint32
	Last     uint32
}

// String formats the range as in a rule.
func (p PSNs) String() string {
	s := strconv.FormatUint(uint64(p.First), 10)
	if p.Relative {
		s = "+" + s
	}
	if p.Last != p.First {
		s += ".." + strconv.FormatUint(uint64(p.Last), 10)
	}
	return s
}

// Path is one of several paths that a network selects by UDP source port, the entropy of RoCEv2 (IBTA annex A17): the ports
// that are Index modulo Of.
type Path struct {
	Index uint16
	Of    uint16
}

// String formats the path as in a rule.
func (p Path) String() string { return fmt.Sprintf("%d/%d", p.Index, p.Of) }

// Rule is a fault rule. A zero field means no condition.
type Rule struct {
	Name   string
	Dir    Dir
	Action Action

	// Arguments of actions.
	Copies int           // duplicate
	Delay  time.Duration // delay; limit of reorder
	Frames int           // reorder
	Offset *int          // corrupt
	Length int           // truncate
	DSCP   int           // trim; 0: bth.MRCDSCPTrimmed

	// Conditions.
	QPN  *uint32
	PSN  *PSNs
	Nth  []int
	Op   string
	Peer netip.Addr
	Src  netip.Addr
	Dst  netip.Addr
	Path *Path
	Any  bool

	// Probability and limit.
	P     float64
	Seed  uint64
	Count uint64
}

// Bounds of rules.
const (
	maxPSN     = 1<<24 - 1
	maxNth     = 64
	maxCopies  = 1000
	maxFrames  = 10000
	maxDelay   = time.Minute
	minLength  = ethLen
	maxLength  = 65535
	maxDSCP    = 63
	reorderFor = 10 * time.Millisecond // default duration of reorder
	maskedByte = 4                     // byte of the BTH that the ICRC does not cover
)

// Validate returns the first error of r.
func (r *Rule) Validate() error {
	if r.Dir != Rx && r.Dir != Tx && r.Dir != Both {
		return fmt.Errorf("%q is not a direction (rx, tx, both)%s", r.Dir, suggest.Hint(string(r.Dir), []string{"rx", "tx", "both"}))
	}
	if err := r.validateAction(); err != nil {
		return err
	}
	if r.Name != "" && strings.ContainsFunc(r.Name, notInName) {
		return fmt.Errorf("name %q: use letters, digits and _ . -", r.Name)
	}
	switch {
	case r.QPN != nil && *r.QPN > maxPSN:
		return fmt.Errorf("qpn %#x has more than 24 bits", *r.QPN)
	case r.PSN != nil && (r.PSN.First > maxPSN || r.PSN.Last > maxPSN):
		return fmt.Errorf("psn %v has more than 24 bits", r.PSN)
	case r.PSN != nil && r.PSN.Relative && (r.PSN.Last < r.PSN.First || r.PSN.Last >= 1<<23):
		return fmt.Errorf("psn %v: the last PSN is before the first one or too far away", r.PSN)
	case r.Path != nil && r.Path.Index >= r.Path.Of:
		return fmt.Errorf("path %v: must be k/n with k from 0 to n-1", r.Path)
	case r.P < 0 || r.P > 1 || r.P != r.P:
		return fmt.Errorf("p %v is not a probability", r.P)
	case r.Any && (r.QPN != nil || r.PSN != nil || r.Nth != nil || r.Op != "" || r.Path != nil):
		return fmt.Errorf("any excludes qpn, psn, n, op and path, which only RoCEv2 frames have")
	}
	for _, n := range r.Nth {
		if n < 1 || n > maxNth {
			return fmt.Errorf("n %d is not between 1 and %d", n, maxNth)
		}
	}
	if _, ok := classes[r.Op]; !ok {
		return fmt.Errorf("%q is not a class of packets (%s)%s", r.Op, classNames, suggest.Hint(r.Op, slices.Sorted(maps.Keys(classes))))
	}
	return nil
}

// validateAction checks the action and its arguments.
func (r *Rule) validateAction() error {
	foreign := func(a ...Action) bool { return !slices.Contains(a, r.Action) }
	switch {
	case foreign(Drop, Duplicate, Delay, Reorder, Corrupt, Truncate, Trim, ECN):
		return fmt.Errorf("%q is not an action (%s)%s", r.Action, actionNames, suggest.Hint(string(r.Action), strings.Split(actionNames, ", ")))
	case r.Copies != 0 && foreign(Duplicate), r.Delay != 0 && foreign(Delay, Reorder), r.Frames != 0 && foreign(Reorder),
		r.Offset != nil && foreign(Corrupt), r.Length != 0 && foreign(Truncate), r.DSCP != 0 && foreign(Trim):
		return fmt.Errorf("%s has an argument that it does not take", r.Action)
	case r.Copies < 0 || r.Copies > maxCopies:
		return fmt.Errorf("%d copies: must be 1 to %d", r.Copies, maxCopies)
	case r.Action == Delay && r.Delay == 0:
		return fmt.Errorf("delay needs a duration such as 2ms")
	case r.Delay < 0 || r.Delay > maxDelay:
		return fmt.Errorf("duration %v: must be at most %v", r.Delay, maxDelay)
	case r.Action == Reorder && (r.Frames < 1 || r.Frames > maxFrames):
		return fmt.Errorf("reorder needs a number of frames, 1 to %d", maxFrames)
	case r.Offset != nil && *r.Offset == maskedByte:
		return fmt.Errorf("corrupt %d: the ICRC does not cover that byte", maskedByte)
	case r.DSCP < 0 || r.DSCP > maxDSCP:
		return fmt.Errorf("dscp %d: must be 1 to %d", r.DSCP, maxDSCP)
	case r.Action == Truncate && (r.Length < minLength || r.Length > maxLength):
		return fmt.Errorf("truncate needs a length, %d to %d", minLength, maxLength)
	}
	return nil
}

func notInName(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
}

// String formats r for Parse.
func (r Rule) String() string {
	w := []string{string(r.Dir), string(r.Action)}
	add := func(set bool, format string, v any) {
		if set {
			w = append(w, fmt.Sprintf(format, v))
		}
	}
	add(r.Copies != 0, "%d", r.Copies)
	add(r.Frames != 0, "%d", r.Frames)
	add(r.Delay != 0, "%v", r.Delay)
	if r.Offset != nil {
		add(true, "%d", *r.Offset)
	}
	add(r.Length != 0, "%d", r.Length)
	add(r.DSCP != 0, "%d", r.DSCP)
	if r.QPN != nil {
		add(true, "qpn=%#x", *r.QPN)
	}
	if r.PSN != nil {
		add(true, "psn=%v", *r.PSN)
	}
	add(r.Op != "", "op=%s", r.Op)
	for i, n := range r.Nth {
		if i == 0 {
			w = append(w, "n="+strconv.Itoa(n))
			continue
		}
		w[len(w)-1] += "," + strconv.Itoa(n)
	}
	add(r.Peer.IsValid(), "peer=%v", r.Peer)
	add(r.Src.IsValid(), "src=%v", r.Src)
	add(r.Dst.IsValid(), "dst=%v", r.Dst)
	if r.Path != nil {
		add(true, "path=%v", *r.Path)
	}
	add(r.Any, "%s", "any")
	add(r.P != 0, "p=%s", strconv.FormatFloat(r.P, 'g', -1, 64))
	add(r.Seed != 0, "seed=%d", r.Seed)
	add(r.Count != 0, "count=%d", r.Count)
	add(r.Name != "", "name=%s", r.Name)
	return strings.Join(w, " ")
}
