package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
)

// endpoint sends the endpoint requests of a queue pair: EV probes, and the status of the NIC's ports. They go to the peer's
// queue pair bth.MRCEndpointQPN. The NIC passes the responses to the queue pair that has sent the requests.
type endpoint struct {
	q   *QP
	evs *path.MRC // nil: no probes

	ports  uint32    // port status: bit n is set if port n is up
	seq    uint8     // number of the port status
	sends  uint8     // times that it is still sent unless it is answered
	due    bool      // it is to be sent now
	sentAt mono.Time // for the last time
}

// A port status is sent statusSends times, statusInterval apart, until the peer answers it.
//
// Choice: the sources have no retransmission of a port status.
const (
	statusSends    = 8
	statusInterval = time.Millisecond
)

// statusRequest marks the number of a port status. That of an EV probe has 15 bits.
const statusRequest = 1 << 15

// SetPorts tells the queue pair which ports of its NIC are up, by a bit for each. With MRC the entropy values of the others
// are used no more, and the peer is told.
func (q *QP) SetPorts(now mono.Time, mask uint32) {
	x := q.mrc()
	if x == nil || q.state < RTR || q.state > SQE {
		return
	}
	q.touch()
	e := &x.ends
	e.ports, e.sends, e.due = mask, statusSends, true
	e.seq++
	if e.evs != nil {
		e.evs.SetPorts(now, mask)
	}
}

// PeerPorts takes the port status of the peer.
func (q *QP) PeerPorts(now mono.Time, mask uint32) {
	if x := q.mrc(); x != nil && x.ends.evs != nil {
		q.touch()
		x.ends.evs.SetPorts(now, mask)
	}
}

// Endpoints reports whether the queue pair has endpoint operations: it speaks MRC.
func (q *QP) Endpoints() bool { return q.mrc() != nil }

// reset drops the port status.
func (e *endpoint) reset() { *e = endpoint{q: e.q, evs: e.evs, seq: e.seq} }

// pending reports whether a request is to be sent.
func (e *endpoint) pending() bool {
	return e.due && e.q.state >= RTR && e.q.state <= SQE || e.evs != nil && e.q.sending() && e.evs.ProbeWaits()
}

// poll fills t with the next request.
func (e *endpoint) poll(now mono.Time, t *Transmit) bool {
	if !e.pending() {
		return false
	}
	p := &t.Packet
	op, id, mask := bth.MRCEVProbe, uint16(0), uint32(0)
	if e.due {
		op, id, mask = bth.MRCPortStatus, statusRequest|uint16(e.seq), e.ports
		e.due, e.sentAt = false, now
		e.sends--
		t.Path = e.q.x.mrc.out.path(now)
	} else {
		t.Path, id, _ = e.evs.NextProbe()
	}
	e.q.headerMRC(p, bth.OpcodeMRCEndpointRequest, bth.MakePSN(uint32(id)))
	p.DestQP = bth.MRCEndpointQPN
	p.ERTH = bth.ERTH{Op: op, PortMask: mask, TSETH: bth.TSETH{Timestamp: stampMRC(now), Format: bth.MRCFormatTimestamp}}
	return true
}

// answered takes the response to a request.
func (e *endpoint) answered(p *bth.Packet) Drop {
	id := uint16(p.PSN.Uint32())
	switch {
	case id&statusRequest == 0 && e.evs != nil:
		e.evs.Answered(id)
	case id == statusRequest|uint16(e.seq):
		e.sends = 0
	default:
		return DropStaleAck
	}
	return Accepted
}

// deadline returns when onDeadline is due. waits: the peer has yet to acknowledge something. Idle queue pairs probe nothing.
func (e *endpoint) deadline(waits bool) mono.Time {
	t := mono.Never
	if e.sends > 0 && !e.due {
		t = e.sentAt.Add(statusInterval)
	}
	if waits && e.evs != nil {
		t = t.Min(e.evs.ProbesDue())
	}
	return t
}

// onDeadline makes the requests due whose time has come.
func (e *endpoint) onDeadline(now mono.Time) {
	e.due = e.due || e.sends > 0 && now >= e.sentAt.Add(statusInterval)
	if e.evs != nil {
		e.evs.BeginProbes(now)
	}
}
