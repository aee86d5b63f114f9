package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// mrc is the part of a queue pair that speaks MRC (bth/mrc.go). docs/design/transports.md has its mechanisms.
type mrc struct {
	mrcResponder
	out  mrcRequester
	ends endpoint

	attr, first MRCAttr // now, and when the queue pair was created
	given       MRCMask // attributes of ModifyMRC
	plugins     MRCPlugins
}

// newMRC makes the part of q. It replaces plug-ins that are not of MRC, because its packets suit no others.
func newMRC(q *QP, p *Profile) *mrc {
	trk, ok := p.Tracker.(*reorder.MRC)
	if !ok {
		trk = reorder.NewMRC(minMPR)
	}
	rec, ok := p.Recovery.(*retrans.MRC)
	if !ok {
		rec = retrans.NewMRC(minMPR)
	}
	p.Tracker, p.Recovery = trk, rec
	x := &mrc{mrcResponder: mrcResponder{anyOrder: &q.x.anyOrder, trk: trk}, out: mrcRequester{extendedPolicy: &q.x.out, rec: rec}}
	x.ends.q = q
	x.follow(p.Paths)
	x.own(p)
	return x
}

// follow lets the entropy values of paths, if it has some, learn of losses and ports.
func (x *mrc) follow(paths path.Selector) {
	evs, _ := paths.(*path.MRC)
	x.out.evs, x.ends.evs = evs, evs
	if evs != nil {
		x.out.rec.OnLoss(evs.Lost)
	} else {
		x.out.rec.OnLoss(nil)
	}
}

// pending reports whether the queue pair has an acknowledgement or an endpoint request to send.
func (x *mrc) pending() bool { return x.mrcResponder.pending() || x.ends.pending() }

// requestsFirst implements admission: acknowledgements go first because they clock the peer.
func (x *mrc) requestsFirst() int {
	if x.pending() {
		return 0
	}
	return nothingDue
}

// poll implements admission.
func (x *mrc) poll(now mono.Time, t *Transmit) bool {
	return x.mrcResponder.poll(t) || x.ends.poll(now, t)
}

// minMPR is the smallest maximum PSN range, in bth.MRCRangeUnit.
const minMPR = 8

// mrc returns the part of q that speaks MRC, nil for other transports.
func (q *QP) mrc() *mrc {
	if q.x == nil {
		return nil
	}
	return q.x.mrc
}

// receive takes a packet of MRC.
func (x *mrc) receive(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	q := x.out.q
	switch o := p.Opcode; {
	case m.Trim != Whole && x.attr.Cap&MRCNoTrimNACK != 0:
		return DropLength
	case m.Trim != Whole:
		x.trimmed(p, arrival{m.CE, m.Path}, m.Trim)
		return DropLength
	case o.IsWrite():
		x.number(p)
		return q.resp.receive(now, p, m)
	case o.IsProbe():
		return x.probed(p, m)
	case o == bth.OpcodeMRCEndpointResponse:
		return x.ends.answered(p)
	case !o.IsResponse():
		return DropOpcode
	case !q.sending():
		return DropState
	}
	return x.out.receive(now, p, arrival{m.CE, m.Path})
}

// Trim says whether a switch has removed the payload of a WRITE of MRC.
type Trim uint8

// Values of Trim.
const (
	Whole Trim = iota
	Trimmed
	TrimmedLastHop // by the switch of the last link
)
