package qp

import (
	"cmp"
	"math"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Traits are properties of the packets and acknowledgements of a transport.
type Traits struct {
	PerPacket bool // an acknowledgement for each packet, with its path: they clock the sender (MP-RDMA 3.1)
	Head      bool // packets carry the connection's first PSN and mark its last packet (Eunomia 3.2.1)
	OnlyHoles bool // only a new hole triggers a NACK (MELO 3.2.4)
	HoldLast  HoldLast
	// SelectiveRTT measures round trips by the acknowledgement of the timed packet itself, also with PerPacket. Otherwise
	// the cumulative acknowledgement ends them there, so that they include the slowest path.
	SelectiveRTT bool
	// CNPWithNAK notifies the sender of congestion with each NAK of an out-of-order arrival, by a CNP and by the BECN bit, as
	// conweave-ns3 does (commit 236a801, RdmaHw::ReceiverCheckSeq). No specification demands it. Standard RC has it too.
	CNPWithNAK bool
}

// HoldLast selects the end that holds back the last packet of a WRITE under Eunomia. A program that polls memory for
// the end of the data then finds all of it (3.5.2). Both ends must use the same value. WRITEs with immediate data are
// not held, because their programs wait for the completion.
type HoldLast uint8

// Values of HoldLast.
const (
	HoldNowhere HoldLast = iota
	// HoldAtReceiver: the receiver holds an early last packet until all packets before it have arrived (appendix A.1).
	// It is as safe as HoldAtSender and saves a round trip per message.
	HoldAtReceiver
	// HoldAtSender: the last packet leaves when all packets before it have been acknowledged.
	HoldAtSender
	// HoldAtSenderIdle: likewise, but only if no request is queued behind it, such as the last packet of a
	// connection, as in the paper's measurements. Programs cannot poll for other WRITEs safely.
	HoldAtSenderIdle
)

// Profile is the set of plug-ins of one queue pair.
type Profile struct {
	Kind       bth.Profile // packet format
	Traits     Traits      // of extended transports
	Tracker    reorder.Tracker
	Recovery   retrans.Recovery
	Controller ccalgo.Controller
	Paths      path.Selector // nil: the connection's one path
	// READ responses of the extended transports have a tracker, a recovery and paths of their own.
	ResponseTracker  reorder.Tracker
	ResponseRecovery retrans.Recovery
	ResponsePaths    path.Selector     // nil: the connection's one path
	ResponseControl  ccalgo.Controller // nil: they share the rate of requests and have no window
	Fields           *Fields           // of extended transports: bytes of their own in packets; nil: none
}

// Config describes a queue pair at its creation.
type Config struct {
	Type       Type
	QPN        bth.QPN
	MaxSendWR  uint32
	MaxSendSGE uint32
	MaxRecvSGE uint32
	MaxInline  uint32 // bytes
	SigAll     bool   // every send completion is signaled
	HasSRQ     bool
	MaxUnacked uint32 // limit on outstanding PSNs, beside the controller's window
	// DataHeader replaces the headers of packets with payload for pacing, in bytes on the link, as some simulations
	// count them. Zero: the headers and Tuning.LinkOverhead.
	DataHeader uint8
	// SingleWrites sends a WRITE of RC as so many WRITEs of one packet: all have one length, so that they leave in one
	// super-frame. The peer executes, counts and checks each by itself. WRITEs with immediate data stay whole, because
	// the peer's program learns the length.
	SingleWrites bool
	// UnlimitedRetries keeps a requester from giving up upon losses, as in the papers' simulators, which have no retry counter.
	UnlimitedRetries bool
	// CNPInterval is the shortest time between two CNPs; zero sends none.
	CNPInterval time.Duration
	Profile     Profile
	Host        Host
	Counters    *Counters
	Usage       *Usage   // nil: not counted
	Scratch     *Scratch // nil: the queue pair has its own
	Tuning      Tuning
	// Phantom means that payload has a length but no content, as in simulation: the queue pair copies none.
	Phantom bool
}

// RxMeta is the part of a packet's encapsulation that the queue pair needs.
type RxMeta struct {
	CE   bool     // ECN congestion experienced
	Path uint32   // entropy value of the packet, see bth.JoinEntropy
	Trim mrc.Trim // not Whole: the packet has BTH, METH and perhaps TSETH, and its ICRC has not been checked
	GRH  []byte   // UD: the 40 bytes placed before the payload (IBTA annex A17: for IPv4, 20 zero bytes and the IPv4 header)
}

// arrival holds the marks of a packet that its acknowledgement echoes (MP-RDMA 3.1).
type arrival struct {
	CE   bool
	Path uint32
}

// Transmit is one packet to send.
type Transmit struct {
	Packet bth.Packet
	AH     uint32 // UD: address handle; RC and UC packets use the connection's path
	Path   uint32 // entropy value, see bth.SplitEntropy; 0 for that of the connection
	// Snapshot requests a copy of the payload before the computation of its ICRC. Programs may change memory during
	// transmission; a packet whose ICRC covers earlier content is lost. So retransmissions are copied. READ responses
	// of one packet are copied too, because programs poll memory with them that others change.
	Snapshot bool
}

// Drop is the result of Receive. Values other than Accepted name the reason why the packet changed nothing, for
// counters and captures.
type Drop uint8

// Results of Receive.
const (
	Accepted       Drop = iota
	DropState           // the QP is in a state that receives nothing
	DropOpcode          // opcode of another transport service, or out of sequence
	DropDuplicate       // answered from saved state, or ignored
	DropOutOfOrder      // beyond the expected PSN
	DropNoRecv          // no receive work request: RNR NAK, or silently for UC and UD
	DropQKey
	DropAccess // key, bounds or rights
	DropLength
	DropStaleAck // acknowledges no outstanding packet
	DropProfile  // of another transport profile
	DropFields   // the bytes of the transport's own are malformed
	// Later: memory that the packet needs is not available yet (Host.Later). Nothing has changed; the NIC must call
	// Receive with the packet again after Resume.
	Later
)

// String returns the result in words.
func (d Drop) String() string {
	return [...]string{"accepted", "QP state does not receive", "unexpected opcode", "duplicate", "out of order",
		"no receive work request", "bad Q_Key", "remote access error", "bad length", "stale acknowledgement",
		"another transport profile", "malformed fields of the transport", "memory is not available yet"}[d]
}

// QP is one queue pair.
type QP struct {
	cfg       settings
	host      Host
	ctr       *Counters
	usage     *Usage
	scratch   *Scratch
	attr      Attr
	state     State
	transport bth.Opcode // bits of opcodes
	polled    int16      // requests polled while answers wait, since the last answer
	mtu       uint32     // path MTU in bytes, set in RTR

	req  requester
	resp responder
	np   notifier

	x       *extension // extended transports only
	peering *peering   // nil: no peer
	trace   *tracing   // nil: no tracer
	timer   mono.Time  // the result of NextTimeout

	timerValid bool        // timer is up to date
	drained    bool        // PollTransmit has returned false since the last input
	memory     memoryState // memorySynced or memoryBlocked

	refuseProfile bool // a NAK is due to a peer with another transport profile

	flushing bool // more requests may have been posted to a broken queue; req.at is when flush is due
}

// defaultUnacked is the default PSN window. rxe has 128. A larger window performs better with super-frames of 15
// packets; 512 brings no further gain.
const defaultUnacked = 256

// New makes a queue pair in the RESET state. The NIC has checked cfg. Plug-ins missing in its profile default to those
// of standard RC.
func New(cfg Config) *QP {
	p := &cfg.Profile
	cfg.MaxUnacked = cmp.Or(cfg.MaxUnacked, defaultUnacked)
	if cfg.Counters == nil {
		cfg.Counters = new(Counters)
	}
	if cfg.Scratch == nil {
		cfg.Scratch = new(Scratch)
	}
	p.Controller = cmp.Or[ccalgo.Controller](p.Controller, ccalgo.None{})
	if p.Tracker == nil {
		p.Tracker = reorder.NewStrict()
	}
	p.Paths = cmp.Or[path.Selector](p.Paths, &path.Single{})
	if p.Kind != bth.ProfileRC {
		if p.Recovery == nil {
			p.Recovery = retrans.NewGoBackN()
		}
		if p.ResponseTracker == nil {
			p.ResponseTracker = reorder.NewStrict()
		}
		if p.ResponseRecovery == nil {
			p.ResponseRecovery = retrans.NewGoBackN()
		}
	}
	q := &QP{transport: transports[cfg.Type], cfg: settingsOf(&cfg), host: cfg.Host, ctr: cfg.Counters, usage: cfg.Usage, scratch: cfg.Scratch,
		np: notifier{interval: uint32(min(cfg.CNPInterval, math.MaxUint32)), withNAK: p.Traits.CNPWithNAK}}
	if cfg.Type == RC && p.Kind != bth.ProfileRC {
		q.x, q.transport = &extension{Traits: p.Traits, fields: makeFields(p.Fields)}, bth.TransportExt
		q.x.out.init(q, p)
		q.x.init(q, p)
		q.x.policy = &q.x.out
		if p.Kind == bth.ProfileMRC {
			q.x.mrc, q.transport = newMRC(q, p), bth.TransportMRC
			q.x.policy = &q.x.mrc.out
		}
	}
	q.req.init(q, p)
	q.resp.init(q, p)
	return q
}

// Renumber gives a queue pair in RESET another number and path seed, for reuse by another connection. Simulations in
// which each message has a connection need it.
func (q *QP) Renumber(n bth.QPN, pathSeed uint64) {
	q.cfg.QPN, q.cfg.Tuning.PathSeed = n, pathSeed
}

// State returns the queue pair's state.
func (q *QP) State() State { return q.state }

// Attr returns the current attributes (ibv_query_qp).
func (q *QP) Attr() Attr {
	a := q.attr
	a.State, a.CurState = q.state, q.state
	if q.state == RTS || q.state == SQD || q.state == SQE {
		a.SQPSN = q.req.nxt.Uint32()
	}
	if q.receiving() && q.cfg.Type != UD {
		a.RQPSN = q.resp.trk.Expected().Uint32()
	}
	return a
}

// Receive takes a packet addressed to this queue pair. The NIC has checked ICRC, P_Key and, for connected services, the
// peer's address.
func (q *QP) Receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	q.touch()
	var d Drop
	if q.trace != nil || q.ctr.Distributions != nil {
		d = q.tracedReceive(now, p, &m)
	} else {
		d = q.receive(now, p, &m)
	}
	q.countOutstanding(now)
	return d
}

func (q *QP) receive(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	switch {
	case !q.receiving():
		return DropState
	case p.Opcode.Transport() != q.transport:
		return q.unexpected(now, p)
	case q.transport == bth.TransportMRC:
		return q.x.mrc.receive(now, p, m)
	}
	d := q.dispatch(now, p, m)
	if m.CE && d != Later && q.cfg.Type != UD && isData(p.Opcode) {
		q.np.marked(now)
	}
	return d
}

func (q *QP) dispatch(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	switch {
	case q.x != nil && p.Ext.Profile != q.cfg.kind:
		return q.otherProfile(now, p)
	case p.Opcode.IsRequest():
		return q.resp.receive(now, p, m)
	case p.Opcode.IsReadAck():
		return q.x.responses.acknowledged(now, p)
	case !p.Opcode.IsResponse():
		return DropOpcode
	case !q.sending():
		return DropState
	}
	return q.req.policy.receive(now, p, arrival{m.CE, m.Path})
}

// Resume reports that memory is available for which Receive or PollTransmit was waiting (Host.Later). Afterwards the
// caller must repeat each Receive that returned Later, in the same order.
func (q *QP) Resume(now mono.Time) {
	q.touch()
	q.memory = memorySynced
	if q.x != nil && q.receiving() {
		q.resp.release(now)
		q.req.policy.resume(now)
	}
	q.traceState(now)
}

// Doorbell reports that send work requests may have been posted. The queue pair takes them when it can send them. A
// broken queue pair takes them in OnTimeout, which is due at once, to flush them.
func (q *QP) Doorbell(now mono.Time) {
	q.touch()
	if q.state == Err || q.state == SQE {
		q.flushing, q.req.moreAt = true, now
	}
}

// flushBatch limits the posted work requests, in each direction, that a broken queue pair flushes at a time. The rest
// follows at NextTimeout, which is at once. Thus the call ends even if a client posts as fast as the queue pair
// flushes.
const flushBatch = 16

// Flushing reports whether requests posted to a broken queue pair remain to be flushed. OnTimeout flushes a batch of them.
func (q *QP) Flushing() bool { return q.flushing }

// flush completes the next batch of requests posted to a broken queue pair.
func (q *QP) flush(now mono.Time) {
	more := q.req.flushPosted(flushBatch)
	if q.state == Err && !q.cfg.HasSRQ {
		more = q.resp.flushPosted(flushBatch) || more
	}
	q.flushing, q.req.moreAt = more, now
}

// OnCNP takes a congestion notification packet for this queue pair.
func (q *QP) OnCNP(now mono.Time) {
	q.touch()
	if q.sending() {
		q.req.ctl.OnCNP(now)
	}
	q.traceState(now)
}

// receiving reports whether the state permits receiving packets.
func (q *QP) receiving() bool { return q.state >= RTR && q.state <= SQE }

// sending reports whether the state permits sending requests.
func (q *QP) sending() bool { return q.state == RTS || q.state == SQD }

// OnTimeout is called when NextTimeout has passed.
func (q *QP) OnTimeout(now mono.Time) {
	q.touch()
	if q.flushing {
		q.flush(now)
	}
	if q.sending() {
		q.req.onTimeout(now)
	}
	if q.x != nil {
		q.x.responses.onTimeout(now)
	}
	q.countOutstanding(now)
	q.traceState(now)
}

// PollTransmit fills t with the next packet and returns true, or returns false if no packet may be sent at now. It sets
// every field of t that is in use; the others are undefined.
func (q *QP) PollTransmit(now mono.Time, t *Transmit) bool {
	if q.drained && now < q.NextTimeout() {
		return false
	}
	q.touch()
	q.req.pace.Waiting = false
	t.Path, t.Snapshot = 0, false
	if f := q.peering; f != nil && f.turn != grantedTurn {
		f.turn = noTurn
	}
	if !q.Blocked() && (q.pollCNP(t) || q.pollProfileNAK(t) || q.poll(now, t)) {
		q.countOutstanding(now)
		return true
	}
	q.drained = true
	if q.peering != nil {
		q.peering.endTurn()
	}
	q.req.pace.Nothing()
	q.traceState(now)
	return false
}

// touch records an input, after which timers and packets to send may have changed.
func (q *QP) touch() { q.drained, q.timerValid = false, false }

// Runnable reports whether PollTransmit may have a packet: there was an input since it returned false. A packet that
// waits for an instant makes the queue pair runnable when OnTimeout is called at that instant.
func (q *QP) Runnable() bool { return !q.drained && !q.Blocked() }

// poll implements PollTransmit without CNPs, which go first. Requests and answers take turns; requestsFirst limits
// the requests before the next answer. Answers that precede all requests do not use the turn of the answers behind
// them.
func (q *QP) poll(now mono.Time, t *Transmit) bool {
	limit := q.resp.adm.requestsFirst()
	if int(q.polled) < limit && q.req.poll(now, t) {
		if limit != nothingDue {
			q.polled++
		}
		return true
	}
	if q.Blocked() {
		return false
	}
	if q.resp.adm.poll(now, t) {
		if limit > 0 {
			q.polled = 0
		}
		return true
	}
	return !q.Blocked() && int(q.polled) >= limit && q.req.poll(now, t)
}

// Woken reports that the last receive completion has woken a program. The acknowledgement then leaves before
// requests: the program's reply must not complete at the peer before the message that it answers. Sleeping programs
// count events. A program that mistakes the event of the reply for that of its own message never wakes.
func (q *QP) Woken() { q.resp.urgent = true }

// Flushed reports that the packets polled so far have left: the caller no longer holds views of memory from them.
// Sends of UC and UD complete here.
func (q *QP) Flushed(now mono.Time) {
	if q.cfg.Type != RC && q.sending() {
		q.touch()
		q.req.flushed(now)
	}
}

// NextTimeout returns the earliest instant at which OnTimeout is due or PollTransmit may have a packet again
// (pacing). It returns mono.Never if there is none. The result is cached until the next input.
func (q *QP) NextTimeout() mono.Time {
	if q.timerValid {
		return q.timer
	}
	t := mono.Never
	if q.flushing {
		t = q.req.moreAt
	}
	if q.sending() {
		t = q.req.nextTimeout()
	}
	if q.x != nil {
		t = t.Min(q.x.responses.nextTimeout())
	}
	q.timer, q.timerValid = t, true
	return t
}

// enterError moves the queue pair to the ERR state and flushes all posted requests (IBTA vol.1 10.3.1.6, 10.8.4).
func (q *QP) enterError(now mono.Time) {
	if q.state == Err {
		return
	}
	q.state, q.memory = Err, memorySynced
	q.req.flush()
	q.resp.flush()
	q.Free()
	q.countOutstanding(now)
	q.flush(now)
}

// Free returns the memory that the queue pair shares with other connections of its NIC. Call it for a queue pair that
// will not be used again. A queue pair that breaks or is reset needs no call.
func (q *QP) Free() {
	q.resp.trk.Reset(q.resp.trk.Expected())
	if q.req.rec != nil {
		q.req.rec.Reset(q.req.nxt)
	}
	if q.x != nil {
		q.x.out.start(q.req.rdone)
		q.x.responses.reset()
	}
}

// enterSendError breaks the send side after a failed request: the whole queue pair of RC, only the send queue of UC and
// UD (IBTA vol.1 10.3.1.7).
func (q *QP) enterSendError(now mono.Time) {
	if q.cfg.Type == RC {
		q.enterError(now)
		return
	}
	q.state = SQE
	q.req.flush()
	q.flush(now)
}
