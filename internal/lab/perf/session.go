package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/verbs"
)

const (
	grhLen      = 40     // UD receives begin with a GRH
	qkey        = 0x1ee7 // Q_Key of the test's UD queue pairs
	maxRdAtomic = 16
	rnrTimer    = 1 // 10 us
	verifyBytes = 4 << 20
)

// side is one end of a test: its verbs objects and its state of the peer.
type side struct {
	Params
	dev    *verbs.Context
	pd     *verbs.PD
	sendCQ *verbs.CQ
	recvCQ *verbs.CQ
	mr     *verbs.MR
	lanes  []*lane
	oob    *oob
	peer   hello
	params verbs.ConnParams
	slots  int // messages of a lane with separate memory
	stride int // bytes of a slot
	mtu    int
	active bool // true on the client
	meter  func(messages uint64)

	channel *verbs.CompChannel // with --events
	armed   map[*verbs.CQ]bool
}

// lane is one queue pair of a test.
type lane struct {
	q      *verbs.QP
	index  int
	ah     *verbs.AH
	remote verbs.ConnInfo
	posted uint64 // messages posted
	base   uint64 // verification: messages before this round
	done   uint64 // messages known to be complete
	recvd  uint64
	fed    uint64 // receive work requests posted so far
	wrs    []verbs.SendWR
	sges   []verbs.SGE

	recvs    [recvBatch]verbs.RecvWR
	recvSGEs [recvBatch]verbs.SGE
}

// recvBatch is the maximum number of receives in one post.
const recvBatch = 32

// open creates all objects of one side. The caller must close the result, even after an error: until then report can
// ask the device for the cause.
func open(o *Options, p Params, c *oob, active bool) (s *side, err error) {
	s = &side{Params: p, oob: c, active: active, armed: map[*verbs.CQ]bool{}}
	if s.dev, err = openDevice(o); err != nil {
		return s, err
	}
	if p.Profile != "" {
		if err = s.dev.SetProfile(p.Profile); err != nil {
			return s, err
		}
	}
	if err = s.layOut(); err != nil {
		return s, err
	}
	s.params = s.connParams(o.GIDIndex)
	if s.pd, err = s.dev.AllocPD(); err != nil {
		return s, err
	}
	const all = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	if s.mr, err = s.pd.AllocMR(2*p.QPs*s.slots*s.stride, all); err != nil {
		return s, err
	}
	return s, s.openLanes()
}

// layOut divides the memory into an outgoing and an incoming half. Each message has its own slot if the test checks
// contents.
func (s *side) layOut() error {
	port, err := s.dev.QueryPort(1)
	if err != nil {
		return err
	}
	if s.mtu = port.ActiveMTU.Bytes(); s.MTU != 0 && s.MTU < s.mtu {
		s.mtu = s.MTU
	}
	if s.Connection == "ud" && s.Size > s.mtu {
		return fmt.Errorf("a datagram of %d bytes does not fit into the path MTU, %d", s.Size, s.mtu)
	}
	s.slots = 1
	if s.Verify {
		s.slots = max(1, min(s.TxDepth, s.RxDepth, verifyBytes/(s.Size*s.QPs)))
	}
	s.stride = (grhLen + s.Size + 63) &^ 63
	return nil
}

func (s *side) openLanes() (err error) {
	if s.Events {
		if s.channel, err = s.dev.CreateCompChannel(); err != nil {
			return err
		}
	}
	if s.sendCQ, err = s.dev.CreateCQ(s.QPs*s.TxDepth, s.channel); err != nil {
		return err
	}
	if s.recvCQ, err = s.dev.CreateCQ(s.QPs*s.RxDepth, s.channel); err != nil {
		return err
	}
	for i := range s.QPs {
		l := &lane{index: i, wrs: make([]verbs.SendWR, s.CQMod), sges: make([]verbs.SGE, s.CQMod)}
		if l.q, err = s.pd.CreateQP(verbs.QPInitAttr{
			Type: types[s.Connection], SendCQ: s.sendCQ, RecvCQ: s.recvCQ,
			MaxSendWR: s.TxDepth, MaxRecvWR: s.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: s.Inline,
		}); err != nil {
			return err
		}
		s.lanes = append(s.lanes, l)
	}
	return nil
}

var types = map[string]verbs.QPType{"rc": verbs.RC, "uc": verbs.UC, "ud": verbs.UD}

// openDevice opens the device by name, or the first one in the run directory.
func openDevice(o *Options) (*verbs.Context, error) {
	devs, err := verbs.Devices(o.RunDir)
	if err != nil {
		return nil, err
	}
	for i, d := range devs {
		if o.Device == "" || o.Device == d.Name || o.Device == fmt.Sprint(i) {
			return verbs.Open(d.Path)
		}
	}
	dir := cmp.Or(o.RunDir, verbs.DefaultRunDir())
	if len(devs) == 0 {
		return nil, environment.Absent(dir)
	}
	names := make([]string, len(devs))
	for i, d := range devs {
		names[i] = d.Name
	}
	return nil, fmt.Errorf("no device %q in %s; there are %s", o.Device, dir, strings.Join(names, ", "))
}

func (s *side) close() {
	if s.dev != nil {
		s.dev.Close()
	}
}

// out and in return the offsets of a lane's slot in the region.
func (s *side) out(l *lane, slot uint64) int {
	return (l.index*s.slots + int(slot%uint64(s.slots))) * s.stride
}

func (s *side) in(l *lane, slot uint64) int { return s.QPs*s.slots*s.stride + s.out(l, slot) }

// introduce sends this side's hello.
func (s *side) introduce(p *Params) error {
	h := hello{Version: version, Params: p, Addr: s.mr.Addr(), RKey: s.mr.RKey()}
	for _, l := range s.lanes {
		info, err := l.q.Info(s.params)
		if err != nil {
			return err
		}
		h.QPs = append(h.QPs, info)
	}
	return s.oob.send(h)
}

// meet connects all queue pairs to the peer's.
func (s *side) meet(h hello) error {
	if len(h.QPs) != len(s.lanes) {
		return fmt.Errorf("the other side has %d queue pairs instead of %d: use the same --qps", len(h.QPs), len(s.lanes))
	}
	s.peer = h
	for i, l := range s.lanes {
		l.remote = h.QPs[i]
		if err := s.connect(l); err != nil {
			return err
		}
	}
	return nil
}

// connParams returns the connection parameters of this side.
func (s *side) connParams(gid int) verbs.ConnParams {
	p := verbs.DefaultConnParams()
	p.SGIDIndex, p.MTU, p.QKey = gid, mtuCode(s.mtu), qkey
	p.Timeout, p.RetryCnt, p.MinRNRTimer = uint8(s.Timeout), uint8(s.RetryCnt), rnrTimer
	p.MaxRdAtomic, p.MaxDestRdAtomic = maxRdAtomic, maxRdAtomic
	return p
}

func (s *side) connect(l *lane) (err error) {
	p := s.params
	if l.remote.MTU != 0 {
		p.MTU = min(p.MTU, l.remote.MTU)
	}
	if err := l.q.Connect(l.remote, p); err != nil || s.Connection != "ud" {
		return err
	}
	gid := p.SGIDIndex
	if gid < 0 {
		if gid, _, err = s.dev.DefaultGID(); err != nil {
			return err
		}
	}
	l.ah, err = s.pd.CreateAH(verbs.AHAttr{DGID: l.remote.GID, SGIDIndex: gid})
	return err
}

func mtuCode(bytes int) verbs.MTU {
	for m := verbs.MTU4096; m > verbs.MTU256; m-- {
		if m.Bytes() <= bytes {
			return m
		}
	}
	return verbs.MTU256
}

// headroom returns the number of bytes before the payload in a receive buffer.
func (s *side) headroom() int {
	if s.Connection == "ud" {
		return grhLen
	}
	return 0
}

// request fills w with message n of a lane.
func (s *side) request(l *lane, n uint64, w *verbs.SendWR, sge []verbs.SGE) {
	off := s.out(l, n)
	sge[0] = s.mr.SGE(off, s.Size)
	*w = verbs.SendWR{WRID: uint64(l.index)<<48 | n, SGEs: sge[:1]}
	remote := s.peer.Addr + uint64(s.in(l, n))
	switch s.op() {
	case "write":
		w.Opcode, w.RemoteAddr, w.RKey = verbs.OpWrite, remote, s.peer.RKey
	case "read":
		sge[0].Addr = s.mr.Addr() + uint64(s.in(l, n))
		w.Opcode, w.RemoteAddr, w.RKey = verbs.OpRead, s.peer.Addr+uint64(off), s.peer.RKey
	case "atomic":
		sge[0] = s.mr.SGE(s.in(l, n), 8)
		w.Opcode, w.RemoteAddr, w.RKey, w.CompareAdd = verbs.OpFetchAdd, remote&^7, s.peer.RKey, 1
	case "send":
		w.Opcode = verbs.OpSend
		if l.ah != nil {
			w.AH, w.RemoteQPN, w.RemoteQKey = l.ah, l.remote.QPN, qkey
		}
	}
	if s.Size <= s.Inline && (w.Opcode == verbs.OpWrite || w.Opcode == verbs.OpSend) {
		w.Flags, w.Inline, w.SGEs = verbs.SendInline, s.mr.Bytes()[off:off+s.Size], nil
	}
}

// report sends an error to the peer, unless it came from there. It returns the root cause.
func (s *side) report(err error) error {
	if err == nil {
		return nil
	}
	if s.dev != nil && s.dev.Err() != nil {
		err = s.dev.Err() // the daemon ended, which explains the later errors
	} else if s.oob.ctx.Err() != nil {
		return context.Cause(s.oob.ctx)
	}
	err = s.cause(err)
	if e := new(verbs.CompletionError); errors.As(err, &e) && e.Status == verbs.StatusRetryExcErr {
		err = fmt.Errorf("%w: the peer's NIC did not answer; check with \"rocectl link\" that both links are up, and with \"rocectl watch\" "+
			"that UDP port 4791 passes", err)
	}
	if !errors.Is(err, errPeer) && !errors.Is(err, errGone) {
		// Best effort: the connection itself may have failed.
		_ = s.oob.send(note{Kind: "error", Error: err.Error()})
	}
	return err
}

// cause returns the completion error that moved a queue pair to the error state, if err is only a flush error. The
// two may be in different queues, which are polled in any order.
func (s *side) cause(err error) error {
	if e := new(verbs.CompletionError); !errors.As(err, &e) || e.Status != verbs.StatusWRFlushErr {
		return err
	}
	var wcs [16]verbs.WC
	for _, q := range []*verbs.CQ{s.sendCQ, s.recvCQ} {
		for n, perr := q.Poll(wcs[:]); n > 0 && perr == nil; n, perr = q.Poll(wcs[:]) {
			for i := range wcs[:n] {
				if w := &wcs[i]; w.Status != verbs.StatusSuccess && w.Status != verbs.StatusWRFlushErr {
					return w.Err()
				}
			}
		}
	}
	return err
}
