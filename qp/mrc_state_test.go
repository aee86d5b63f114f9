package qp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// with returns c with attributes of MRC that both queue pairs get when they are created.
func (c pairConfig) with(t testing.TB, a mrc.Attr, m mrc.Mask) pairConfig {
	c.created = func(_ int, q *QP) {
		if err := q.ModifyMRC(a, m, mrc.Plugins{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// polled returns the packets that q sends at once.
func polled(p *pair, q *QP) (all []bth.Packet) {
	var tr Transmit
	for q.PollTransmit(p.now, &tr) {
		all = append(all, tr.Packet)
	}
	return all
}

// big is a request of 2048 packets.
func big() SendWQE {
	s := SGE{Addr: memBase, Length: 1 << 17, LKey: 1}
	return SendWQE{Opcode: WRWrite, Length: 1 << 19, RKey: 5, SGEs: []SGE{s, s, s, s}}
}

// TestMRCRangeAttr: MPR limits the packets in flight, MPR_DEST those that the responder takes. A dynamic range is in each
// SACK.
func TestMRCRangeAttr(t *testing.T) {
	c := mrcPair()
	c.unacked = 5000
	for _, mpr := range []uint8{1, 8, 15} {
		p := newPair(t, c.with(t, mrc.Attr{MPR: mpr, MPRDest: mpr, Cap: mrc.DynamicMPR}, mrc.AttrMPR|mrc.AttrMPRDest|mrc.AttrCap))
		q, peer := p.ends[0].q, p.ends[1].q
		p.ends[0].h.queue = append(p.ends[0].h.queue, big())
		q.Doorbell(p.now)
		limit := int(mpr) * bth.MRCRangeUnit
		if n := len(polled(p, q)); n != limit {
			t.Errorf("mpr %d: %d packets in flight, want %d", mpr, n, limit)
		}
		for _, n := range []int{limit - 1, limit} {
			in := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnly, PSN: bth.MakePSN(c.psn).Add(n), AckReq: true, METH: bth.METH{MSN: 9}}
			want, op := Accepted, bth.OpcodeMRCSACK
			if n == limit {
				want, op = DropOutOfOrder, bth.OpcodeMRCNACK
			}
			d, answers := peer.Receive(p.now, &in, RxMeta{}), polled(p, peer)
			if d != want || len(answers) != 1 || answers[0].Opcode != op || n < limit && answers[0].SETH.MPR != mpr {
				t.Errorf("mpr_dest %d: packet %d: %v, answers %+v", mpr, n, d, answers)
			}
		}
	}
}

// TestMRCImmediateAttr: max_wimm limits WRITEs with immediate data in flight. The responder refuses more than max_wimm_dest.
func TestMRCImmediateAttr(t *testing.T) {
	p := newPair(t, mrcPair().with(t, mrc.Attr{MaxWIMM: 3}, mrc.AttrMaxWIMM))
	l := newWorkload(p, 0)
	for range 10 {
		l.add(WRWriteImm, 100, 0, newRand())
	}
	if n := len(polled(p, p.ends[0].q)); n != 3 {
		t.Errorf("%d in flight", n)
	}
	c := mrcPair().with(t, mrc.Attr{MaxWIMMDest: 2}, mrc.AttrMaxWIMMDest)
	p = newPair(t, c)
	q := p.ends[1].q
	p.ends[1].h.recvs = make([]RecvWQE, 9)
	for i := range 3 { // the packet before them is missing
		in := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnlyImm, PSN: bth.MakePSN(c.psn).Add(i + 1), METH: bth.METH{MSN: uint16(i + 1), RQMSN: uint16(i)}}
		d, refused := q.Receive(p.now, &in, RxMeta{}), q.State() == Err
		if refused != (i == 2) {
			t.Errorf("WRITE %d with immediate data: %v, state %v", i, d, q.State())
		}
	}
}

// TestMRCRetryAttr: a peer that is gone is given up after the retries of the attributes, at their timeout. The standard
// attributes do not matter then.
func TestMRCRetryAttr(t *testing.T) {
	for _, c := range []struct {
		timeout, linear, exp uint8
		want                 time.Duration // in timeouts, the sum of all waits
	}{{7, 0, 0, 1}, {7, 2, 0, 3}, {9, 2, 2, 3 + 2 + 4}, {8, 0, 3, 1 + 2 + 4 + 8}} {
		a := mrc.Attr{Timeout: c.timeout, Linear: c.linear, Exponential: c.exp}
		conf := mrcPair()
		conf.profile = mrcProfile(nil, retrans.Params{"rto_us": 5})
		p := newPair(t, conf.with(t, a, mrc.AttrTimeout|mrc.AttrRetryCnt))
		p.faults = func(int, *bth.Packet) fault { return fault{drop: true} }
		newWorkload(p, 0).add(WRWrite, 1000, 0, newRand())
		p.run(t)
		unit := mrc.Duration(c.timeout)
		if cq := p.ends[0].h.sendCQ; len(cq) != 1 || cq[0].Status != StatusRetryExcErr || p.ends[0].q.State() != Err {
			t.Errorf("%+v: %+v", c, cq)
		}
		if took := time.Duration(p.now); took < c.want*unit || took > c.want*unit+unit/2+50*time.Microsecond {
			t.Errorf("%+v: given up after %v, want %v", c, took, c.want*unit)
		}
	}
	// Without Transport ACKs, the same retries count.
	p := newPair(t, mrcPair().with(t, mrc.Attr{Timeout: 9, Linear: 1, Exponential: 2}, mrc.AttrTimeout|mrc.AttrRetryCnt))
	p.faults = func(_ int, packet *bth.Packet) fault {
		return fault{drop: packet.Opcode == bth.TransportMRC|bth.OpAcknowledge}
	}
	newWorkload(p, 0).add(WRWrite, 10, 0, newRand())
	p.run(t)
	if cq := p.ends[0].h.sendCQ; len(cq) != 1 || cq[0].Status != StatusRetryExcErr {
		t.Errorf("without Transport ACKs: %+v", cq)
	}
	// A timeout without a limit on retries does not give up.
	q := newPair(t, mrcPair().with(t, mrc.Attr{Exponential: retrans.Forever}, mrc.AttrRetryCnt)).ends[0].q
	for range 1000 {
		q.mrc().out.rec.UseRetry()
	}
	if q.mrc().out.onLoss(1); q.State() != RTS {
		t.Error("retries forever have an end")
	}
}

// TestMRCNoTrimNACK: a responder with the capability mrc.NoTrimNACK answers no trimmed packet.
func TestMRCNoTrimNACK(t *testing.T) {
	for _, caps := range []mrc.Caps{0, mrc.NoTrimNACK} {
		c := mrcPair()
		p := newPair(t, c.with(t, mrc.Attr{Cap: caps}, mrc.AttrCap))
		in := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnly, PSN: bth.MakePSN(c.psn)}
		q := p.ends[1].q
		if d, n := q.Receive(p.now, &in, RxMeta{Trim: mrc.Trimmed}), len(polled(p, q)); d != DropLength || n != int(1-caps) {
			t.Errorf("cap %d: %v, %d answers", caps, d, n)
		}
	}
}

// TestMRCAttrs: attributes can be read back. Values out of range and changes in later states are refused with the name of
// the attribute, and change nothing. RESET restores the attributes of a new queue pair.
func TestMRCAttrs(t *testing.T) {
	fresh := func() *QP {
		return New(Config{Tuning: Software, Type: RC, QPN: 17, Host: newScriptHost(4096), MaxSendWR: 9, MaxSendSGE: 3,
			Profile: mrcProfile(reorder.Params{"mpr": 9, "max_wimm": 40, "dynamic_mpr": 1}, retrans.Params{"mpr": 12, "max_wimm": 50, "exponential_retries": 3})()})
	}
	all := mrc.Mask(1<<10-1) &^ (1 << 7)
	set := mrc.Attr{MPR: 1, MPRDest: mrc.MaxMPR, MaxWIMM: 1, MaxWIMMDest: mrc.MaxWIMM, Timeout: 24, Linear: 0, Exponential: 25, EVProfile: 1 << 63, CCProfile: 4, Cap: 7}
	q := fresh()
	first, _ := q.MRCAttr()
	if want := (mrc.Attr{MPR: 12, MPRDest: 9, MaxWIMM: 50, MaxWIMMDest: 40, Exponential: 3, Cap: mrc.DynamicMPR}); first != want {
		t.Errorf("created with %+v", first)
	}
	for _, c := range []struct {
		state State
		a     mrc.Attr
		m     mrc.Mask
		want  string
	}{
		{Reset, mrc.Attr{}, mrc.AttrMPR, "mpr 0: must be 1 to 64"},
		{Reset, mrc.Attr{MPR: 65}, mrc.AttrMPR, "mpr 65: must be 1 to 64"},
		{Reset, mrc.Attr{MPRDest: 255}, mrc.AttrMPRDest, "mpr_dest 255: must be 1 to 64"},
		{Reset, mrc.Attr{}, mrc.AttrMaxWIMM, "max_wimm 0: must be 1 to 32768"},
		{Reset, mrc.Attr{MaxWIMMDest: 32769}, mrc.AttrMaxWIMMDest, "max_wimm_dest 32769: must be 1 to 32768"},
		{Reset, mrc.Attr{Timeout: 25}, mrc.AttrTimeout, "timeout 25: must be 0 to 24"},
		{Reset, mrc.Attr{Linear: 8}, mrc.AttrRetryCnt, "linear_cnt 8: must be 0 to 7"},
		{Reset, mrc.Attr{Exponential: 26}, mrc.AttrRetryCnt, "exp_cnt 26: must be 0 to 25"},
		{Reset, mrc.Attr{Cap: 8}, mrc.AttrCap, "cap 8: must be 0 to 7"},
		{Reset, set, all | 1<<7, "attribute mask 0x3ff: the known bits are 0x37f"},
		{Reset, set, 1 << 31, "attribute mask 0x80000000"},
		{RTR, set, mrc.AttrMPRDest, "mpr_dest: the state is RTR; set it before RTR"},
		{RTR, set, mrc.AttrMaxWIMMDest, "max_wimm_dest: the state is RTR; set it before RTR"},
		{RTR, set, mrc.AttrCap, "cap: the state is RTR"},
		{RTR, set, mrc.AttrEVProfile, "ev_profile_id: the state is RTR"},
		{RTR, set, mrc.AttrCCProfile, "cc_profile_id: the state is RTR"},
		{RTS, set, mrc.AttrMPR, "mpr: the state is RTS; set it before RTS"},
		{RTS, set, mrc.AttrMaxWIMM, "max_wimm: the state is RTS"},
		{RTS, set, mrc.AttrTimeout, "timeout: the state is RTS"},
		{Err, set, mrc.AttrRetryCnt, "linear_cnt|exp_cnt: the state is ERR"},
	} {
		q := fresh()
		q.state = c.state
		err := q.ModifyMRC(c.a, c.m, mrc.Plugins{})
		if now, _ := q.MRCAttr(); err == nil || !strings.Contains(err.Error(), c.want) || now != first {
			t.Errorf("%v, %#x: %v, %+v; want %q", c.state, uint32(c.m), err, now, c.want)
		}
	}
	control, err := ccalgo.New("swift", nil)
	if err != nil {
		t.Fatal(err)
	}
	plug := mrc.Plugins{Paths: &path.Single{}, Controller: control}
	if err := q.ModifyMRC(set, all, plug); err != nil {
		t.Fatal(err)
	}
	if now, _ := q.MRCAttr(); now != set || q.req.ctl != plug.Controller || q.req.control == noControl {
		t.Errorf("now %+v", now)
	}
	if err := q.Modify(0, Attr{}, AttrState); err != nil { // RESET
		t.Fatal(err)
	}
	if now, _ := q.MRCAttr(); now != first || q.req.ctl != (ccalgo.None{}) || q.req.control != noControl || !q.req.hasRoom() || q.mrc().trk.Range() != 9*128 {
		t.Errorf("after RESET %+v", now)
	}
	if err := toRTS(q, Attr{PathMTU: 1, Timeout: 14, RetryCnt: 6}); err != nil {
		t.Fatal(err)
	}
	first.Timeout, first.Linear = 16, 6
	if now, _ := q.MRCAttr(); now != first {
		t.Errorf("with standard attributes %+v", now)
	}
	rc := New(Config{Type: RC, QPN: 17, Host: newScriptHost(1)})
	if err := rc.ModifyMRC(set, all, mrc.Plugins{}); !errors.Is(err, ErrNotMRC) {
		t.Errorf("a queue pair of RC: %v", err)
	}
	if _, ok := rc.MRCAttr(); ok || mrc.Duration(24) != 17179869184*time.Nanosecond {
		t.Error("RC has attributes of MRC")
	}
}
