// Package qp is the transport: the queue pair state machines of RC, UC and UD.
//
// It is sans-I/O. A QP is driven by its NIC in a fixed order:
//
//	inputs (Receive, Doorbell, Modify, OnCNP, OnTimeout)
//	-> PollTransmit until it returns false, or the NIC's budget is used up
//	-> Flushed once the polled packets have left
//	-> NextTimeout
//
// Inputs carry the time, which never goes back. A QP reads no clock, takes no
// lock, starts no goroutine and allocates nothing per packet.
//
// The requester packetizes send work requests, the completer (part of it)
// digests acknowledgements and READ responses, and the responder executes the
// peer's requests. What they share is the queue pair's state and attributes.
package qp

import (
	"cmp"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Traits are what packets and acknowledgements of a transport say and mind beyond the others'.
type Traits struct {
	PerPacket bool // an acknowledgement for each packet, with its path: they clock the sender (MP-RDMA 3.1)
	Head      bool // packets carry the connection's first PSN and mark its last packet (Eunomia 3.2.1)
	OnlyHoles bool // only a new hole is worth a NACK of its own (MELO 3.2.4)
	HoldLast  HoldLast
}

// HoldLast says who holds back the last packet of a WRITE under Eunomia, so that a program that
// polls memory for the end of the data finds all of it (3.5.2). Both ends must have the same.
// WRITEs with immediate data are not held, their programs wait for the completion.
type HoldLast uint8

// Who holds last packets back.
const (
	HoldNowhere HoldLast = iota
	// HoldAtReceiver: the receiver keeps one that comes early until all before it has arrived
	// (appendix A.1). As safe as HoldAtSender, without its round trip a message.
	HoldAtReceiver
	// HoldAtSender: each leaves when all before it has been acknowledged.
	HoldAtSender
	// HoldAtSenderIdle: likewise, but only if nothing is queued behind it; the last packet of a
	// connection is that, as the paper measures it. Other WRITEs are not safe to poll for.
	HoldAtSenderIdle
)

// Profile is the set of plug-ins of one queue pair.
type Profile struct {
	Kind       bth.Profile // what its packets look like
	Traits     Traits      // of extended transports
	Tracker    reorder.Tracker
	Recovery   retrans.Recovery
	Controller ccalgo.Controller
	Paths      path.Selector // nil: the connection's one path
	// READ responses of the extended transports are tracked, recovered and sent by paths
	// of their own.
	ResponseTracker  reorder.Tracker
	ResponseRecovery retrans.Recovery
	ResponsePaths    path.Selector     // nil: the connection's one path
	ResponseControl  ccalgo.Controller // nil: they share the rate of requests, and no window holds them
}

// Config describes a queue pair at its creation.
type Config struct {
	Type       Type
	QPN        bth.QPN
	MaxSendWR  uint32
	MaxRecvWR  uint32
	MaxSendSGE uint32
	MaxRecvSGE uint32
	MaxInline  uint32 // bytes
	SigAll     bool   // every send completion is signaled
	HasSRQ     bool
	MaxUnacked uint32 // PSNs that may be outstanding, a limit beside the controller's window
	// DataHeader is what a packet with payload takes on the link besides it, for pacing, whatever its
	// headers are: simulations may count so. Zero: its headers, and Tuning.LinkOverhead.
	DataHeader uint8
	// CNPInterval is the shortest time between two CNPs; zero sends none.
	CNPInterval time.Duration
	Profile     Profile
	Host        Host
	Counters    *Counters
	Scratch     *Scratch // nil: the queue pair has its own
	Tuning      Tuning
	// Phantom says that payload has a length but no content, as in simulation: what would
	// have to be copied is not.
	Phantom bool
}

// RxMeta is what the encapsulation of a received packet says besides the packet.
type RxMeta struct {
	CE   bool   // ECN congestion experienced
	Path uint16 // UDP source port
	GRH  []byte // UD: the 40 bytes placed before the payload (IBTA annex A17: for IPv4, 20 zero bytes and the IPv4 header)
}

// arrival is what acknowledgements echo of how a packet has come (MP-RDMA 3.1).
type arrival struct {
	ce   bool
	path uint16
}

// Transmit is one packet to send.
type Transmit struct {
	Packet bth.Packet
	AH     uint32 // UD: address handle; RC and UC packets use the connection's path
	Path   uint16 // UDP source port, 0 for that of the path
	// Snapshot asks for a copy of the payload before its ICRC is made. Programs may change
	// memory while it is sent, and a packet whose ICRC is of what was there before is lost.
	// So what is sent again is copied, and so are READs of one packet, by which programs
	// look at what others are changing.
	Snapshot bool
}

// Drop says what became of a received packet; anything but Accepted names why
// it changed nothing, for counters and captures.
type Drop uint8

// Verdicts on received packets.
const (
	Accepted       Drop = iota
	DropState           // the QP is in a state that receives nothing
	DropOpcode          // opcode of another transport service, or out of sequence
	DropDuplicate       // answered from saved state or ignored
	DropOutOfOrder      // beyond the expected PSN
	DropNoRecv          // no receive work request: RNR NAK, or silently for UC and UD
	DropQKey
	DropAccess // key, bounds or rights
	DropLength
	DropStaleAck // acknowledges nothing that is outstanding
	DropProfile  // of another transport profile
	// Later: memory that the packet needs is not there yet (Host.Later). Nothing has changed;
	// the packet is to be given again after Resume.
	Later
)

// String returns the verdict in words.
func (d Drop) String() string {
	return [...]string{"accepted", "QP state does not receive", "unexpected opcode", "duplicate", "out of order",
		"no receive work request", "bad Q_Key", "remote access error", "bad length", "stale acknowledgement",
		"another transport profile", "memory is not there yet"}[d]
}

// QP is one queue pair.
type QP struct {
	cfg       settings
	host      Host
	ctr       *Counters
	scratch   *Scratch
	attr      Attr
	state     State
	transport bth.Opcode // bits of opcodes
	polled    int16      // requests polled while answers wait, since the last one
	mtu       uint32     // path MTU in bytes, set in RTR

	req  requester
	resp responder
	np   notifier

	x     *extension // extended transports only
	trace *tracing   // nil: nobody watches
	timer mono.Time  // the instant of NextTimeout

	fresh   bool // timer is up to date
	drained bool // PollTransmit has had nothing since the last input
	blocked bool // until Resume: memory is not there yet

	refuseForeign bool // a request of another transport profile is to be refused

	flushing bool // more may be posted to a broken queue than has been flushed so far; req.at is when it is due
}

// defaultUnacked is the PSN window if the configuration has none. rxe has 128; with
// super-frames of 15 packets a larger one measures better, and 512 no better still.
const defaultUnacked = 256

// New makes a queue pair in the RESET state. cfg has been checked by the NIC.
// Plug-ins that its profile lacks are those of standard RC.
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
	if cfg.Type == RC && p.Recovery == nil {
		p.Recovery = retrans.NewGoBackN()
	}
	if p.Kind.Extended() && p.ResponseTracker == nil {
		p.ResponseTracker = reorder.NewStrict()
	}
	if p.Kind.Extended() && p.ResponseRecovery == nil {
		p.ResponseRecovery = retrans.NewGoBackN()
	}
	q := &QP{transport: transports[cfg.Type], cfg: settingsOf(&cfg), host: cfg.Host, ctr: cfg.Counters, scratch: cfg.Scratch, np: notifier{interval: cfg.CNPInterval}}
	if cfg.Type == RC && p.Kind.Extended() {
		q.x, q.transport = &extension{Traits: p.Traits}, bth.TransportExt
		q.x.out.init(q, p)
		q.x.in.init(q, p)
	}
	q.req.init(q, p)
	q.resp.init(q, p)
	return q
}

// Renumber gives a queue pair in RESET another number and another seed for its paths: it is used again
// for another connection, as simulations do where each message has one of its own.
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
	return a
}

// Receive takes a packet addressed to this queue pair. The NIC has checked
// ICRC, P_Key and, for connected services, the peer's address.
func (q *QP) Receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	q.touch()
	if q.trace != nil || q.ctr.Distributions != nil {
		return q.watchedReceive(now, p, m)
	}
	return q.receive(now, p, m)
}

func (q *QP) receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	if q.state < RTR || q.state > SQE {
		return DropState
	}
	switch {
	case p.Opcode.IsExt() != (q.x != nil):
		return q.unexpected(now, p)
	case q.x == nil && p.Opcode.Transport() != q.transport:
		return DropOpcode
	}
	d := q.dispatch(now, p, m)
	if m.CE && d != Later && q.cfg.Type != UD && notable(p.Opcode) {
		q.np.marked(now)
	}
	return d
}

func (q *QP) dispatch(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	switch {
	case q.x != nil && p.Ext.Profile != q.cfg.kind:
		return q.foreign(now, p)
	case p.Opcode.IsRequest():
		return q.resp.receive(now, p, m)
	case p.Opcode.IsReadAck():
		return q.x.in.responses.acknowledged(now, p)
	case !p.Opcode.IsResponse():
		return DropOpcode
	case !q.sending():
		return DropState
	}
	return q.req.frame.receive(now, p, arrival{m.CE, m.Path})
}

// Resume tells that memory is there which was not when Receive or PollTransmit needed it
// (Host.Later). PollTransmit has nothing before; what Receive has answered with Later is to
// be given to it again.
func (q *QP) Resume(now mono.Time) {
	q.touch()
	if q.blocked = false; q.state >= RTR && q.state <= SQE {
		q.resp.adm.resume(now)
	}
	q.traceState(now)
}

// Blocked reports whether the queue pair waits for Resume.
func (q *QP) Blocked() bool { return q.blocked }

// Doorbell tells that send work requests may have been posted. They are pulled
// when they can be sent; a broken queue takes them at once, with its timer, to flush them.
func (q *QP) Doorbell(now mono.Time) {
	q.touch()
	if q.state == Err || q.state == SQE {
		q.flushing, q.req.at = true, now
	}
}

// flushBatch is how many posted work requests of a broken queue are flushed at a time, of
// each direction: the rest follows when NextTimeout says so, which is at once. A client may
// post as fast as is flushed; the NIC's turn ends all the same.
const flushBatch = 16

// flush completes the next batch of what is posted to a broken queue pair.
func (q *QP) flush(now mono.Time) {
	more := q.req.flushPosted(flushBatch)
	if q.state == Err && !q.cfg.HasSRQ {
		more = q.resp.flushPosted(flushBatch) || more
	}
	q.flushing, q.req.at = more, now
}

// OnCNP takes a congestion notification packet for this queue pair.
func (q *QP) OnCNP(now mono.Time) {
	q.touch()
	if q.sending() {
		q.req.ctl.OnCNP(now)
	}
	q.traceState(now)
}

// sending reports whether the requester is at work.
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
		q.x.in.responses.onTimeout(now)
	}
	q.traceState(now)
}

// PollTransmit fills t with the next packet and returns true, or returns false
// if nothing may be sent at now. t is scratch space: every field in use is set.
func (q *QP) PollTransmit(now mono.Time, t *Transmit) bool {
	if q.drained && now < q.NextTimeout() {
		return false
	}
	q.touch()
	q.req.pace.Waiting = false
	t.Path, t.Snapshot = 0, false
	if !q.blocked && (q.pollCNP(t) || q.pollForeign(t) || q.poll(now, t)) {
		return true
	}
	q.drained = true
	q.req.pace.Nothing()
	q.traceState(now)
	return false
}

// touch takes note of an input, after which timers and packets to send may be others.
func (q *QP) touch() { q.drained, q.fresh = false, false }

// Runnable reports whether PollTransmit may have a packet: there has been an input since it
// returned false. What waits for an instant is runnable once OnTimeout has been called then.
func (q *QP) Runnable() bool { return !q.drained && !q.blocked }

// poll is PollTransmit without CNPs, which go first. Requests and answers take turns; how
// many requests may go before the next answer is for the admission to say. Answers that go
// before all requests do not take the turn of those behind them.
func (q *QP) poll(now mono.Time, t *Transmit) bool {
	limit := q.resp.adm.requestsFirst()
	if int(q.polled) < limit && q.req.poll(now, t) {
		if limit != nothingDue {
			q.polled++
		}
		return true
	}
	if q.blocked {
		return false
	}
	if q.resp.adm.poll(now, t) {
		if limit > 0 {
			q.polled = 0
		}
		return true
	}
	return !q.blocked && int(q.polled) >= limit && q.req.poll(now, t)
}

// Woken tells that the receive which has just been completed has woken a program. The
// acknowledgement then leaves before requests: the program's reply must not complete at
// the peer before the message that it answers. Programs that sleep count events, and one
// that takes the event of the reply for that of its own message sleeps for ever.
func (q *QP) Woken() { q.resp.urgent = true }

// Flushed tells that the packets polled so far have left: views of memory in
// them are no longer referenced. Sends of UC and UD complete here.
func (q *QP) Flushed(now mono.Time) {
	if q.cfg.Type != RC && q.sending() {
		q.touch()
		q.req.flushed(now)
	}
}

// NextTimeout is the earliest instant at which OnTimeout is due or PollTransmit
// has something again (pacing); mono.Never if there is none. It costs nothing if there was no
// input since it was asked last.
func (q *QP) NextTimeout() mono.Time {
	if q.fresh {
		return q.timer
	}
	t := mono.Never
	if q.flushing {
		t = q.req.at
	}
	if q.sending() {
		t = q.req.nextTimeout()
	}
	if q.x != nil {
		t = t.Min(q.x.in.responses.nextTimeout())
	}
	q.timer, q.fresh = t, true
	return t
}

// enterError moves the queue pair to the ERR state: everything posted is
// flushed, once (IBTA vol.1 10.3.1.6, 10.8.4).
func (q *QP) enterError(now mono.Time) {
	if q.state == Err {
		return
	}
	q.state, q.blocked = Err, false
	q.req.flush()
	q.resp.flush()
	q.Free()
	q.flush(now)
}

// Free gives back what the queue pair has of the memory that connections of its NIC share. It
// is for one that is not used again; those that break or are reset need no call.
func (q *QP) Free() {
	q.resp.trk.Reset(q.resp.trk.Expected())
	if q.req.rec != nil {
		q.req.rec.Reset(q.req.nxt)
	}
	if q.x != nil {
		q.x.out.start(q.req.rdone)
		q.x.in.responses.reset()
	}
}

// enterSendError breaks the send side after a failed request: the whole queue
// pair of RC, the send queue only of UC and UD (IBTA vol.1 10.3.1.7).
func (q *QP) enterSendError(now mono.Time) {
	if q.cfg.Type == RC {
		q.enterError(now)
		return
	}
	q.state = SQE
	q.req.flush()
	q.flush(now)
}

// transports are the bits of opcodes by transport service.
var transports = [...]bth.Opcode{RC: bth.TransportRC, UC: bth.TransportUC, UD: bth.TransportUD}

// header sets all fields of the BTH of a packet from this queue pair. The NIC
// has the P_Key table and replaces PKey if the index is not that of the default.
func (q *QP) header(p *bth.Packet, op bth.Opcode, psn bth.PSN) {
	p.Opcode = q.transport | op
	p.Solicited, p.MigReq, p.FECN, p.BECN, p.AckReq = false, false, false, false, false
	p.PKey = bth.DefaultPKey
	p.DestQP = bth.QPN(q.attr.DestQPN)
	p.PSN = psn
	p.Payload = nil
}
