package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// mrcExtension is the part of a queue pair that speaks MRC (bth/mrc.go). docs/design/transports.md has its mechanisms.
type mrcExtension struct {
	mrcResponder
	out      mrcRequester
	endpoint mrc.Endpoint

	attr, initial mrc.Attr // now, and when the queue pair was created
	modified      mrc.Mask // attributes of ModifyMRC
	plugins       mrc.Plugins
}

// newMRC makes the part of q. It replaces plug-ins that are not of MRC, because its packets suit no others.
func newMRC(q *QP, p *Profile) *mrcExtension {
	trk, ok := p.Tracker.(*reorder.MRC)
	if !ok {
		trk = reorder.NewMRC(minMPR)
	}
	rec, ok := p.Recovery.(*retrans.MRC)
	if !ok {
		rec = retrans.NewMRC(minMPR)
	}
	p.Tracker, p.Recovery = trk, rec
	x := &mrcExtension{out: mrcRequester{extendedPolicy: &q.x.out, rec: rec}}
	x.mrcResponder = mrcResponder{anyOrder: &q.x.anyOrder, trk: trk, sacks: mrc.MakeSACKs(trk, q.cfg.Tuning.ackDepth())}
	x.usePaths(p.Paths)
	x.attr = mrc.AttrOf(trk, rec)
	x.initial, x.plugins = x.attr, mrc.Plugins{Paths: p.Paths, Controller: p.Controller}
	return x
}

// usePaths reports losses and ports to the entropy values of paths, if it has some.
func (x *mrcExtension) usePaths(paths path.Selector) {
	evs, _ := paths.(*path.MRC)
	x.out.evs, x.endpoint.EVs = evs, evs
	if evs != nil {
		x.out.rec.OnLoss(evs.Lost)
	} else {
		x.out.rec.OnLoss(nil)
	}
}

// endpointPending reports whether an endpoint request is to be sent.
func (x *mrcExtension) endpointPending() bool {
	return x.out.q.receiving() && x.endpoint.Pending(x.out.q.sending())
}

// requestsFirst implements admission: acknowledgements go first because they clock the peer.
func (x *mrcExtension) requestsFirst() int {
	if x.pending() || x.endpointPending() {
		return 0
	}
	return nothingDue
}

// poll implements admission.
func (x *mrcExtension) poll(now mono.Time, t *Transmit) bool {
	return x.mrcResponder.poll(t) || x.endpointPending() && x.pollEndpoint(now, t)
}

// pollEndpoint fills t with the next endpoint request.
func (x *mrcExtension) pollEndpoint(now mono.Time, t *Transmit) bool {
	p := &t.Packet
	id, vp, probe := x.endpoint.Next(now, &p.ERTH)
	if t.Path = vp; !probe {
		t.Path = x.out.path(now)
	}
	x.out.q.headerMRC(p, bth.OpcodeMRCEndpointRequest, bth.MakePSN(uint32(id)))
	p.DestQP = bth.MRCEndpointQPN
	return true
}

// SetPorts sets a bit for each port of the NIC that is up. A queue pair of MRC stops using the entropy values of the others
// and sends a port status to the peer.
func (q *QP) SetPorts(now mono.Time, mask uint32) {
	if x := q.mrc(); x != nil && q.receiving() {
		q.touch()
		x.endpoint.SetPorts(now, mask)
	}
}

// ShareProbes bounds the EV probes of the NIC to one peer, to which n queue pairs are connected.
func (q *QP) ShareProbes(n *int) {
	if x := q.mrc(); x != nil && x.endpoint.EVs != nil {
		x.endpoint.EVs.ShareProbes(n)
	}
}

// VerifyPorts takes the port status of the peer, of which the ports before are believed. It returns false if the queue pair
// cannot verify it. BelievedPorts has the result.
func (q *QP) VerifyPorts(now mono.Time, before, mask uint32) bool {
	x := q.mrc()
	if x == nil || x.endpoint.EVs == nil || !q.receiving() {
		return false
	}
	q.touch()
	x.endpoint.Verify(now, before, mask)
	return true
}

// BelievedPorts returns the ports of the peer after their verification, once.
func (q *QP) BelievedPorts() (mask uint32, ok bool) {
	if x := q.mrc(); x != nil {
		return x.endpoint.Believed()
	}
	return 0, false
}

// PeerPorts takes the port status of the peer, which is believed.
func (q *QP) PeerPorts(now mono.Time, mask uint32) {
	if x := q.mrc(); x != nil {
		q.touch()
		x.endpoint.PeerPorts(now, mask)
	}
}

// Endpoints reports whether the queue pair has endpoint operations: it speaks MRC.
func (q *QP) Endpoints() bool { return q.mrc() != nil }

// minMPR is the smallest maximum PSN range, in bth.MRCRangeUnit.
const minMPR = 8

// mrc returns the part of q that speaks MRC, nil for other transports.
func (q *QP) mrc() *mrcExtension {
	if q.x == nil {
		return nil
	}
	return q.x.mrc
}

// receive takes a packet of MRC.
func (x *mrcExtension) receive(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	q := x.out.q
	switch o := p.Opcode; {
	case m.Trim != mrc.Whole:
		if x.attr.Cap&mrc.NoTrimNACK == 0 {
			x.sacks.AnswerTrimmed(p, mrc.Marks{CE: m.CE, Path: m.Path}, m.Trim)
		}
		return DropLength
	case o.IsWrite():
		x.number(p)
		return q.resp.receive(now, p, m)
	case o.IsProbe():
		x.sacks.AnswerProbe(p, mrc.Marks{CE: m.CE, Path: m.Path})
		return Accepted
	case o == bth.OpcodeMRCEndpointResponse:
		if !x.endpoint.Answered(p) {
			return DropStaleAck
		}
		return Accepted
	case !o.IsResponse():
		return DropOpcode
	case !q.sending():
		return DropState
	}
	return x.out.receive(now, p, arrival{m.CE, m.Path})
}

// headerMRC sets the fields of the BTH that packets of MRC have.
func (q *QP) headerMRC(p *bth.Packet, op bth.Opcode, psn bth.PSN) {
	q.header(p, op, psn)
	p.ReTx, p.Stamped = false, false
}

// contexts returns the spdcid and dpdcid of a packet.
//
// Choice: one source has the low halves of the queue pair numbers. They are ignored on receipt.
func (q *QP) contexts() (src, dest uint16) { return uint16(q.cfg.QPN), uint16(q.attr.DestQPN) }
