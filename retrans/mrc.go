package retrans

import (
	"cmp"
	"math/bits"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MRC is the loss recovery of MRC. It numbers transmissions. Packets in flight are in the order of their last
// transmission. A packet is lost
//
//   - when a NACK names it
//   - when a packet that was transmitted loss_packets transmissions later has arrived
//   - when a probe that was sent behind it has been answered without it
//   - when its timer expires.
//
// The timeouts and NACKs without any arrival between them use retries: first "linear" ones at the timeout, then
// "exponential" ones, each after twice the time.
//
// Choice: the sources leave the threshold open. UET compares the out-of-order packets at the receiver with 1.5 congestion
// windows. Counting transmissions also detects a lost retransmission.
type MRC struct {
	window
	packets []mrcPacket // outstanding packets, by the low bits of their PSNs; it grows with their number
	flight  mrcList     // in the order of transmission
	lost    mrcList     // to be retransmitted
	now     mono.Time
	order   uint32 // transmissions
	newest  uint32 // the highest transmission known to have arrived, of packets sent once
	round   uint32 // transmissions when the last retry was used
	probe   uint32 // transmissions when the last probe was sent
	set     uint32 // packets that have arrived ahead of una
	cap     uint32 // packets that may be outstanding
	retries int    // used

	onLoss func(now mono.Time, port uint16) // see OnLoss
	cfg    mrcConfig
}

// mrcConfig has the parameters of MRC.
type mrcConfig struct {
	cap         uint32 // maximum PSN range of the peer
	immediates  int    // limit on outstanding WRITEs with immediate data
	threshold   uint32 // transmissions
	timeout     time.Duration
	attribute   time.Duration // timeout of SetAttribute; zero: none
	fixed       bool          // timeout is a parameter
	linear, exp int
}

// mrcPacket is an outstanding packet.
type mrcPacket struct {
	first, at     uint32 // times of its first and last transmissions in mrcTick
	order         uint32 // number of its last transmission
	prev, next    uint16 // in its list, by index
	port          uint16 // UDP source port of its last transmission; 0: that of the connection
	state         mrcState
	retransmitted bool // it has been retransmitted
}

type mrcState uint8

const (
	mrcArrived mrcState = iota // or not outstanding
	mrcFlight
	mrcLost
)

// mrcTick is the unit of MRC's timeouts in ns.
const mrcTick = 1024

// Forever is a number of exponential retries without a limit.
const Forever = 25

// longestTimeout limits the backoff.
//
// Choice: the sources name no ceiling. This is the longest timeout that an attribute can hold.
const longestTimeout = mrcTick << 24

// NewMRC returns a recovery for a receiver with an MPR in units of bth.MRCRangeUnit.
func NewMRC(mpr uint8) *MRC {
	t := &MRC{cfg: mrcConfig{immediates: 32, threshold: 16, linear: 7}}
	t.SetRange(mpr)
	return t
}

// SetRange sets the maximum PSN range of the receiver, in units of bth.MRCRangeUnit, before the first packet.
func (t *MRC) SetRange(mpr uint8) {
	n := uint32(mpr) * bth.MRCRangeUnit
	if n == t.cfg.cap {
		return
	}
	t.cfg.cap, t.packets = n, make([]mrcPacket, min(fewPackets, size(n)))
	t.Reset(t.una)
}

// fewPackets is the number of packets for which a queue pair has room at first.
const fewPackets = 256

// size returns the number of packets for which there is room with that range.
func size(packets uint32) int { return 1 << bits.Len32(packets-1) }

// grow doubles the room for packets. It keeps the last packets, also those that have arrived, because their times may be
// needed. All packets of the lists are among them.
func (t *MRC) grow() {
	old := t.packets
	t.packets = make([]mrcPacket, 2*len(old))
	last := t.nxt.Add(-1)
	place := func(i uint16) uint16 { // of the packet that had index i
		back := (last.Uint32() - uint32(i)) & uint32(len(old)-1)
		return t.index(last.Add(-int(back)))
	}
	for i, p := range old {
		p.prev, p.next = place(p.prev), place(p.next)
		t.packets[place(uint16(i))] = p
	}
	for _, l := range []*mrcList{&t.flight, &t.lost} {
		l.head, l.tail = place(l.head), place(l.tail)
	}
}

func newMRC(r *param.Reader) Recovery {
	t := NewMRC(uint8(r.Int("mpr", 8, 8, 255)))
	c := &t.cfg
	c.immediates = r.Int("max_wimm", c.immediates, 1, 1<<15)
	c.threshold = uint32(r.Int("loss_packets", int(c.threshold), 1, 1<<15))
	c.timeout = time.Duration(r.Value("rto_us", 0, 0, 1e7) * 1e3)
	c.fixed = c.timeout > 0
	c.exp = r.Int("exponential_retries", 0, 0, Forever)
	return t
}

// Reset implements Recovery.
func (t *MRC) Reset(psn bth.PSN) {
	clear(t.packets)
	*t = MRC{window: window{psn, psn}, packets: t.packets, cap: t.cfg.cap, onLoss: t.onLoss, cfg: t.cfg}
}

// Cap implements Capped: the maximum PSN range of the receiver.
func (t *MRC) Cap() uint32 { return t.cap }

// Range returns the limit of SetRange in packets. A receiver with a dynamic range may have reported less.
func (t *MRC) Range() uint32 { return t.cfg.cap }

// MaxImmediates returns how many WRITEs with immediate data may be outstanding.
func (t *MRC) MaxImmediates() int { return t.cfg.immediates }

// SetMaxImmediates sets how many WRITEs with immediate data may be outstanding.
func (t *MRC) SetMaxImmediates(n int) { t.cfg.immediates = n }

// SetRetries sets the number of linear retries, at most 7.
func (t *MRC) SetRetries(linear int) { t.cfg.linear = linear }

// Exponential returns the number of exponential retries, Forever for no limit.
func (t *MRC) Exponential() int { return t.cfg.exp }

// SetExponential sets the number of exponential retries.
func (t *MRC) SetExponential(n int) { t.cfg.exp = n }

// SetAttribute sets a timeout that precedes the parameter and that of SetTimeout; zero removes it.
func (t *MRC) SetAttribute(d time.Duration) { t.cfg.attribute = d }

// UseRetry uses a retry because of a missing answer to packets that have arrived. RestartRetries restarts the counter.
func (t *MRC) UseRetry() { t.retries++ }

// RestartRetries restarts the retry counter after an answer.
func (t *MRC) RestartRetries() { t.retries = 0 }

// Exhausted reports whether all retries have been used without success.
func (t *MRC) Exhausted() bool { return t.cfg.exp < Forever && t.retries > t.cfg.linear+t.cfg.exp }

// OnLoss sets a function to be called with the UDP source port of each packet that is lost, unless a NACK reports it.
func (t *MRC) OnLoss(f func(now mono.Time, port uint16)) { t.onLoss = f }

// SetPort records the UDP source port of psn, which OnSent has recorded.
func (t *MRC) SetPort(psn bth.PSN, port uint16) { t.packets[t.index(psn)].port = port }

// Port returns the UDP source port of the last transmission of psn.
func (t *MRC) Port(psn bth.PSN) uint16 { return t.packets[t.index(psn)].port }

// Probed records that a probe is being sent.
func (t *MRC) Probed() { t.probe = t.order }

// Since returns the time since the first transmission of psn, rounded up, also if the packet has arrived.
func (t *MRC) Since(now mono.Time, psn bth.PSN) time.Duration {
	return time.Duration(tick(now)-t.packets[t.index(psn)].first+1) * mrcTick
}

// age returns the time since the last transmission of packet i.
func (t *MRC) age(now mono.Time, i uint16) time.Duration {
	return time.Duration(tick(now)-t.packets[i].at) * mrcTick
}

func tick(now mono.Time) uint32 { return uint32(now / mrcTick) }

func (t *MRC) index(psn bth.PSN) uint16 { return uint16(psn.Uint32() & uint32(len(t.packets)-1)) }

// psn returns the outstanding PSN with that index.
func (t *MRC) psn(i uint16) bth.PSN {
	return t.una.Add(int((uint32(i) - t.una.Uint32()) & uint32(len(t.packets)-1)))
}

// OnSent implements Recovery. A packet that has arrived may be retransmitted to make the peer repeat its answer.
func (t *MRC) OnSent(now mono.Time, psn bth.PSN, _ uint32, rtx bool) {
	if !rtx && t.outstanding() == uint32(len(t.packets)) {
		t.grow()
	}
	i := t.index(psn)
	p := &t.packets[i]
	switch {
	case !rtx:
		t.nxt, p.first = psn.Next(), tick(now)
	case !t.isOutstanding(psn) || p.state == mrcArrived:
		return
	default:
		t.remove(i)
	}
	t.now = now
	t.order++
	p.at, p.order, p.retransmitted = tick(now), t.order, rtx
	t.append(&t.flight, i, mrcFlight)
}

// OnFeedback implements Recovery.
func (t *MRC) OnFeedback(now mono.Time, f *reorder.Feedback) (out Outcome) {
	t.now = now
	expected := f.Expected
	if behind := t.una.Since(expected); behind <= MaxLate {
		expected = t.una // another path was faster
	}
	if out.Acked = t.offset(expected); out.Acked > t.outstanding() {
		return Outcome{}
	}
	for range out.Acked {
		if i := t.index(t.una); t.packets[i].state != mrcArrived {
			t.arrive(i)
			out.Delivered++
		} else {
			t.set--
		}
		t.una = t.una.Next()
	}
	before := t.lost.n
	out.Delivered += t.marks(f)
	if f.HasSACK && f.Refused {
		t.refused(f.SACK)
	}
	if out.Delivered > 0 {
		t.retries = 0
	}
	if f.MPR != 0 {
		t.cap = min(uint32(f.MPR)*bth.MRCRangeUnit, t.cfg.cap)
	}
	t.infer(f.ProbeReply)
	out.Lost = t.lost.n - min(before, t.lost.n)
	return out
}

// marks takes the selective acknowledgements of f. It returns the number of new ones.
func (t *MRC) marks(f *reorder.Feedback) (delivered uint32) {
	if f.HasSACK && !f.Refused {
		delivered = t.mark(f.SACK)
	}
	for bitmap := f.Bitmap; bitmap != 0; bitmap &= bitmap - 1 {
		delivered += t.mark(f.Base.Add(bits.TrailingZeros64(bitmap)))
	}
	return delivered
}

// mark records that psn has arrived. It returns 0 if that is known already, or if psn is not outstanding.
func (t *MRC) mark(psn bth.PSN) uint32 {
	i := t.index(psn)
	if !t.isOutstanding(psn) || t.packets[i].state == mrcArrived {
		return 0
	}
	t.arrive(i)
	t.set++
	return 1
}

// arrive takes packet i out of its list. Of a retransmitted packet either transmission may have arrived, so it does not
// raise newest.
func (t *MRC) arrive(i uint16) {
	p := &t.packets[i]
	t.remove(i)
	p.state = mrcArrived
	if !p.retransmitted && int32(p.order-t.newest) > 0 {
		t.newest = p.order
	}
}

// refused takes a NACK of psn.
func (t *MRC) refused(psn bth.PSN) {
	i := t.index(psn)
	if !t.isOutstanding(psn) || t.packets[i].state != mrcFlight {
		return
	}
	t.useRetry(t.packets[i].order)
	t.lose(i)
}

// infer finds the packets that are lost because later ones have arrived, or because the last probe has been answered.
func (t *MRC) infer(probed bool) {
	for t.flight.n > 0 {
		order := t.packets[t.flight.head].order
		if int32(t.newest-order) < int32(t.cfg.threshold) && !(probed && int32(t.probe-order) >= 0) {
			return
		}
		t.loseSilently()
	}
}

// loseSilently counts the oldest packet in flight as lost, which no NACK reports.
func (t *MRC) loseSilently() {
	i := t.flight.head
	if t.onLoss != nil && t.packets[i].port != 0 {
		t.onLoss(t.now, t.packets[i].port)
	}
	t.lose(i)
}

func (t *MRC) lose(i uint16) {
	t.remove(i)
	t.append(&t.lost, i, mrcLost)
}

// useRetry uses a retry because of the loss of transmission order. Losses of packets that were sent before the last retry
// use none: they are of the same burst.
//
// Choice: the sources have one counter for timeouts and NACKs, and do not say when it restarts.
func (t *MRC) useRetry(order uint32) {
	if int32(order-t.round) > 0 {
		t.retries++
		t.round = t.order
	}
}

// OnRNR implements Recovery. MRC has no RNR NAKs.
func (t *MRC) OnRNR(mono.Time) {}

// OnTimeout implements Recovery.
func (t *MRC) OnTimeout(now mono.Time) (out Outcome) {
	t.now = now
	limit := t.Timeout()
	for t.flight.n > 0 && limit > 0 && t.age(now, t.flight.head) >= limit {
		t.useRetry(t.packets[t.flight.head].order)
		t.loseSilently()
		out.Lost++
	}
	return out
}

// Timeout returns the timeout after the retries used so far, zero if it is infinite.
func (t *MRC) Timeout() time.Duration {
	d := cmp.Or(t.cfg.attribute, t.cfg.timeout).Round(mrcTick)
	for n := t.retries - t.cfg.linear; n > 0 && d < longestTimeout; n-- {
		d *= 2
	}
	return min(d, longestTimeout)
}

// NextRetransmit implements Recovery: packets are retransmitted in the order in which their loss was found.
func (t *MRC) NextRetransmit() (bth.PSN, bool) {
	if t.lost.n == 0 {
		return t.una, false
	}
	return t.psn(t.lost.head), true
}

// InFlight implements Recovery.
func (t *MRC) InFlight() uint32 { return t.flight.n }

// SetTimeout implements Recovery.
func (t *MRC) SetTimeout(d time.Duration) {
	if !t.cfg.fixed {
		t.cfg.timeout = d
	}
}

// Deadline implements Recovery: the timer of the packet that was sent first.
func (t *MRC) Deadline() mono.Time {
	d := t.Timeout()
	if t.flight.n == 0 || d == 0 {
		return mono.Never
	}
	return t.now.Add(d - t.age(t.now, t.flight.head))
}

// MRCFootprint returns the number of bytes of state that a range of so many packets can take, and RC does not have.
func MRCFootprint(packets uint32) int { return 20 * size(packets) }

// Footprint returns MRCFootprint of the range.
func (t *MRC) Footprint() int { return MRCFootprint(t.cfg.cap) }

// mrcList is a list of packets by their indices.
type mrcList struct {
	head, tail uint16
	n          uint32
}

// append appends packet i to l.
func (t *MRC) append(l *mrcList, i uint16, s mrcState) {
	p := &t.packets[i]
	if p.state, p.prev = s, l.tail; l.n == 0 {
		l.head = i
	} else {
		t.packets[l.tail].next = i
	}
	l.tail = i
	l.n++
}

// remove takes packet i out of its list.
func (t *MRC) remove(i uint16) {
	l := &t.flight
	if t.packets[i].state == mrcLost {
		l = &t.lost
	}
	p := &t.packets[i]
	if i == l.head {
		l.head = p.next
	} else {
		t.packets[p.prev].next = p.next
	}
	if i == l.tail {
		l.tail = p.prev
	} else {
		t.packets[p.next].prev = p.prev
	}
	l.n--
}
