package fault

import (
	"errors"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
)

// maxRules is the capacity of the map of rules.
const maxRules = 64

// Reasons to refuse rules that the ports of NICs support.
var (
	errHold     = errors.New("a tc program cannot delay frames")
	errTruncate = errors.New("a tc program cannot shorten a frame below the length that drivers send")
	errAny      = errors.New("rules on an interface apply to RoCEv2 frames only")
)

// Check returns an error if the program does not support a rule.
func Check(r *fault.Rule) error {
	err := r.Validate()
	switch {
	case err != nil:
	case r.Action == fault.Delay || r.Action == fault.Reorder:
		err = errHold
	case r.Action == fault.Truncate || r.Action == fault.Trim:
		err = errTruncate
	case r.Any:
		err = errAny
	}
	if err != nil {
		return fmt.Errorf("fault rule %q: %w", r, err)
	}
	return nil
}

var actions = map[fault.Action]uint8{fault.Drop: 1, fault.Duplicate: 2, fault.Corrupt: 3, fault.ECN: 4}

// compile converts a rule that Check accepts to the format of the program.
func compile(r *fault.Rule) faultRule {
	c := faultRule{
		Count: r.Count, Threshold: 1 << 53, Copies: uint32(max(r.Copies, 1)), Action: actions[r.Action],
		Dirs:    map[fault.Dir]uint8{fault.Rx: 1, fault.Tx: 2, fault.Both: 3}[r.Dir],
		Nak:     flag(r.Op == "nak"),
		HasPeer: flag(r.Peer.IsValid()), HasSrc: flag(r.Src.IsValid()), HasDst: flag(r.Dst.IsValid()),
		HasQpn: flag(r.QPN != nil), HasPsn: flag(r.PSN != nil), HasOffset: flag(r.Offset != nil),
	}
	c.Peer.In6U.U6Addr8, c.Src.In6U.U6Addr8, c.Dst.In6U.U6Addr8 = r.Peer.As16(), r.Src.As16(), r.Dst.As16()
	for op := range 256 {
		if r.Names(bth.Opcode(op)) {
			c.Ops[op/64] |= 1 << (op % 64)
		}
	}
	for _, n := range r.Nth {
		c.Nth |= 1 << (n - 1)
	}
	if r.P != 0 {
		c.Threshold = uint64(r.P * (1 << 53))
	}
	if r.QPN != nil {
		c.Qpn = *r.QPN
	}
	if r.Path != nil {
		c.Path, c.Paths = r.Path.Index, r.Path.Of
	}
	if r.PSN != nil {
		c.PsnFirst, c.PsnLast, c.Relative = r.PSN.First, r.PSN.Last, flag(r.PSN.Relative)
	}
	if r.Offset != nil {
		c.Offset = int32(*r.Offset)
	}
	return c
}

// queuePairs returns the set of queue pairs, modulo 64, that a rule may match in one direction.
func queuePairs(c *faultRule, dir int) uint64 {
	switch {
	case c.Dirs>>dir&1 == 0:
		return 0
	case c.HasQpn == 0:
		return 1<<64 - 1
	}
	return 1 << (c.Qpn % 64)
}

// tracks reports whether a rule depends on the history of flows.
func tracks(r *fault.Rule) bool { return len(r.Nth) > 0 || r.PSN != nil && r.PSN.Relative }

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
