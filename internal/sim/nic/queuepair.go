package nic

import (
	"encoding/binary"
	"fmt"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// User owns queue pairs. The simulation calls it while it runs; it may post, connect and close.
type User interface {
	// Completed gets the completion of a send or receive of q.
	Completed(now engine.Time, q *QP, c qp.CQE, receive bool)
}

// QPConfig describes a queue pair. It is the same at both ends of a connection.
type QPConfig struct {
	Type    qp.Type                           // default RC
	Profile func(nic int) (qp.Profile, error) // of a NIC, by its node of the network
	User    User
	// MTU is the path MTU in bytes; default the cluster's.
	MTU         int
	MaxUnacked  uint32 // outstanding PSNs
	CNPInterval time.Duration
	Timeout     uint8 // code of the ACK timeout (IBTA vol.1 9.7.6.1.3); default 14, 67 ms
	RetryCnt    uint8
	// UnlimitedRetries is that of qp.Config.
	UnlimitedRetries bool
	NoRNRRetry       bool // default: unlimited retries
	ReadDepth        uint8
	QKey             uint32
	SRQ              [2]*Receives // by end; nil: the queue pair has its own receive queue
	Tuning           qp.Tuning
	// Memory is what addresses refer to, by end; nil: payload is phantom.
	Memory [2][]byte
	// FirstPSN is the PSN of the first request in either direction.
	FirstPSN uint32
	// Traffic is the traffic class of data; zero: the cluster's.
	Traffic uint8
	// Class of the NIC's scheduler, less than sched.Classes.
	Class uint8
	// Via is the name of a switch through which all packets pass; empty: any way. The UDP source port is chosen for it.
	Via string
	// Elements is the maximum number of memory segments of a send; default 1.
	Elements uint8
	Ctx      any
	// Spares, if not nil, has closed queue pairs for reuse. All configurations with the same Spares differ only in
	// User, Ctx, Traffic and Via.
	Spares *Spares
}

// QP is a queue pair of a NIC. It must not be copied.
type QP struct {
	Ctx any // the user's

	core   *qp.QP
	nic    *NIC
	user   User
	memory *[]byte   // nil: phantom
	recvs  *Receives // nil: none so far
	sends  sendQueue

	node  sched.Node[*QP]
	timer sched.Timer[*QP]

	num      bth.QPN
	typ      qp.Type
	traffic  uint8
	port     uint16
	hash     uint32
	peerHost uint32
	held     uint32 // the parcel that waits to leave, if holding
	class    uint8  // of that parcel
	mtu      uint16
	spares   *Spares
	holding  bool
	closed   closing
	ecn      bool
	shared   bool   // recvs is an SRQ
	ports    uint32 // the last port status
	placed   uint64
}

// closing is how far a queue pair has been closed.
type closing uint8

const (
	stopped  closing = iota + 1
	released         // its number and memory are free
)

// A queue pair number is a slot and the number of its reuses, so that late packets do not reach another queue pair.
// Numbers zero and one are for management.
const (
	slotBits = 17
	slotMask = 1<<slotBits - 1
)

// Connect makes a connected pair between two hosts; x is on host a.
func (k *Cluster) Connect(a, b int, c QPConfig) (x, y *QP, err error) {
	if a, b, err = k.ends(a, b); err != nil {
		return nil, nil, err
	}
	if x, err = k.nics[a].newQP(&c, 0); err != nil {
		return nil, nil, err
	}
	if y, err = k.nics[b].newQP(&c, 1); err != nil {
		x.Close()
		return nil, nil, err
	}
	for _, err := range []error{x.connect(y, &c), y.connect(x, &c)} {
		if err != nil {
			x.Close()
			y.Close()
			return nil, nil, err
		}
	}
	return x, y, nil
}

// AddressHandle returns the address handle that leads to q.
func (q *QP) AddressHandle() uint32 { return uint32(q.Node()) + 1 }

// Datagrams makes a UD queue pair on a host, on its first NIC. See QP.AddressHandle.
func (k *Cluster) Datagrams(host int, c QPConfig) (*QP, error) {
	if host < 0 || host >= k.Hosts() {
		return nil, fmt.Errorf("%w: %d of %d", ErrHost, host, k.Hosts())
	}
	if k.machines != nil {
		host = k.machines.nics[host][0]
	}
	return k.nics[host].datagrams(c)
}

// DatagramPair makes UD queue pairs on two hosts, on NICs that reach each other.
func (k *Cluster) DatagramPair(a, b int, c QPConfig) (x, y *QP, err error) {
	if a, b, err = k.ends(a, b); err != nil {
		return nil, nil, err
	}
	if x, err = k.nics[a].datagrams(c); err != nil {
		return nil, nil, err
	}
	if y, err = k.nics[b].datagrams(c); err != nil {
		x.Close()
	}
	return x, y, err
}

// datagrams makes a UD queue pair.
func (n *NIC) datagrams(c QPConfig) (*QP, error) {
	c.Type = qp.UD
	q, err := n.newQP(&c, 0)
	if err == nil {
		err = q.connect(q, &c)
	}
	return q, err
}

// newQP makes one end of c.
func (n *NIC) newQP(c *QPConfig, end int) (*QP, error) {
	if q := c.Spares.take(n); q != nil {
		return q, n.reopen(q, c)
	}
	prof, err := c.Profile(int(n.host))
	if err != nil {
		return nil, err
	}
	q := &QP{Ctx: c.Ctx, nic: n, user: c.User, recvs: c.SRQ[end], shared: c.SRQ[end] != nil, spares: c.Spares}
	if m := c.Memory[end]; m != nil {
		q.memory = &m
	}
	if q.typ = c.Type; q.typ == 0 {
		q.typ = qp.RC
	}
	if err := n.number(q); err != nil {
		return nil, err
	}
	tuning := c.Tuning
	tuning.PathSeed = q.pathSeed(c)
	const queue = 1 << 20 // the rings are Go slices
	config := qp.Config{Type: q.typ, QPN: q.num, Profile: prof, Host: (*host)(q), Counters: &n.k.ctr, Scratch: &n.k.temp,
		MaxSendWR: queue, MaxSendSGE: uint32(max(c.Elements, 1)), MaxRecvSGE: 1, MaxInline: 8, SigAll: true, HasSRQ: c.SRQ[end] != nil,
		MaxUnacked: c.MaxUnacked, CNPInterval: c.CNPInterval, DataHeader: uint8(min(n.k.cfg.Framing.Header, 255)), Tuning: tuning,
		UnlimitedRetries: c.UnlimitedRetries, Phantom: q.memory == nil}
	pacedWith(&config)
	q.core = qp.New(config)
	q.traffic = q.trafficClass(c)
	q.node.Init(n.turns.Class(c.Class), 1, q)
	q.timer.Item = q
	return q, nil
}

func (q *QP) pathSeed(c *QPConfig) uint64 {
	if c.Tuning.PathSeed != 0 {
		return c.Tuning.PathSeed
	}
	return uint64(q.nic.host)<<32 | uint64(q.num)
}

func (q *QP) trafficClass(c *QPConfig) uint8 {
	if c.Traffic == 0 {
		return q.nic.k.cfg.Classes.Data
	}
	return c.Traffic
}

// number assigns the least recently used number to q.
func (n *NIC) number(q *QP) error {
	if last := len(n.unused) - 1; last >= 0 {
		q.num = bth.QPN(n.unused[last]+1<<slotBits) & bth.MaxQPN
		n.unused = n.unused[:last]
		n.qps[q.num&slotMask] = q
		return nil
	}
	if len(n.qps) == 0 {
		n.qps = make([]*QP, 2, 8) // 0 and 1 are reserved (IBTA vol.1 10.2.4.5)
		if n.k.cfg.Engines != nil {
			n.used = make([]engine.Time, 2, 8)
		}
	}
	if len(n.qps) > slotMask {
		return fmt.Errorf("host %d: out of queue pair numbers", n.host)
	}
	q.num = bth.QPN(len(n.qps))
	n.qps = append(n.qps, q)
	if n.used != nil {
		n.used = append(n.used, 0)
	}
	return nil
}

// connect brings q to RTS (IBTA vol.1 10.3.1).
func (q *QP) connect(peer *QP, c *QPConfig) error {
	n := q.nic
	q.peerHost = peer.nic.host
	q.port = uint16(0xc000 | (uint32(q.num)^uint32(peer.num)<<7^uint32(q.num)>>10)&0x3fff)
	q.hash = n.k.hash(n.host, q.peerHost, uint32(q.port))
	if err := q.pin(c.Via); err != nil {
		return err
	}
	a := qp.Attr{Port: 1, AccessFlags: qp.AccessLocalWrite | qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic,
		QKey: c.QKey, DestQPN: uint32(peer.num), RQPSN: c.FirstPSN, SQPSN: c.FirstPSN, MaxRdAtomic: c.ReadDepth, MaxDestRdAtomic: c.ReadDepth,
		MinRNRTimer: 1, Timeout: c.Timeout, RetryCnt: c.RetryCnt, RNRRetry: 7, PathMTU: qp.MTU(c.MTU)}
	if c.MTU == 0 {
		a.PathMTU = qp.MTU(n.k.cfg.MTU)
	}
	if c.ReadDepth == 0 {
		a.MaxRdAtomic, a.MaxDestRdAtomic = 16, 16
	}
	if c.Timeout == 0 {
		a.Timeout = 14
	}
	if c.RetryCnt == 0 {
		a.RetryCnt = 7
	}
	if c.NoRNRRetry {
		a.RNRRetry = 0
	}
	q.sends.first, q.mtu = bth.MakePSN(c.FirstPSN), uint16(a.PathMTU.Bytes())
	if a.PathMTU.Bytes() > n.k.cfg.MTU {
		return fmt.Errorf("path MTU %d: exceeds the NICs' %d", a.PathMTU.Bytes(), n.k.cfg.MTU)
	}
	if q.typ != qp.UD {
		f := qp.Flow{Port: q.port}
		binary.BigEndian.PutUint32(f.Dst[12:], uint32(q.peerHost))
		q.core.SetFlow(f)
	}
	now := n.k.eng.Now().Mono()
	for _, step := range steps[q.typ] {
		a.State = step.state
		if err := q.core.Modify(now, a, step.attrs|qp.AttrState); err != nil {
			return err
		}
	}
	q.core.SetMTU(a.PathMTU)
	q.ecn = q.core.ECNCapable()
	q.ports = 1<<len(n.ports) - 1
	n.reportPorts(q)
	return nil
}

// pin changes q's source port until its packets pass through a switch.
func (q *QP) pin(via string) error {
	n := q.nic
	g := n.k.all.net.Graph()
	for range 1 << 14 {
		if via == "" || n.k.all.net.Passes(int(n.host), int(q.peerHost), q.hash, via) {
			return nil
		}
		q.port = 0xc000 | (q.port+1)&0x3fff
		q.hash = n.k.hash(n.host, q.peerHost, uint32(q.port))
	}
	return fmt.Errorf("no source port leads from host %d to host %d through %q by the hash of flows", g.Machine(int(n.host)), g.Machine(int(q.peerHost)), via)
}

// step is a state transition and its attributes.
type step struct {
	state qp.State
	attrs qp.AttrMask
}

var steps = map[qp.Type][]step{
	qp.RC: {
		{qp.Init, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags},
		{qp.RTR, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer},
		{qp.RTS, qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic},
	},
	qp.UC: {
		{qp.Init, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags},
		{qp.RTR, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN},
		{qp.RTS, qp.AttrSQPSN},
	},
	qp.UD: {
		{qp.Init, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey},
		{qp.RTR, 0},
		{qp.RTS, qp.AttrSQPSN},
	},
}

// Num returns the queue pair's number.
func (q *QP) Num() bth.QPN { return q.num }

// Host returns the number of its host.
func (q *QP) Host() int { return q.nic.k.all.net.Graph().Machine(int(q.nic.host)) }

// State returns its state.
func (q *QP) State() qp.State { return q.core.State() }

// Limits returns the congestion window in bytes and the rate in bits per second.
func (q *QP) Limits() (window, rate uint64) { return q.core.Limits() }

// Trace sets the tracer of q.
func (q *QP) Trace(t qp.Tracer) { q.core.SetTracer(q.nic.k.eng.Now().Mono(), t) }

// Post appends a request to the send queue. It copies w, but not its segments, of which there are at most
// QPConfig.Elements.
func (q *QP) Post(w qp.SendWQE) {
	q.sends.push(w)
	now := q.nic.k.eng.Now()
	q.core.Doorbell(now.Mono())
	q.nic.settle(now, q)
}

// PostRecv appends a receive to the queue pair's own queue.
func (q *QP) PostRecv(w RecvWR) {
	if q.recvs == nil {
		q.recvs = new(Receives)
	}
	q.recvs.Post(w)
	q.core.RecvPosted(q.nic.k.eng.Now().Mono())
}

// Close ends q. Packets in flight to it are lost. New queue pairs use its number and its memory.
func (q *QP) Close() {
	q.Stop()
	if q.closed == stopped {
		q.closed = released
		q.nic.unused = append(q.nic.unused, uint32(q.num))
		q.spares.give(q)
	}
}

// Stop ends q but keeps its number and memory until Close.
func (q *QP) Stop() {
	if q.closed >= stopped {
		return
	}
	n := q.nic
	q.closed = stopped
	n.waitNoMore(q)
	n.turns.Remove(&q.node)
	n.deadlines.Remove(&q.timer)
	if n.deadlines.Next() == mono.Never {
		n.k.eng.Stop(&n.timer)
	}
	if q.holding {
		n.k.slab.free(q.held)
		q.holding = false
	}
	if n.left == q {
		n.left = nil
	}
	if t := n.toReturn(q); t != nil {
		t.N = 0
	}
	q.core.CloseTrace()
	q.core.ClearFlow()
	if err := q.core.Modify(n.k.eng.Now().Mono(), qp.Attr{}, qp.AttrState); err != nil {
		panic(fmt.Sprintf("a queue pair cannot be reset: %v", err)) // it always can (IBTA vol.1 10.3.1.1)
	}
	n.qps[q.num&slotMask] = nil
}

// Part returns the number of the part of its host.
func (q *QP) Part() int { return q.nic.k.id }

// Used returns when a packet last arrived at q or left it, or its last timeout. Only networks with windows record it.
func (q *QP) Used() engine.Time { return q.nic.used[q.num&slotMask] }

// Placed returns the payload bytes that q has written to memory.
func (q *QP) Placed() uint64 { return q.placed }

// Node returns q's node of the network.
func (q *QP) Node() fabric.Node { return fabric.Node(q.nic.host) }

// Peer returns the number of the connected queue pair.
func (q *QP) Peer() bth.QPN { return bth.QPN(q.core.Attr().DestQPN) }
