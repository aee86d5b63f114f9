package fault

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// maxRules is the maximum number of rules of an engine.
const maxRules = 64

// ErrTooMany means that there are more than 64 rules.
var ErrTooMany = errors.New("more than 64 fault rules")

// Directions as indices.
const (
	rx = iota
	tx
)

// Verdict is the decision on a frame.
type Verdict struct {
	// Frame is the frame to pass on. It shares the memory of the original frame, may have changed bytes and may be
	// shorter.
	Frame []byte
	// Copies is the number of times to pass Frame on now: 0 for a dropped or delayed frame, more than 1 for a
	// duplicated one.
	Copies int
	// Comment describes the actions of the rules; empty if no rule acted.
	Comment string
}

// RuleStats are the counters of a rule.
type RuleStats struct {
	Rule    Rule
	Matched uint64 // frames that matched its conditions
	Hit     uint64 // matched frames that it acted on, after probability and count
}

// Stats are the counters of an engine.
type Stats struct {
	Frames   uint64 // processed
	Overflow uint64 // passed on without delay because too many frames are delayed
	Held     int    // frames that are delayed now
}

// Engine applies rules to frames. It is not safe for concurrent use. The zero
// value has no rules.
type Engine struct {
	rules    []compiled
	flows    flowTable
	track    bool // a rule needs flows
	held     [2]heldQueue
	seq      uint64
	comments map[uint64]string // by set of rules that have acted
	frames   uint64
	overflow uint64
	view     view // of the frame being processed
}

// compiled is a compiled rule.
type compiled struct {
	rule      Rule
	dirs      uint8 // bits 1<<rx, 1<<tx
	class     func(*view) bool
	nth       uint64 // bit n-1 for the n-th transmission; 0 for all
	threshold uint64 // probability in 2^-53
	pcg       rand.PCG
	matched   uint64
	hit       uint64
}

// verdict accumulates the actions of the rules on a frame.
type verdict struct {
	Verdict
	hits  uint64 // set of rules
	delay mono.Time
	left  int // frames that must pass before
}

// SetRules replaces the rules, and resets flows and counters of rules. Delayed frames become due at once.
func (e *Engine) SetRules(rules []Rule) error {
	if len(rules) > maxRules {
		return ErrTooMany
	}
	out := make([]compiled, len(rules))
	for i := range rules {
		if err := rules[i].Validate(); err != nil {
			return fmt.Errorf("fault rule %q: %w", rules[i], err)
		}
		out[i].compile(rules[i], i)
	}
	e.rules, e.comments = out, make(map[uint64]string)
	e.track = false
	count := false
	for i := range out {
		e.track = e.track || rules[i].PSN != nil && rules[i].PSN.Relative || out[i].nth != 0
		count = count || out[i].nth != 0
	}
	if e.track {
		e.flows.reset(count)
	}
	e.held[rx].release()
	e.held[tx].release()
	return nil
}

// compile compiles rule number i. The number is a part of the seed, so that rules with the same seed draw different
// numbers.
func (c *compiled) compile(r Rule, i int) {
	c.rule, c.class = r, classes[r.Op]
	c.dirs = map[Dir]uint8{Rx: 1 << rx, Tx: 1 << tx, Both: 1<<rx | 1<<tx}[r.Dir]
	for _, n := range r.Nth {
		c.nth |= 1 << (n - 1)
	}
	c.threshold = 1 << 53
	if r.P != 0 {
		c.threshold = uint64(r.P * (1 << 53))
	}
	c.pcg.Seed(r.Seed, uint64(i))
}

// Active reports whether there are rules or delayed frames.
func (e *Engine) Active() bool { return len(e.rules)+e.held[rx].n+e.held[tx].n > 0 }

// Process applies the rules to a received frame (Rx) or to a frame to send (Tx), which starts at its Ethernet header. It
// may change the frame. It copies a frame that it delays; Release returns the copy when it is due. After Process, delayed
// frames that this frame has overtaken may be due.
func (e *Engine) Process(now mono.Time, d Dir, frame []byte) Verdict {
	dir := rx
	if d == Tx {
		dir = tx
	}
	e.frames++
	e.seq++
	v := &e.view
	v.parse(dir, frame)
	if e.track && v.roce {
		e.flows.observe(v)
	}
	out := verdict{Verdict: Verdict{Frame: frame, Copies: 1}}
	for i := range e.rules {
		r := &e.rules[i]
		if !r.matches(dir, v) {
			continue
		}
		r.matched++
		if r.draw() && r.act(v, &out) {
			r.hit++
			out.hits |= 1 << i
		}
		if out.Copies == 0 {
			break
		}
	}
	e.hold(now, dir, v, &out)
	if out.hits != 0 {
		out.Comment = e.comment(out.hits)
	}
	return out.Verdict
}

// hold delays the frame if a rule has delayed it; otherwise the frame overtakes others.
func (e *Engine) hold(now mono.Time, dir int, v *view, out *verdict) {
	if out.Copies == 0 {
		return
	}
	if out.delay > 0 {
		h := held{due: now + out.delay, seq: e.seq, copies: out.Copies, left: out.left, flow: v.key}
		if e.held[dir].add(h, out.Frame) {
			out.Copies = 0
			return
		}
		e.overflow++
	}
	e.held[dir].overtaken(now, &v.key, e.seq)
}

// matches checks the conditions of a rule.
func (c *compiled) matches(dir int, v *view) bool {
	r := &c.rule
	if c.dirs&(1<<dir) == 0 || !v.roce && !r.Any {
		return false
	}
	if r.Peer.IsValid() && r.Peer != v.key.peer() || r.Src.IsValid() && r.Src != v.key.src ||
		r.Dst.IsValid() && r.Dst != v.key.dst {
		return false
	}
	if r.QPN != nil && *r.QPN != uint32(v.key.qpn) || r.Path != nil && v.port%r.Path.Of != r.Path.Index {
		return false
	}
	if !c.class(v) || r.PSN != nil && !r.PSN.contains(v) {
		return false
	}
	return c.nth == 0 || v.nth <= maxNth && c.nth>>(v.nth-1)&1 != 0
}

// contains checks the PSN of v.
func (p *PSNs) contains(v *view) bool {
	if p.Relative {
		d := v.psn.Diff(v.base)
		return d >= int(p.First) && d <= int(p.Last)
	}
	return (v.psn.Uint32()-p.First)&maxPSN <= (p.Last-p.First)&maxPSN
}

// draw decides with count and probability whether the rule acts.
func (c *compiled) draw() bool {
	if c.rule.Count != 0 && c.hit >= c.rule.Count {
		return false
	}
	return c.threshold == 1<<53 || c.pcg.Uint64()>>11 < c.threshold
}

// act performs the action. It returns false if the action is not applicable to the frame.
func (c *compiled) act(v *view, out *verdict) bool {
	r := &c.rule
	switch r.Action {
	case Drop:
		out.Copies = 0
	case Duplicate:
		out.Copies += max(r.Copies, 1)
	case Delay:
		out.delay += mono.Time(r.Delay)
	case Reorder:
		out.left = max(out.left, r.Frames)
		out.delay += mono.Time(r.Delay)
		if r.Delay == 0 {
			out.delay += mono.Time(reorderFor)
		}
	case Corrupt:
		return c.corrupt(v.covered(out.Frame))
	case Truncate:
		if len(out.Frame) <= r.Length {
			return false
		}
		out.Frame = out.Frame[:r.Length]
	case Trim:
		return v.trim(&out.Frame, uint8(cmp.Or(r.DSCP, bth.MRCDSCPTrimmed)))
	case ECN:
		return v.markCE(out.Frame)
	}
	return true
}

// corrupt increments a byte of b that the ICRC covers. A CRC detects every error within one byte. Two increments do not
// cancel each other.
func (c *compiled) corrupt(b []byte) bool {
	i := 0
	switch o := c.rule.Offset; {
	case len(b) <= maskedByte+1:
		return false
	case o == nil:
		if i = int(c.pcg.Uint64() % uint64(len(b)-1)); i >= maskedByte {
			i++
		}
	case *o >= 0:
		i = *o
	default:
		i = len(b) + *o
	}
	if i < 0 || i >= len(b) || i == maskedByte {
		return false
	}
	b[i]++
	return true
}

// comment returns the comment for a set of rules.
func (e *Engine) comment(hits uint64) string {
	if s, ok := e.comments[hits]; ok {
		return s
	}
	var parts []string
	for h := hits; h != 0; h &= h - 1 {
		r := &e.rules[bits.TrailingZeros64(h)].rule
		if r.Name != "" {
			parts = append(parts, fmt.Sprintf("%s (%s)", r.Action, r.Name))
		} else {
			parts = append(parts, fmt.Sprintf("%s (%v)", r.Action, *r))
		}
	}
	s := "fault: " + strings.Join(parts, ", ")
	if len(e.comments) < 4*maxRules {
		e.comments[hits] = s
	}
	return s
}

// Release returns the next due frame of direction d. The frame is valid until the next call of Process.
func (e *Engine) Release(now mono.Time, d Dir) (frame []byte, ok bool) {
	dir := rx
	if d == Tx {
		dir = tx
	}
	q := &e.held[dir]
	if q.next() > now {
		return nil, false
	}
	h := q.pop()
	if h.copies == 0 {
		q.overtaken(now, &h.flow, h.seq)
	}
	return h.frame, true
}

// NextTimeout returns the time at which the next delayed frame is due, mono.Never if there is none.
func (e *Engine) NextTimeout() mono.Time { return e.held[rx].next().Min(e.held[tx].next()) }

// Stats returns the counters of the engine.
func (e *Engine) Stats() Stats {
	return Stats{Frames: e.frames, Overflow: e.overflow, Held: e.held[rx].n + e.held[tx].n}
}

// RuleStats returns the rules with their counters.
func (e *Engine) RuleStats() []RuleStats {
	out := make([]RuleStats, len(e.rules))
	for i := range e.rules {
		out[i] = RuleStats{Rule: e.rules[i].rule, Matched: e.rules[i].matched, Hit: e.rules[i].hit}
	}
	return out
}
