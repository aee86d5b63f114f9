package mrc

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
)

// Endpoint makes the endpoint requests of a queue pair: EV probes, and the status of the NIC's ports. They go to the peer's
// queue pair bth.MRCEndpointQPN. The NIC passes the responses to the queue pair that has sent the requests.
type Endpoint struct {
	EVs *path.MRC // nil: no probes

	ports  uint32    // port status: bit n is set if port n is up
	seq    uint8     // number of the port status
	sends  uint8     // times that it is still sent unless it is answered
	due    bool      // it is to be sent now
	sentAt mono.Time // for the last time

	challenge challenge
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

// SetPorts makes a port status due, with a bit for each port that is up. The entropy values of other ports are no longer used.
func (e *Endpoint) SetPorts(now mono.Time, mask uint32) {
	e.ports, e.sends, e.due = mask, statusSends, true
	e.seq++
	e.PeerPorts(now, mask)
}

// PeerPorts takes the port status of the peer, which is believed.
func (e *Endpoint) PeerPorts(now mono.Time, mask uint32) {
	if e.EVs != nil {
		e.EVs.SetPorts(now, mask)
	}
}

// Reset drops port statuses.
func (e *Endpoint) Reset() {
	*e = Endpoint{EVs: e.EVs, seq: e.seq, challenge: challenge{seq: e.challenge.seq, next: e.challenge.next}}
}

// Pending reports whether a request is to be sent. Only a queue pair that sends may probe.
func (e *Endpoint) Pending(sending bool) bool {
	return e.due || e.challenge.lastDue || sending && e.EVs != nil && e.EVs.ProbeWaits()
}

// Next sets h to the next request and returns its number. The number goes into the PSN. A probe leaves on the path vp, a port
// status on any. Pending must have returned true.
func (e *Endpoint) Next(now mono.Time, h *bth.ERTH) (id uint16, vp uint32, probe bool) {
	*h = bth.ERTH{Op: bth.MRCEVProbe, TSETH: Stamp(now)}
	switch {
	case e.due:
	case e.challenge.lastDue:
		id, plane := e.challenge.nextProbe(now)
		return id, e.EVs.InPlane(plane), true
	default:
		vp, id, _ = e.EVs.NextProbe()
		return id, vp, true
	}
	h.Op, h.PortMask = bth.MRCPortStatus, e.ports
	e.due, e.sentAt = false, now
	e.sends--
	return statusRequest | uint16(e.seq), 0, false
}

// Answered takes the response p to a request. It returns false if the request is not outstanding.
func (e *Endpoint) Answered(p *bth.Packet) bool {
	id := uint16(p.PSN.Uint32())
	switch {
	case id&statusRequest == 0 && e.EVs != nil:
		e.EVs.Answered(id)
	case id == statusRequest|uint16(e.seq):
		e.sends = 0
	case id&challengeRequest == challengeRequest:
		return e.challenge.answer(id &^ challengeRequest)
	default:
		return false
	}
	return true
}

// Deadline returns when OnDeadline is due. An idle queue pair, which expects no acknowledgement, sends no probes.
func (e *Endpoint) Deadline(idle bool) mono.Time {
	t := e.challenge.deadline()
	if e.sends > 0 && !e.due {
		t = t.Min(e.sentAt.Add(statusInterval))
	}
	if !idle && e.EVs != nil {
		t = t.Min(e.EVs.ProbesDue())
	}
	return t
}

// OnDeadline makes requests due.
func (e *Endpoint) OnDeadline(now mono.Time) {
	e.due = e.due || e.sends > 0 && now >= e.sentAt.Add(statusInterval)
	e.challenge.onDeadline(now)
	if e.EVs != nil {
		e.EVs.BeginProbes(now)
	}
}
