package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// IRN is the loss recovery of Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, section 3. A bitmap of
// the size of the BDP cap records selective acknowledgements:
//
//	una <= retx <= nxt
//
// A NACK or a timeout starts loss recovery. The first retransmission is the packet at the cumulative acknowledgement. Any
// other packet counts as lost only if a packet with a higher PSN has been acknowledged. Lost packets precede new ones.
// Recovery ends when all packets that were sent before it began, up to the recovery sequence, are acknowledged.
//
// The responder to READs uses the same scheme for the PSNs of responses, which READ (N)ACKs acknowledge (5.2).
type IRN struct {
	marked
	retx     bth.PSN // lost packets before it have been retransmitted
	recovery bth.PSN // behind the recovery sequence
	high     bth.PSN // behind the highest PSN acknowledged selectively
	lostTo   bth.PSN // packets before it that are not acknowledged have left the network
	lost     uint32  // packets from retx to lostTo without a mark
	active   bool    // in loss recovery
	first    bool    // if active: no packet has been retransmitted yet
	expired  bool    // if active: a timeout began it

	cfg   irnConfig
	timer irnTimer
}

// irnConfig selects a variant that the paper compares (4.3).
type irnConfig struct {
	cap      uint32 // BDP cap in packets, maxWindow without BDP-FC
	goBackN  bool   // retransmits all packets from the first lost one on
	noBitmap bool   // selective repeat without SACKs: one loss per round trip
	partial  bool   // after a timeout a partial acknowledgement means that the next packet is missing
	// rewind makes a NACK retransmit all packets without a selective acknowledgement, also those in the network. An
	// acknowledgement by a receiver that misses no packet ends recovery, so that each burst of reordering begins another. So
	// does conweave-ns3 (commit 236a801, RdmaHw::RecoverQueue and ReceiveAck).
	rewind bool
}

func newIRN(r *param.Reader) Recovery {
	packets := r.Int("bdp_packets", 110, 1, 1<<16)
	bdpFC := r.Bool("bdp_fc", true)
	t := &IRN{marked: makeMarked(packets)}
	t.cfg = irnConfig{cap: uint32(packets), goBackN: r.Bool("go_back_n", false), noBitmap: !r.Bool("sack", true), partial: r.Bool("partial_ack", true),
		rewind: r.Bool("rewind", false)}
	t.timer.low, t.timer.high = r.Micros("rto_low_us", 100), r.Micros("rto_high_us", 320)
	t.timer.few = uint32(r.Int("rto_low_packets", 3, 0, 1<<16))
	t.timer.dynamic = r.Bool("dynamic_rto", false)
	t.timer.backoff = readBackoff(r)
	if !bdpFC {
		t.cfg.cap = maxWindow
	}
	t.Reset(bth.PSN{})
	return t
}

// Reset implements Recovery.
func (t *IRN) Reset(psn bth.PSN) {
	t.reset(psn)
	*t = IRN{marked: t.marked, retx: psn, recovery: psn, high: psn, lostTo: psn, cfg: t.cfg, timer: t.timer}
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

// OnFeedback implements Recovery. An overtaken NACK still reports the arrival of the packet that triggered it, and that
// this packet arrived before the one at una.
func (t *IRN) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	expected := f.Expected
	if t.overtaken(f) && t.isOutstanding(f.SACK) {
		expected = t.una
	}
	acked := t.offset(expected)
	if acked > t.outstanding() {
		return Outcome{}
	}
	t.timer.acknowledged(now, t.offset(t.timer.timed) < acked || f.HasSACK && !f.Refused && f.SACK == t.timer.timed)
	out := Outcome{Acked: acked}
	if acked > 0 {
		out.Delivered = t.onAcked(now, expected)
	}
	before := t.waiting()
	if acked > 0 && t.active && (t.cfg.noBitmap || t.expired && t.cfg.partial) && t.retx == t.una {
		t.first = true // the next packet is missing too, see OnTimeout
	}
	if !f.HasSACK || t.isOutstanding(f.SACK) {
		out.Delivered += t.onNACK(f)
	}
	if after := t.waiting(); after > before {
		out.Lost = after - before
	}
	return out
}

// onNACK processes the report of f on missing packets. It returns the number of packets that f newly reports as
// arrived.
func (t *IRN) onNACK(f *reorder.Feedback) (delivered uint32) {
	if f.HasSACK && !f.Refused && t.onSACK(f.SACK) {
		delivered = 1
	}
	switch nack := f.Gap || f.Refused || t.cfg.rewind && t.set > 0; {
	case nack && !t.active && t.una != t.nxt:
		t.enter()
	case !nack && t.cfg.rewind:
		t.active = false
	}
	t.skip()
	return delivered
}

// onSACK records a selective acknowledgement and returns whether it is new.
func (t *IRN) onSACK(psn bth.PSN) bool {
	if t.cfg.noBitmap || t.cfg.goBackN || !t.mark(psn) {
		return false
	}
	d := t.offset(psn)
	if d >= t.offset(t.retx) && d < t.offset(t.lostTo) {
		t.lost--
	}
	if d >= t.offset(t.high) {
		t.high = psn.Next()
	}
	return true
}

// onAcked moves una to the cumulative acknowledgement. It returns the number of packets newly known to have arrived.
func (t *IRN) onAcked(now mono.Time, to bth.PSN) (delivered uint32) {
	delivered = t.advance(to, &t.retx, &t.high, &t.lostTo, &t.recovery)
	t.timer.progress(now)
	if t.lost > 0 {
		t.recount()
	}
	if t.active && t.recovery == to {
		t.active, t.first, t.expired = false, false, false
	}
	return delivered
}

// enter begins loss recovery. The first packet is missing even if a peer that contradicts itself has acknowledged it
// selectively.
func (t *IRN) enter() {
	t.clear(t.una)
	t.active, t.first, t.retx, t.recovery = true, true, t.una, t.nxt
	if t.cfg.rewind {
		t.lostTo = t.nxt
	}
	t.recount()
}

// OnRNR implements Recovery: loss recovery begins, or begins again. None of the packets is in the network any more.
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

// OnTimeout implements Recovery: OnRNR with backoff. All packets sent before are older than the timeout, so a partial
// acknowledgement means that the next packet is missing, as in NewReno (RFC 6582, 3.2). The paper does not say so. Without
// this rule, a message whose last packets are all lost, so that no packet behind them is acknowledged selectively, takes
// one timeout per packet. The parameter partial_ack of 0 removes it.
func (t *IRN) OnTimeout(now mono.Time) Outcome {
	before := t.waiting()
	t.OnRNR(now)
	t.timer.expired()
	after := t.waiting()
	return Outcome{Lost: after - min(before, after)}
}

// limit returns the end of the packets that count as lost without a mark.
func (t *IRN) limit() bth.PSN {
	switch {
	case t.cfg.rewind:
		return t.lostTo
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

// skip moves retx past marked packets, and lostTo to the end of the packets that count as lost.
func (t *IRN) skip() {
	end := t.limit()
	for t.offset(t.retx) < t.offset(end) && t.has(t.retx) {
		t.retx = t.retx.Next()
	}
	if t.offset(t.lostTo) < t.offset(end) {
		t.lost += t.unmarked(t.lostTo, end)
		t.lostTo = end
	}
}

// recount recomputes lost after retx or una has moved over lost packets.
func (t *IRN) recount() { t.lost = t.unmarked(t.retx, t.lostTo) }

// waiting returns the number of lost packets that have not been retransmitted.
func (t *IRN) waiting() uint32 { return t.unmarked(t.retx, t.limit()) }

// NextRetransmit implements Recovery.
func (t *IRN) NextRetransmit() (psn bth.PSN, ok bool) { return t.retx, t.retx != t.limit() }

// InFlight implements Recovery: packets that are neither acknowledged nor lost and waiting for retransmission. BDP-FC
// counts differently, see Capped.
func (t *IRN) InFlight() uint32 { return t.outstanding() - t.set - t.lost }

// SetTimeout implements Recovery. It does nothing: IRN's timeouts are its own parameters. The queue pair's timeout is a
// thousand times as long and only detects an unreachable peer.
func (t *IRN) SetTimeout(time.Duration) {}

// Deadline implements Recovery. While the oldest packet waits for retransmission and no packet is in flight, no answer can
// be missing.
func (t *IRN) Deadline() mono.Time {
	if t.una == t.nxt {
		return mono.Never
	}
	if again, ok := t.NextRetransmit(); ok && again == t.una && t.InFlight() == 0 {
		return mono.Never
	}
	return t.timer.base.Add(t.timer.rto(t.outstanding()))
}

// Footprint returns the number of bytes of state that RC does not have, as the paper counts: a bit for each packet of the
// BDP cap, retx, recovery, high and lostTo (3 each) and the flags (1).
func (t *IRN) Footprint() int {
	return int(min(t.cfg.cap, t.marks.Len())+7)/8 + 4*3 + 1
}
