package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// asker decides which packets ask for an acknowledgement (IBTA vol.1 9.7.3,
// AckReq). A responder need not acknowledge anything else, and rxe acknowledges
// exactly those. So a packet asks
//
//   - at the end of a message unless another packet follows at once, which
//     would ask in its place: this completes the last request of a burst
//   - several times in the PSN window or the congestion window (Tuning.AcksPerWindow),
//     so that acknowledgements stream while packets do
//   - when it fills the window: nothing follows until something is acknowledged
//   - when the packets before it have been waiting for an eighth of the timeout,
//     as they do under a rate limit, so that slowness is not taken for loss
//   - when it is the last of a retransmission.
//
// What blocks later than that, such as a window that shrinks or a queue that is
// told to drain, is caught by requester.probe.
type asker struct {
	since mono.Time // when the first packet after the last one that asked was sent
	count uint32    // how many have been sent after that
	due   uint32    // last PSN that is to be acknowledged on request and has not been, plus one; 0: none
}

// pending reports whether an acknowledgement has been asked for that has not come.
func (a *asker) pending() bool { return a.due != 0 }

// asks implements framing.
func (r *requester) asks(now mono.Time, ends, again bool) bool {
	stop := ends && (r.q.cfg.Tuning.AcksPerWindow == 0 || r.pace.Next > now || !r.follows())
	if again {
		_, more := r.rec.NextRetransmit()
		stop = !more
	}
	a, limit := &r.ask, r.q.cfg.MaxUnacked
	window := uint64(ccalgo.Unlimited)
	if !r.free {
		bytes, _ := r.limits()
		window, limit = bytes, uint32(min(uint64(limit), bytes/uint64(r.q.mtu)))
	}
	if stop || a.count+1 >= limit/r.q.cfg.Tuning.acksPerWindow() || r.full(r.outstanding()) {
		return true
	}
	if timeout := r.q.ackTimeout(); a.count > 0 && timeout > 0 && now.Sub(a.since) >= timeout/8 {
		return true
	}
	return !r.free && uint64(r.bytesInFlight()) >= window
}

// sent records a packet. psn is its last PSN.
func (a *asker) sent(now mono.Time, psn bth.PSN, asked bool) {
	if !asked {
		if a.count == 0 {
			a.since = now
		}
		a.count++
		return
	}
	a.count, a.due = 0, psn.Uint32()+1
}

// lost forgets what was asked: it has to be asked again.
func (a *asker) lost() { a.count, a.due = 0, 0 }

// acked takes note of progress.
func (a *asker) acked(una, nxt bth.PSN) {
	if a.pending() && distance(una, bth.MakePSN(a.due-1)) >= distance(una, nxt) {
		a.due = 0
	}
}

// asked records that a packet has been sent, and whether it asks for an acknowledgement. psn is its last PSN.
func (r *requester) asked(now mono.Time, psn bth.PSN, asks bool) {
	r.ask.sent(now, psn, asks)
	if asks && r.q.x == nil {
		r.since, r.probing = now, false
	}
}

// again implements source.
func (r *requester) again(now mono.Time, psn bth.PSN, t *Transmit) bool {
	i, k, ok := r.locate(psn)
	if !ok || r.At(i).status != StatusSuccess {
		return false
	}
	window, _ := r.limits()
	if !r.overdue && r.ask.pending() && r.rec.InFlight() > 0 && uint64(r.bytesInFlight()) >= window {
		return false
	}
	return r.pace.Ready(now) && r.sendAgain(now, i, k, t)
}

// sendAgain sends packet k of request i again.
func (r *requester) sendAgain(now mono.Time, i, k uint32, t *Transmit) bool {
	s := r.At(i)
	if !r.fill(s, k, t) {
		r.unreadable(now, i)
		return false
	}
	r.frame.stamp(s, k, true, &t.Packet)
	psn, span := s.first.Add(int(k)), uint32(1)
	if s.kind.responds() {
		span = s.span - k
		s.split = s.split || k > 0
	}
	r.resend, r.overdue, t.Snapshot = i, false, true
	r.rec.OnSent(now, psn, span, true)
	r.q.traceSent(now, &t.Packet, span, true)
	t.Packet.AckReq = s.kind.responds() || r.frame.asks(now, false, true)
	r.asked(now, psn.Add(int(span)-1), t.Packet.AckReq)
	r.q.ctr.RetransmittedPackets++
	r.account(now, &t.Packet)
	return true
}

// probe implements framing: it sends a packet again, with AckReq, if nothing else can be sent and
// none of the outstanding packets has asked for an acknowledgement, or none comes (see probeDue). The
// responder acknowledges duplicates (IBTA vol.1 9.7.5.1.4). Looking ahead makes
// this rare.
func (r *requester) probe(now mono.Time, t *Transmit) bool {
	if r.q.blocked || r.ask.pending() && !r.probing || r.pace.Waiting || r.outstanding() == 0 || !r.q.sending() || !r.pace.Ready(now) {
		return false
	}
	psn := r.nxt.Add(-1)
	if r.hasBad && r.At(r.bad).sent > 0 {
		psn = r.At(r.bad).first.Add(-1)
	}
	if r.probing {
		if r.probes%2 == 1 {
			psn = r.una
		}
		r.probes++
		r.since, r.probing = now, false
		r.timer.running = false // Karn's rule
	}
	i, k, ok := r.locate(psn)
	if !ok || !r.At(i).brief() || !r.sendAgain(now, i, k, t) {
		return false
	}
	if !t.Packet.AckReq {
		t.Packet.AckReq = true
		r.asked(now, psn, true)
	}
	return true
}
