package qp

import (
	"roced/bth"
	"roced/mono"
	"roced/reorder"
)

// syncTracker is a tracker that knows of synchronise operations (MP-RDMA 3.4).
type syncTracker interface {
	// Early reports whether something before first is missing.
	Early(first bth.PSN) bool
	// Refuse records that psn was dropped.
	Refuse(psn bth.PSN)
}

// early refuses a packet of a synchronise operation that would touch memory before all
// before that operation has arrived (MP-RDMA 3.4).
func (r *extResponder) early(p *bth.Packet) bool {
	t, ok := r.trk.(syncTracker)
	if !ok || p.Ext.Flags&bth.XSync == 0 {
		return false
	}
	first := p.PSN
	if p.Ext.Flags&bth.XHasMsg != 0 {
		first = first.Add(-int(p.Ext.Offset))
	}
	if !t.Early(first) {
		return false
	}
	t.Refuse(p.PSN)
	return true
}

// keeper holds the early last packet of a WRITE until all before it has arrived, so that
// nobody finds the end of the data in memory before the rest (Eunomia, appendix A.1).
type keeper struct {
	full    bool
	psn     bth.PSN
	reth    bth.RETH
	payload []byte
}

// keeps reports whether p, which is early, is one that the tracker may want kept.
func (r *extResponder) keeps(p *bth.Packet) bool {
	_, ok := r.trk.(reorder.LastKeeper)
	return ok && r.kept.payload != nil && p.Opcode.IsWrite() && p.Opcode.Ends() && !p.Opcode.HasImm()
}

// keep takes p and places it only if the tracker does not want it kept.
func (r *extResponder) keep(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	if f := r.checkWrite(p); f != nil {
		return f.drop
	}
	n, h := len(p.Payload), &p.RETH
	if n > 0 && !r.q.host.CheckRemote(h.RKey, h.VA, uint32(n), AccessRemoteWrite) {
		return DropAccess
	}
	before := r.trk.Expected()
	v, _ := r.trk.Receive(p.PSN, 1, reorder.Last)
	r.acks.push(answerTo(r.trk.Feedback(), p, m, r.perPacket), r.perPacket)
	if v == reorder.Beyond {
		return DropOutOfOrder
	}
	if psn, ok := r.trk.(reorder.LastKeeper).Kept(); !ok || psn != p.PSN {
		if n > 0 && !r.q.host.WriteRemote(h.RKey, h.VA, p.Payload) {
			r.refuse(now, p.PSN, badAccess)
			return DropAccess
		}
		r.release(now, before, true)
		return Accepted
	}
	k := &r.kept
	k.full, k.psn, k.reth = true, p.PSN, p.RETH
	k.payload = append(k.payload[:0], p.Payload...)
	r.release(now, before, true)
	return Accepted
}

// placeKept places the packet that is kept once its turn has come.
func (r *extResponder) placeKept() *refusal {
	k := &r.kept
	if !k.full || !k.psn.Before(r.trk.Expected()) {
		return nil
	}
	k.full = false
	if n := len(k.payload); n > 0 && (!r.q.host.CheckRemote(k.reth.RKey, k.reth.VA, uint32(n), AccessRemoteWrite) ||
		!r.q.host.WriteRemote(k.reth.RKey, k.reth.VA, k.payload)) {
		return badAccess
	}
	return nil
}
