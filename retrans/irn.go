package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/psnring"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// IRN is the loss recovery of Mittal et al., "Revisiting Network Support for RDMA",
// SIGCOMM 2018, section 3. A bitmap of the size of the BDP cap tells which packets have
// been acknowledged selectively:
//
//	una <= retx <= nxt
//
// A NACK or a timeout starts loss recovery. The first packet sent again is the one at the
// cumulative acknowledgement; any other counts as lost only if one with a higher PSN has
// been acknowledged. Lost packets go before new ones. Recovery ends when all that had
// been sent before it began, up to the recovery sequence, is acknowledged.
//
// The responder to READs uses the same for the PSNs of responses, of which the READ
// (N)ACKs tell (5.2).
type IRN struct {
	una, nxt bth.PSN
	retx     bth.PSN // what lies before it has been sent again if it was lost
	recovery bth.PSN // behind the recovery sequence
	high     bth.PSN // behind the highest PSN acknowledged selectively
	lostTo   bth.PSN // what lies before it and is not acknowledged left the network
	marks    psnring.Bits
	marked   uint32 // marks that are set
	lost     uint32 // packets from retx to lostTo that have none
	active   bool   // in loss recovery
	first    bool   // ... and nothing has been sent again yet
	expired  bool   // ... which a timeout has begun

	cfg   irnConfig
	timer irnTimer
}

// irnConfig is what the variants differ in that the paper compares (4.3).
type irnConfig struct {
	cap      uint32 // BDP cap in packets, maxWindow without BDP-FC
	goBackN  bool   // everything from the first lost packet on is sent again
	noBitmap bool   // selective repeat without SACKs: one loss in a round trip
}

// maxWindow is a cap that is none: half of the number space.
const maxWindow = 1 << 23

// Capped is a Recovery that bounds how many packets are outstanding: a new one may be
// sent only while next PSN - Una < Cap. IRN calls it BDP-FC (3.2).
type Capped interface {
	Cap() uint32
}

func newIRN(p Params) (Recovery, error) {
	r := param.NewReader("retrans: irn", p)
	packets := r.Int("bdp_packets", 110, 1, 1<<16)
	bdpFC := r.Bool("bdp_fc", true)
	t := &IRN{cfg: irnConfig{cap: uint32(packets), goBackN: r.Bool("go_back_n", false), noBitmap: !r.Bool("sack", true)}}
	t.timer.low, t.timer.high = r.Micros("rto_low_us", 100), r.Micros("rto_high_us", 320)
	t.timer.few = uint32(r.Int("rto_low_packets", 3, 0, 1<<16))
	t.timer.dynamic = r.Bool("dynamic_rto", false)
	t.timer.backoff = readBackoff(r)
	if err := r.Err(); err != nil {
		return nil, err
	}
	if !bdpFC {
		t.cfg.cap = maxWindow
	}
	t.marks = psnring.Make(packets)
	t.Reset(bth.PSN{})
	return t, nil
}

// Reset implements Recovery.
func (t *IRN) Reset(psn bth.PSN) {
	clear(t.marks)
	*t = IRN{una: psn, nxt: psn, retx: psn, recovery: psn, high: psn, lostTo: psn, marks: t.marks, cfg: t.cfg, timer: t.timer}
	t.timer.reset()
}

// Cap implements Capped.
func (t *IRN) Cap() uint32 { return t.cfg.cap }

// OnSent implements Recovery.
func (t *IRN) OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool) {
	if psn == t.una {
		t.timer.base = now
	}
	t.timer.sent(now, psn, rtx)
	end := psn.Add(int(span))
	if !rtx {
		t.nxt = end
		return
	}
	if next, ok := t.NextRetransmit(); ok && psn == next {
		t.first, t.retx = false, end
		t.skip()
		t.recount()
	}
}

// OnFeedback implements Recovery. A NACK that others have overtaken still tells of the
// packet that triggered it, and that this came before the one at una.
func (t *IRN) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	expected := f.Expected
	if overtaken(t.una, f) && t.offset(f.SACK) < t.outstanding() {
		expected = t.una
	}
	acked := t.offset(expected)
	if acked > t.outstanding() {
		return Outcome{}
	}
	t.timer.acknowledged(now, t.offset(t.timer.timed) < acked || f.HasSACK && !f.Refused && f.SACK == t.timer.timed)
	out := Outcome{Acked: acked, Delivered: t.unmarked(t.una, expected)}
	if acked > 0 {
		t.marked -= acked - out.Delivered
		t.advance(now, expected, acked)
	}
	before := t.waiting()
	if acked > 0 && t.active && (t.cfg.noBitmap || t.expired) && t.retx == t.una {
		t.first = true // where it stops, the next one is missing: see OnTimeout
	}
	if !f.HasSACK || t.offset(f.SACK) < t.outstanding() {
		out.Delivered += t.negative(f)
	}
	if after := t.waiting(); after > before {
		out.Lost = after - before
	}
	return out
}

// negative takes what f says of packets that are missing, and returns how many it newly
// says have arrived.
func (t *IRN) negative(f *reorder.Feedback) (delivered uint32) {
	if f.HasSACK && !f.Refused && t.mark(f.SACK) {
		delivered = 1
	}
	if (f.Gap || f.Refused) && !t.active && t.una != t.nxt {
		t.enter()
	}
	t.skip()
	return delivered
}

// mark remembers a selective acknowledgement. It returns whether that is news.
func (t *IRN) mark(psn bth.PSN) bool {
	d := t.offset(psn)
	if t.cfg.noBitmap || t.cfg.goBackN || d >= t.marks.Len() || t.marks.Has(psn) {
		return false
	}
	t.marks.Set(psn)
	t.marked++
	if d >= t.offset(t.retx) && d < t.offset(t.lostTo) {
		t.lost--
	}
	if d >= t.offset(t.high) {
		t.high = psn.Next()
	}
	return true
}

// advance moves una, by the cumulative acknowledgement.
func (t *IRN) advance(now mono.Time, to bth.PSN, acked uint32) {
	for k := range min(acked, t.marks.Len()) {
		t.marks.Clear(t.una.Add(int(k)))
	}
	left := distance(to, t.nxt)
	t.una = to
	t.timer.progress(now)
	for _, p := range []*bth.PSN{&t.retx, &t.high, &t.lostTo, &t.recovery} {
		if distance(to, *p) > left {
			*p = to
		}
	}
	if t.lost > 0 {
		t.recount()
	}
	if t.active && t.recovery == to {
		t.active, t.first, t.expired = false, false, false
	}
}

// enter begins loss recovery. The first packet is missing even if a peer that contradicts
// itself has acknowledged it selectively.
func (t *IRN) enter() {
	if t.hasMark(t.una) {
		t.marks.Clear(t.una)
		t.marked--
	}
	t.active, t.first, t.retx, t.recovery = true, true, t.una, t.nxt
	t.recount()
}

// OnRNR implements Recovery: loss recovery begins, or begins again. None of the packets
// is in the network any more.
func (t *IRN) OnRNR(mono.Time) {
	if t.una == t.nxt {
		return
	}
	t.lostTo = t.nxt
	t.expired = true
	t.enter()
	t.timer.timing = false
	t.skip()
}

// OnTimeout implements Recovery. It does what OnRNR does, and the timeout backs off. What had
// been sent before is older than the timeout, so that an acknowledgement of a part of it says
// that the next one is missing, as a partial one does in NewReno (RFC 6582, 3.2). The paper does not
// say so. Without it, the end of a message that is lost as a whole, so that nothing behind it is
// acknowledged selectively, takes a timeout for each of its packets.
func (t *IRN) OnTimeout(now mono.Time) Outcome {
	before := t.waiting()
	t.OnRNR(now)
	t.timer.expired()
	after := t.waiting()
	return Outcome{Lost: after - min(before, after)}
}

// limit is the end of what counts as lost if it has no mark.
func (t *IRN) limit() bth.PSN {
	switch {
	case !t.active:
		return t.retx
	case t.cfg.goBackN:
		return t.recovery
	case t.offset(t.retx) < t.offset(t.high):
		return t.high
	case t.first:
		return t.una.Next()
	}
	return t.retx
}

// skip moves retx past what is marked, and lostTo along with what counts as lost.
func (t *IRN) skip() {
	end := t.limit()
	for t.offset(t.retx) < t.offset(end) && t.hasMark(t.retx) {
		t.retx = t.retx.Next()
	}
	if t.offset(t.lostTo) < t.offset(end) {
		t.lost += t.unmarked(t.lostTo, end)
		t.lostTo = end
	}
}

// recount counts anew what is lost, when retx or una has moved over some of it.
func (t *IRN) recount() { t.lost = t.unmarked(t.retx, t.lostTo) }

// waiting is the number of packets that are lost and have not been sent again.
func (t *IRN) waiting() uint32 { return t.unmarked(t.retx, t.limit()) }

// NextRetransmit implements Recovery.
func (t *IRN) NextRetransmit() (psn bth.PSN, ok bool) { return t.retx, t.retx != t.limit() }

// Una implements Recovery.
func (t *IRN) Una() bth.PSN { return t.una }

// InFlight implements Recovery: what is not acknowledged, but for what is lost and has not
// been sent again. BDP-FC counts otherwise, see Capped.
func (t *IRN) InFlight() uint32 {
	return t.outstanding() - t.marked - t.lost
}

func (t *IRN) offset(psn bth.PSN) uint32 { return distance(t.una, psn) }

func (t *IRN) outstanding() uint32 { return t.offset(t.nxt) }

func (t *IRN) hasMark(psn bth.PSN) bool {
	return t.offset(psn) < t.marks.Len() && t.marks.Has(psn)
}

// unmarked counts the packets from one PSN to another that have no mark.
func (t *IRN) unmarked(from, to bth.PSN) uint32 {
	n := distance(from, to)
	return n - t.marks.Count(from, min(n, t.marks.Len()-min(t.marks.Len(), t.offset(from))))
}

// SetTimeout implements Recovery. The timeouts of IRN are its own parameters: that of the
// queue pair is a thousand times as long, and only says when the peer is given up.
func (t *IRN) SetTimeout(time.Duration) {}

// Deadline implements Recovery. While the oldest packet waits to be sent again and nothing
// is in flight, no answer can be missing.
func (t *IRN) Deadline() mono.Time {
	if t.una == t.nxt {
		return mono.Never
	}
	if again, ok := t.NextRetransmit(); ok && again == t.una && t.InFlight() == 0 {
		return mono.Never
	}
	return t.timer.base.Add(t.timer.rto(t.outstanding()))
}

// Footprint is the number of bytes of state that RC does not have, as the paper counts:
// a bit for each packet of the BDP cap, retx, recovery, high and lostTo (3 each) and the
// flags (1).
func (t *IRN) Footprint() int {
	return int(min(t.cfg.cap, t.marks.Len())+7)/8 + 4*3 + 1
}
