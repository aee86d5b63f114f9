package engine

import (
	"fmt"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// pair is a queue pair of the configuration. Its fields belong to the shard.
type pair struct {
	cfg    QueuePair
	peer   *peer
	host   *host
	remote *pair // in this process; nil: elsewhere
	q      *rocev2.QueuePair
	pd     *rocev2.PD
	local  *rocev2.MR

	up       bool // wanted
	state    pairState
	conn     *cm.Conn
	far      shown // by the peer
	farPSN   bth.PSN
	ownPSN   bth.PSN
	end      end
	mtu      int // bytes of payload in a packet
	flows    []*flow
	incoming []*flow // flows of other engines to this end
	turn     int
	read     bool // its flows read
	lastErr  string
	progress

	reqTx, respTx, reqRx, respRx             tally
	cnpTx, cnpRx, ackTx, ackRx, nakTx, nakRx uint64
	stamps                                   []stamp // of sent packets, for latency; nil: not measured
	latency                                  latency // of received packets
}

// pairState is the state of a connection.
type pairState uint8

const (
	pairDown pairState = iota
	pairConnecting
	pairUp
	pairFailed
)

// stamp is the time at which a packet left.
type stamp struct {
	psn bth.PSN
	at  mono.Time
}

// One packet in stampEvery has a stamp; the latest stampsKept are known.
const (
	stampEvery = 16
	stampsKept = 64
)

// latency sums up times between transmission and reception.
type latency struct {
	count, sum uint64
	min, max   time.Duration
}

func (l *latency) add(d time.Duration) {
	if l.count == 0 || d < l.min {
		l.min = d
	}
	l.max = max(l.max, d)
	l.count++
	l.sum += uint64(d)
}

// stamp counts a sent data packet.
func (q *pair) stamp(now mono.Time, t *tally, p roceInfo) {
	inOrder := t.add(now, p, true)
	if n := p.psn.Uint32(); inOrder && n%stampEvery == 0 && q.stamps != nil {
		q.stamps[n/stampEvery%stampsKept] = stamp{p.psn, now}
	}
	if inOrder && p.op.Starts() && t == &q.reqTx {
		q.began(now)
	}
}

// asked follows a READ request, which may be a repeated one.
func (q *pair) asked(now mono.Time, p roceInfo) {
	m := &q.progress
	if m.begun == m.tail || p.psn != m.readNext {
		return
	}
	m.readNext = p.psn.Add(max((int(m.ring[m.begun%depth].flow.cfg.Size)+q.mtu-1)/q.mtu, 1))
	q.began(now)
}

// arrived counts a received data packet.
func (q *pair) arrived(now mono.Time, t *tally, p roceInfo) {
	t.add(now, p, false)
	n := p.psn.Uint32()
	if r := q.remote; n%stampEvery == 0 && r != nil && r.stamps != nil {
		if s := r.stamps[n/stampEvery%stampsKept]; s.at != 0 && s.psn == p.psn {
			q.latency.add(shard.Now().Sub(s.at))
			r.stamps[n/stampEvery%stampsKept].at = 0
		}
	}
}

// depth is the number of messages of a queue pair in progress.
const depth = 64

// create makes the queue pair, in RESET.
func (q *pair) create() (err error) {
	h := q.host
	fail := func(err error) error { return fmt.Errorf("queue pair %s: %w", q.cfg.Name, err) }
	if q.pd, err = h.core.AllocPD(nil); err != nil {
		return fail(err)
	}
	q.local, err = h.core.RegMR(q.pd, rocev2.MRAttr{Length: maxMessage, Mem: memory, Access: qp.AccessLocalWrite})
	if err != nil {
		return fail(err)
	}
	va := q.cfg.VirtualAddress
	shown, err := h.core.RegMR(q.pd, rocev2.MRAttr{VA: va, Length: window(va), Mem: memory,
		Access: qp.AccessLocalWrite | qp.AccessRemoteWrite | qp.AccessRemoteRead})
	if err != nil {
		return fail(err)
	}
	q.pd.Name(q.cfg.RemoteKey, shown)
	q.q, err = h.core.CreateQP(rocev2.QPAttr{Type: qp.RC, PD: q.pd, SendCQ: h.cq, RecvCQ: h.cq, SQ: (*sendQueue)(q), RQ: (*recvQueue)(q),
		Num: bth.QPN(q.cfg.Number), Ctx: q, Caps: rocev2.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return fail(err)
	}
	h.pairs[q.q.Num()] = q
	return nil
}

// modify changes the state of the queue pair.
func (q *pair) modify(now mono.Time, a qp.Attr, mask qp.AttrMask, av *rocev2.AddressVector) error {
	return q.host.core.ModifyQP(now, q.q, a, mask, av)
}

// ready brings the queue pair from any state to RTR with the attributes of its connection.
func (q *pair) ready(now mono.Time, a *cm.QPAttr) error {
	if err := q.reset(now); err != nil {
		return err
	}
	err := q.modify(now, qp.Attr{State: qp.Init, Port: 1, AccessFlags: qp.AccessRemoteWrite | qp.AccessRemoteRead},
		qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccessFlags, nil)
	if err != nil {
		return err
	}
	index, _ := q.host.index(a.Route.SGID.Addr())
	av := rocev2.AddressVector{DGID: a.Route.DGID, SGIDIndex: index, TrafficClass: q.cfg.Data.DSCP<<2 | uint8(q.cfg.Data.ECN),
		SourcePort: q.cfg.SourcePort}
	if v := q.host.cfg.VLANs; len(v) > 0 {
		av.SL = v[0].Priority
	}
	err = q.modify(now, qp.Attr{State: qp.RTR, PathMTU: a.PathMTU, DestQPN: uint32(a.RemoteQPN), RQPSN: q.farPSN.Uint32(),
		MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: 1}, qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|
		qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, &av)
	if err != nil {
		return err
	}
	q.end = end{a.Route.DGID, a.RemoteQPN}
	q.host.byEnd[q.end] = q
	q.reqTx.next, q.respRx.next = q.ownPSN, q.ownPSN
	q.reqRx.next, q.respTx.next = q.farPSN, q.farPSN
	for _, x := range []*pair{q, q.remote} {
		if x != nil { // the peer may have been ready before a start
			x.reqRx.waits, x.respRx.waits = false, false
		}
	}
	q.readNext, q.mtu = q.ownPSN, a.PathMTU.Bytes()
	return nil
}

// run brings the queue pair from RTR to RTS.
func (q *pair) run(now mono.Time, a *cm.QPAttr) error {
	s := &q.host.port.cfg.RoCE
	err := q.modify(now, qp.Attr{State: qp.RTS, SQPSN: q.ownPSN.Uint32(), Timeout: timeoutCode(s.Timeout), RetryCnt: s.retries(), RNRRetry: 7,
		MaxRdAtomic: a.MaxRdAtomic}, qp.AttrState|qp.AttrSQPSN|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrMaxRdAtomic, nil)
	if err == nil {
		q.state = pairUp
		q.pace(now)
		q.host.core.Doorbell(now, q.q)
	}
	return err
}

// reset brings the queue pair to RESET.
func (q *pair) reset(now mono.Time) error {
	if q.host.byEnd[q.end] == q {
		delete(q.host.byEnd, q.end)
	}
	return q.modify(now, qp.Attr{State: qp.Reset}, qp.AttrState, nil)
}

// timeoutCode returns the code of the shortest timeout that is at least d: 4.096 us * 2^code; 0 for none.
func timeoutCode(d time.Duration) uint8 {
	if d <= 0 {
		return 0
	}
	code := uint8(1)
	for code < 31 && 4096*time.Nanosecond<<code < d {
		code++
	}
	return code
}

// retries returns the retry count of the transport.
func (s *PortSettings) retries() uint8 { return uint8(min(max(s.Retries, 0), 7)) }

// pathMTU returns the code of a payload length.
func pathMTU(bytes int) qp.MTU {
	m := qp.MTU(1)
	for m < 5 && (m+1).Bytes() <= bytes {
		m++
	}
	return m
}

// gid returns the local address of the queue pair.
func (q *pair) gid() inet.GID { return inet.GIDOf(q.peer.address.Prefix.Addr()) }
