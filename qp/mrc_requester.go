package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// mrcRequester is the senderPolicy of MRC. SACKs move the window. Transport ACKs complete messages; they count as the
// responses of extendedPolicy. A request thus has one PSN of each kind for each packet.
//
// Probes request a SACK when acknowledgements are missing. If all packets have arrived and only a Transport ACK is missing,
// the last packet is retransmitted instead.
type mrcRequester struct {
	*extendedPolicy
	rec        *retrans.MRC
	evs        *path.MRC // nil: the connection's one path
	acked      uint32    // messages that Transport ACKs have reported
	immediates int       // WRITEs with immediate data that they have not reported
	retriedAt  mono.Time // last retry without outstanding packets
	probe      uint16    // number of the last probe
	probedAt   mono.Time // when it was sent
	solicited  solicitation
}

// solicitation is the last packet that was sent to obtain an acknowledgement: a probe, or the last packet again.
type solicitation struct {
	at   mono.Time
	port uint16 // its UDP source port; 0: acknowledged, or without an entropy value
}

// start implements senderPolicy.
func (x *mrcRequester) start(psn bth.PSN) {
	x.extendedPolicy.start(psn)
	x.q.x.mrc.endpoint.Reset()
	*x = mrcRequester{extendedPolicy: x.extendedPolicy, rec: x.rec, evs: x.evs, probe: x.probe}
}

// avoid implements router.
func (x *mrcRequester) avoid(psn bth.PSN) {
	if x.evs != nil {
		x.evs.Avoid(x.rec.Port(psn))
	}
}

// routed implements router.
func (x *mrcRequester) routed(p *bth.Packet, vp uint32) {
	port, _ := bth.SplitEntropy(vp)
	x.rec.SetPort(p.PSN, port)
}

// spans implements senderPolicy.
func (*mrcRequester) spans(n uint32, _ bool) (span, rspan uint32) { return n, n }

// mayLeave implements senderPolicy.
func (x *mrcRequester) mayLeave(s *slot) bool {
	return x.q.req.hasRoom() && (s.sent > 0 || s.wqe.Opcode != WRWriteImm || x.immediates < x.rec.MaxImmediates())
}

// stamp implements senderPolicy.
func (x *mrcRequester) stamp(now mono.Time, s *slot, k uint32, retransmit bool, p *bth.Packet) {
	if s.sent == 0 {
		if x.number(s); s.wqe.Opcode == WRWriteImm {
			x.immediates++
		}
	}
	w, done := &s.wqe, k*x.q.mtu
	p.RETH = bth.RETH{VA: w.RemoteVA + uint64(done), RKey: w.RKey, Length: w.Length}
	p.METH = bth.METH{MSN: uint16(s.msn), RQMSN: uint16(s.sn)}
	p.ReTx, p.Stamped, p.TSETH = retransmit, true, mrc.Stamp(now)
}

// requestsAck implements senderPolicy: as in RC, and when the peer's limits stop the sender. Retransmissions are acknowledged
// in any case.
func (x *mrcRequester) requestsAck(now mono.Time, ends, retransmit bool) bool {
	r := &x.q.req
	return !retransmit && (standardPolicy{r}.requestsAck(now, ends, false) || !r.hasRoom() || x.immediates >= x.rec.MaxImmediates())
}

// onAckReq implements senderPolicy.
func (x *mrcRequester) onAckReq(now mono.Time) { x.q.req.since, x.q.req.tail.due = now, false }

// idle reports whether the peer has acknowledged all packets and messages.
func (x *mrcRequester) idle() bool {
	r := &x.q.req
	return r.outstanding() == 0 && r.cursor == r.Head
}

// pollProbe implements senderPolicy: a probe is due, or no other packet may leave and no outstanding one has requested an
// acknowledgement.
func (x *mrcRequester) pollProbe(now mono.Time, t *Transmit) bool {
	r := &x.q.req
	n := r.outstanding()
	if x.q.Blocked() || !x.q.sending() || !r.tail.due && (n == 0 || r.acks.pending()) || x.idle() || r.pace.Waiting || !r.pace.Ready(now) {
		return false
	}
	if r.tail.due {
		r.tail.sent++
	}
	r.since, r.tail.due = now, false
	t.Path = x.solicit(now)
	if n == 0 {
		psn := r.At(r.cursor - 1).end().Add(-1)
		i, k, ok := r.locate(psn)
		return ok && r.resend(now, i, k, t)
	}
	x.probe, x.probedAt = x.probe+1, now
	p := &t.Packet
	x.q.headerMRC(p, bth.OpcodeMRCProbe, bth.PSN{})
	p.AckReq = true
	p.PETH = bth.PETH{ProbeID: x.probe, TSETH: mrc.Stamp(now)}
	p.PETH.SrcContext, p.PETH.DestContext = x.q.contexts()
	r.recordAckReq(now, r.nxt.Add(-1), true)
	x.rec.Probed()
	return true
}

// solicit returns the path of a packet that is sent to obtain an acknowledgement. If the last such packet was not
// acknowledged in time, its entropy value is bad.
//
// Choice: sources name timeouts of data only. Later SACKs report packets whose own SACK is lost. So data never times out
// when only the reverse path has failed.
func (x *mrcRequester) solicit(now mono.Time) uint32 {
	s := &x.solicited
	if s.port != 0 && now.Sub(s.at) >= x.pto() {
		x.evs.Lost(now, s.port)
	}
	vp := x.path(now)
	if *s = (solicitation{at: now}); x.evs != nil {
		s.port, _ = bth.SplitEntropy(vp)
	}
	return vp
}

// path returns the path of a packet without data. Paths count it like data.
func (x *mrcRequester) path(now mono.Time) uint32 {
	s := &x.q.req.sender
	if s.onePath {
		return 0
	}
	vp, _ := s.paths.Next(now, path.Window{})
	s.paths.OnSent(now, path.Window{})
	return vp
}

// receive implements senderPolicy.
func (x *mrcRequester) receive(now mono.Time, p *bth.Packet, _ arrival) Drop {
	if p.Opcode.IsAck() {
		return x.transportAck(now, p)
	}
	r, f := &x.q.req, &x.q.scratch.feedback
	mrc.Decode(p, r.una, f)
	switch {
	case !r.recent(f.Expected), f.HasSACK && !r.recent(f.SACK), f.Refused && f.SACK.Since(r.una) >= r.outstanding():
		return DropStaleAck
	case f.Receiver.Reason == uint8(bth.MRCUnexpected):
		return x.failPacket(now, f.SACK, StatusRemOpErr)
	}
	if port, _ := bth.SplitEntropy(f.VP); port == x.solicited.port {
		x.solicited.port = 0
	}
	if f.ProbeReply = f.ProbeReply && f.ProbeID == x.probe; !f.Refused {
		r.since, r.tail.due = now, false
	}
	if out := r.feedback(now, f, p, x.measure(now, f, p)); out.Delivered > 0 {
		r.tail.sent = 0 // una stays while the oldest packet is missing
	}
	r.paths.OnAck(now, f, r.q.scratch.rtt, path.Window{})
	return Accepted
}

// transportAck takes a Transport ACK or NAK. Messages complete by their number.
func (x *mrcRequester) transportAck(now mono.Time, p *bth.Packet) Drop {
	r, s := &x.q.req, p.AETH.Syndrome
	n, outstanding := (p.AETH.MSN-x.acked)&mask24, p.PSN.Since(r.rdone) < r.nxt.Since(r.rdone)
	switch {
	case n > r.cursor-r.Head, !outstanding && !(s.IsACK() && r.recent(p.PSN)):
		return DropStaleAck
	case n > 0:
		x.complete(now, n, p)
	}
	if s.IsACK() || !x.q.sending() {
		return Accepted
	}
	return x.refused(now, p)
}

// refused takes a NAK. The requests before the refused one are complete only if Transport ACKs have said so.
func (x *mrcRequester) refused(now mono.Time, p *bth.Packet) Drop {
	c, status := x.q.ctr, StatusRemOpErr
	switch p.AETH.Syndrome {
	case bth.SyndromeInvalidRequest:
		c.ReqRemoteInvalidRequest++
		status = StatusRemInvReqErr
	case bth.SyndromeRemoteAccessErr:
		c.ReqRemoteAccessErrors++
		status = StatusRemAccessErr
	case bth.SyndromeRemoteOpErr:
	default:
		return DropOpcode
	}
	return x.failPacket(now, p.PSN, status)
}

// failPacket breaks the queue pair because of the request to which psn belongs.
func (x *mrcRequester) failPacket(now mono.Time, psn bth.PSN, status Status) Drop {
	r := &x.q.req
	i, _, ok := r.locate(psn)
	if !ok {
		return DropStaleAck
	}
	return r.failRequest(now, r.At(i), status, Accepted)
}

// complete records that the peer has executed the n oldest messages, and thus received their packets.
func (x *mrcRequester) complete(now mono.Time, n uint32, p *bth.Packet) {
	r := &x.q.req
	for i := range n {
		if r.At(r.Head+i).wqe.Opcode == WRWriteImm {
			x.immediates--
		}
	}
	x.acked = (x.acked + n) & mask24
	if r.rdone = r.At(r.Head + n - 1).end(); r.rdone.After(r.una) {
		r.timer.stop()
		r.cumulative(now, r.rdone, false, p)
		return
	}
	x.rec.RestartRetries()
	r.restartRetries(now)
	r.retire(now)
}

// measure returns the round-trip time of the packet that triggered a SACK, zero if its timestamp is invalid. The timestamp
// identifies the transmission that the SACK answers, unless timestamps have wrapped since the first one.
func (x *mrcRequester) measure(now mono.Time, f *reorder.Feedback, p *bth.Packet) time.Duration {
	r := &x.q.req
	r.timer.stop()
	if !f.Receiver.Reported || p.SETH.ProbeReply && !f.ProbeReply {
		return 0
	}
	age := x.rec.Since(now, p.SETH.AckPSN())
	if p.SETH.ProbeReply {
		age = now.Sub(x.probedAt)
	}
	rtt := ccalgo.EchoedRTT(now, now.Add(-age), f.Timestamp)
	if rtt > 0 {
		r.tail.rtt.add(rtt)
	}
	return rtt
}

// configure implements senderPolicy.
func (x *mrcRequester) configure() {
	x.extendedPolicy.configure()
	if x.q.x.mrc.modified&mrc.AttrRetryCnt == 0 {
		x.rec.SetRetries(int(x.q.attr.RetryCnt))
	}
}

// resume implements senderPolicy: messages have been executed, so that a Transport ACK is due.
func (x *mrcRequester) resume(mono.Time) { x.q.x.mrc.onExecuted() }

// onProgress implements senderPolicy.
func (x *mrcRequester) onProgress(time.Duration) { x.q.req.tail.sent, x.q.req.tail.due = 0, false }

// onLoss implements senderPolicy.
func (x *mrcRequester) onLoss(now mono.Time) {
	if x.rec.Exhausted() && !x.q.toleratesSilence(now) {
		x.q.ctr.RetryExceededErr++
		x.q.req.fail(now, StatusRetryExcErr)
	}
}

// steadyProbes is the number of probes at equal distances. maxProbeShift limits the doublings of the distance afterwards.
const (
	steadyProbes  = 8
	maxProbeShift = 6
)

// pto returns the probe timeout: three round trips, as UET's model has, or more if they vary. Software needs TailProbe.
// Before the first round trip has been measured, it is a part of the ACK timeout.
func (x *mrcRequester) pto() time.Duration {
	q, trip := x.q, &x.q.req.tail.rtt
	if trip.mean == 0 {
		return max(q.cfg.Tuning.TailProbe, q.ackTimeout()/probesPerTimeout)
	}
	mean := time.Duration(trip.mean)
	return max(3*mean, mean+4*time.Duration(trip.spread), q.cfg.Tuning.TailProbe)
}

// deadline implements senderPolicy.
func (x *mrcRequester) deadline() mono.Time {
	return x.probeDeadline().Min(x.q.x.mrc.endpoint.Deadline(x.idle()))
}

// probeDeadline returns the time of the next probe.
//
// Choice: UET's model sends the first probe after three round trips and others after five. Here the distance doubles after
// eight probes, because software may be late.
func (x *mrcRequester) probeDeadline() mono.Time {
	t, wait := &x.q.req.tail, x.pto()
	if t.due || wait == 0 || x.idle() {
		return mono.Never
	}
	return x.q.req.since.Add(wait << min(max(t.sent+1, steadyProbes)-steadyProbes, maxProbeShift))
}

// onDeadline implements senderPolicy: pollProbe sends the probe. A missing Transport ACK uses a retry in each ACK timeout,
// because no packet has a timer then.
func (x *mrcRequester) onDeadline(now mono.Time) {
	x.q.x.mrc.endpoint.OnDeadline(now)
	if now < x.probeDeadline() {
		return
	}
	r, limit := &x.q.req, x.rec.Timeout()
	r.tail.due = true
	if r.outstanding() == 0 && limit > 0 && now.Sub(x.retriedAt) >= limit {
		x.retriedAt = now
		x.rec.UseRetry()
		x.onLoss(now)
	}
}
