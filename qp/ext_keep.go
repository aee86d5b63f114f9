package qp

import (
	"roced/bth"
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

// maxKept is how many early last packets of WRITEs are kept; the next one is refused.
const maxKept = 16

// keeper holds, in host memory, early last packets of WRITEs until all before them has
// arrived, so that nobody finds the end of the data in memory before the rest (Eunomia,
// appendix A.1).
type keeper struct {
	wanted  bool
	packets []kept // the first n of them by PSN, then those whose memory is free
	n       int
}

type kept struct {
	psn     bth.PSN
	reth    bth.RETH
	payload []byte
}

// keeps reports whether p, which is early, must not be placed yet.
func (r *extResponder) keeps(p *bth.Packet) bool {
	return r.kept.wanted && p.Opcode.IsWrite() && p.Opcode.Ends() && !p.Opcode.HasImm()
}

// keep takes p, to place it later.
func (r *extResponder) keep(p *bth.Packet, m RxMeta) Drop {
	if f := r.checkWrite(p); f != nil {
		return f.drop
	}
	if n := uint32(len(p.Payload)); n > 0 && !r.q.host.CheckRemote(p.RETH.RKey, p.RETH.VA, n, AccessRemoteWrite) {
		return DropAccess
	}
	if r.kept.n == maxKept {
		r.trk.(reorder.LastKeeper).Refuse(p.PSN)
		r.acks.push(answerTo(r.trk.Feedback(), p, m, r.perPacket), r.perPacket)
		return DropOutOfOrder
	}
	if !r.track(p, m) {
		return DropOutOfOrder
	}
	r.kept.add(p)
	return Accepted
}

func (k *keeper) add(p *bth.Packet) {
	if k.n == len(k.packets) {
		k.packets = append(k.packets, kept{})
	}
	i := k.n
	k.n++
	for e := &k.packets[i]; i > 0 && k.packets[i-1].psn.After(p.PSN); i-- {
		k.packets[i-1], *e = *e, k.packets[i-1]
		e = &k.packets[i-1]
	}
	e := &k.packets[i]
	e.psn, e.reth, e.payload = p.PSN, p.RETH, append(e.payload[:0], p.Payload...)
}

// pop takes the oldest packet away; its memory is good until the next add.
func (k *keeper) pop() kept {
	e := k.packets[0]
	copy(k.packets, k.packets[1:k.n])
	k.n--
	k.packets[k.n] = e
	return e
}

// placeKept places the packets that are kept and whose turn has come. If one cannot be
// placed any more, it returns its PSN and why.
func (r *extResponder) placeKept() (bth.PSN, *refusal) {
	for k := &r.kept; k.n > 0 && k.packets[0].psn.Before(r.trk.Expected()); {
		e := k.pop()
		if n := len(e.payload); n > 0 && (!r.q.host.CheckRemote(e.reth.RKey, e.reth.VA, uint32(n), AccessRemoteWrite) ||
			!r.q.host.WriteRemote(e.reth.RKey, e.reth.VA, e.payload)) {
			return e.psn, badAccess
		}
	}
	return bth.PSN{}, nil
}
