package fault

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"

	"roced.io/roced/plugin/mono"
)

// maxRules bounds the rules of an engine.
const maxRules = 64

// ErrTooMany refuses more than 64 rules.
var ErrTooMany = errors.New("more than 64 fault rules")

// Directions as indices.
const (
	rx = iota
	tx
)

// Verdict is what becomes of a frame.
type Verdict struct {
	// Frame is what to pass on, in place of the frame given: the same bytes,
	// perhaps changed, perhaps fewer.
	Frame []byte
	// Copies is how often to pass Frame on now: 0 when it was dropped or is held
	// back, more than 1 when it was duplicated.
	Copies int
	// Comment says what the rules did; empty if nothing.
	Comment string
}

// RuleStats counts what one rule has done.
type RuleStats struct {
	Rule    Rule
	Matched uint64 // frames that fulfilled its conditions
	Hit     uint64 // of these, frames that it acted on: probability, count
}

// Stats counts what an engine has done since it was made.
type Stats struct {
	Frames   uint64 // looked at
	Overflow uint64 // passed on at once because too many were held back
	Held     int    // held back now
}

// Engine applies rules to frames. It is not safe for concurrent use. The zero
// value has no rules.
type Engine struct {
	rules    []compiled
	flows    flowTable
	track    bool // some rule needs flows
	held     [2]heldQueue
	seq      uint64
	comments map[uint64]string // by the set of rules that have acted
	frames   uint64
	overflow uint64
	view     view // of the frame being processed
}

// compiled is a rule made ready.
type compiled struct {
	rule      Rule
	dirs      uint8 // bits 1<<rx, 1<<tx
	class     func(*view) bool
	nth       uint64 // bit n-1 for sighting n; 0 for all
	threshold uint64 // of 53 random bits
	pcg       rand.PCG
	matched   uint64
	hit       uint64
}

// verdict gathers what the rules do to one frame.
type verdict struct {
	Verdict
	hits  uint64 // set of rules
	delay mono.Time
	left  int // to overtake
}

// SetRules replaces the rules, and forgets flows and counters. Frames that are
// held back become due at once.
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

// compile prepares rule number i. Its number keeps the generators of rules
// without a seed apart.
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

// Active reports whether there are rules or frames held back.
func (e *Engine) Active() bool { return len(e.rules)+e.held[rx].n+e.held[tx].n > 0 }

// Process decides about a frame received (Rx) or about to be sent (Tx), from the
// Ethernet header on. It may change frame. A frame that it holds back is copied;
// Release returns it when its time has come. Held frames that this frame has
// overtaken can be due as soon as Process returns.
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

// hold holds the frame back if a rule wants it, else lets it overtake others.
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

// draw decides by count and probability.
func (c *compiled) draw() bool {
	if c.rule.Count != 0 && c.hit >= c.rule.Count {
		return false
	}
	return c.threshold == 1<<53 || c.pcg.Uint64()>>11 < c.threshold
}

// act does what the rule says; false means that it does not apply to this frame.
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
	case ECN:
		return v.markCE(out.Frame)
	}
	return true
}

// corrupt changes one byte of b, which the ICRC covers: a CRC finds every error
// that is confined to one byte. Adding keeps two rules from undoing each other.
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

// comment tells of the rules in the set hits.
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

// Release returns the next frame of direction d that is due, if there is one. It
// is valid until the next call of Process.
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

// NextTimeout is when Release has a frame in either direction; mono.Never when
// none is held back.
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
