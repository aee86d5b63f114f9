package nic

import (
	"cmp"
	"math"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// telemetry returns where switches record the telemetry of a packet, nil if it has none.
func (k *part) telemetry(d *fabric.Packet) *ccalgo.Telemetry {
	if k.slab.at(d.Ref).flags&recorded == 0 {
		return nil
	}
	return k.slab.telemetryOf(d.Ref)
}

// toReturn returns the telemetry that q's next acknowledgement returns, nil if q has not received any.
func (n *NIC) toReturn(q *QP) *ccalgo.Telemetry {
	if slot := int(q.num & slotMask); slot < len(n.returned) {
		return &n.returned[slot]
	}
	return nil
}

// instrument gives a new packet of q room for telemetry if it is a request, or the telemetry to return if it is an
// acknowledgement.
func (n *NIC) instrument(q *QP, ref uint32, p *parcel) {
	room := n.k.slab.telemetryOf(ref)
	t := n.toReturn(q)
	switch {
	case p.opcode.IsRequest() && q.core.NeedsTelemetry():
		p.flags |= recorded
		*room = ccalgo.Telemetry{}
	case p.opcode.IsAck() && t != nil && t.N > 0:
		p.flags |= returns
		*room = *t
		t.N = 0
	default:
		return
	}
	p.bytes += ccalgo.TelemetryBytes
}

// reset forgets the telemetry of a trimmed packet, which its sender is about to send again.
func (k *part) reset(ref uint32, p *parcel) {
	if p.flags&recorded != 0 {
		*k.slab.telemetryOf(ref) = ccalgo.Telemetry{}
	}
}

// instrumented takes the telemetry of a packet that has arrived for q. The latest request's is returned.
func (n *NIC) instrumented(now mono.Time, q *QP, ref uint32, p *parcel) {
	t := n.k.slab.telemetryOf(ref)
	if p.flags&returns != 0 {
		q.core.OnTelemetry(now, t)
		return
	}
	if more := int(q.num&slotMask) + 1 - len(n.returned); more > 0 {
		n.returned = append(n.returned, make([]ccalgo.Telemetry, more)...)
	}
	*n.toReturn(q) = *t
}

// pacedWith adds telemetry to the bytes that a queue pair's pacer counts.
func pacedWith(c *qp.Config) {
	if _, ok := c.Profile.Controller.(ccalgo.Telemetered); !ok {
		return
	}
	if c.DataHeader > 0 {
		c.DataHeader = uint8(min(int(c.DataHeader)+ccalgo.TelemetryBytes, math.MaxUint8))
	}
	overhead := max(int(cmp.Or(c.Tuning.LinkOverhead, linkBytes)), 0)
	c.Tuning.LinkOverhead = int8(min(overhead+ccalgo.TelemetryBytes, math.MaxInt8))
}
