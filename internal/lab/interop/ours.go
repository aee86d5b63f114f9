package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"roced.io/roced/verbs"
)

// ours is an end on a NIC of roced, driven by the Go client.
type ours struct {
	ctx  *verbs.Context
	pd   *verbs.PD
	mr   *verbs.MR
	addr [2]netip.Addr // IPv4, IPv6

	cq       *verbs.CQ
	qp       *verbs.QP
	ah       *verbs.AH
	mw       *verbs.MW
	settings settings
	peer     address
}

// queueDepth is the depth of work queues of both ends.
const queueDepth = 256

// unreliableRate is the rate of a UC queue pair of ours, in packets per second: the most that the emulated machine
// receives without loss.
const unreliableRate = 12000

// newOurs opens the device of a socket.
func newOurs(socket string, v4, v6 netip.Addr) (*ours, error) {
	ctx, err := verbs.Open(socket)
	if err != nil {
		return nil, err
	}
	o := &ours{ctx: ctx, addr: [2]netip.Addr{v4, v6}}
	if o.pd, err = ctx.AllocPD(); err == nil {
		o.mr, err = o.pd.AllocMR(bufferSize, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|
			verbs.AccessRemoteAtomic|verbs.AccessMWBind)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return o, nil
}

// params translates the settings.
func (o *ours) params() (verbs.ConnParams, error) {
	p := verbs.DefaultConnParams()
	s := o.settings
	p.MTU, p.QKey, p.Timeout, p.RetryCnt, p.RNRRetry, p.MinRNRTimer = s.MTU, qkey, s.Timeout, s.RetryCnt, s.RNRRetry, minRNRTimer
	want := o.addr[0]
	if s.IPv6 {
		want = o.addr[1]
	}
	for i := 0; ; i++ {
		g, err := o.ctx.QueryGID(1, i)
		if err != nil {
			return p, fmt.Errorf("no GID %v: %w", want, err)
		}
		if g == verbs.GIDOf(want) {
			p.SGIDIndex = i
			return p, nil
		}
	}
}

func (o *ours) Open(s settings) (address, error) {
	o.settings = s
	p, err := o.params()
	if err != nil {
		return address{}, err
	}
	if o.cq, err = o.ctx.CreateCQ(2*queueDepth, nil); err != nil {
		return address{}, err
	}
	o.qp, err = o.pd.CreateQP(verbs.QPInitAttr{Type: s.Type, SendCQ: o.cq, RecvCQ: o.cq, MaxSendWR: queueDepth,
		MaxRecvWR: queueDepth, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return address{}, err
	}
	info, err := o.qp.Info(p)
	if err != nil {
		return address{}, err
	}
	return address{QPN: info.QPN, PSN: info.PSN, GID: info.GID, Addr: o.mr.Addr(), RKey: o.mr.RKey()}, o.qp.ToInit(p)
}

func (o *ours) Connect(peer address) error {
	o.peer = peer
	p, err := o.params()
	if err != nil {
		return err
	}
	if err := o.qp.ToRTR(verbs.ConnInfo{QPN: peer.QPN, PSN: peer.PSN, GID: peer.GID}, p); err != nil {
		return err
	}
	if err := o.qp.ToRTS(p); err != nil || o.settings.Type == verbs.RC {
		return err
	}
	if o.settings.Type == verbs.UC {
		return o.qp.Modify(verbs.QPAttr{RateLimit: uint32(bytesOf(p.MTU)) * unreliableRate * 8 / 1000}, verbs.AttrRateLimit)
	}
	o.ah, err = o.pd.CreateAH(verbs.AHAttr{DGID: peer.GID, SGIDIndex: p.SGIDIndex})
	return err
}

func (o *ours) Fill(off, n int, seed, from uint64) error {
	fill(o.mr.Bytes()[off:off+n], seed, from)
	return nil
}

func (o *ours) Check(off, n int, seed, from uint64) error {
	return check(o.mr.Bytes()[off:off+n], seed, from)
}

func (o *ours) Word(off int) (uint64, error) { return o.mr.LoadUint64(off), nil }

func (o *ours) SetWord(off int, v uint64) error {
	o.mr.StoreUint64(off, v)
	return nil
}

func (o *ours) Recv(id uint64, off, n int) error {
	return o.qp.PostRecv(&verbs.RecvWR{WRID: id, SGEs: []verbs.SGE{o.mr.SGE(off, n)}})
}

func (o *ours) Send(w work) error {
	wr := verbs.SendWR{WRID: w.ID, Opcode: w.Op, Flags: verbs.SendSignaled, Imm: w.Imm, RKey: w.RKey,
		RemoteAddr: o.peer.Addr + uint64(w.Remote), CompareAdd: w.Compare, Swap: w.Swap,
		AH: o.ah, RemoteQPN: o.peer.QPN, RemoteQKey: qkey}
	if w.RKey == 0 {
		wr.RKey = o.peer.RKey
	}
	if w.Len > 0 {
		wr.SGEs = []verbs.SGE{o.mr.SGE(w.Off, w.Len)}
	}
	return o.qp.PostSend(&wr)
}

func (o *ours) Poll(n int, limit time.Duration) ([]verbs.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out := make([]verbs.WC, 0, n)
	for len(out) < n {
		var wcs [1]verbs.WC
		_, err := o.cq.PollWait(ctx, wcs[:])
		if errors.Is(err, context.DeadlineExceeded) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, wcs[0])
	}
	return out, nil
}

func (o *ours) Stream(w work, depth int, limit time.Duration) (streamed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin := time.Now()
	var s streamed
	var wcs [32]verbs.WC
	for posted := 0; s.Status == verbs.StatusSuccess; {
		for ; posted-s.Done < depth; posted++ {
			if err := o.Send(w); err != nil {
				return s, err
			}
		}
		n, err := o.cq.PollWait(ctx, wcs[:])
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return s, err
		}
		if err != nil {
			break
		}
		for _, wc := range wcs[:n] {
			if s.Status = wc.Status; s.Status != verbs.StatusSuccess {
				break
			}
			s.Done++
		}
	}
	s.Time = time.Since(begin)
	return s, nil
}

func (o *ours) Window(off, n int) (rkey uint32, err error) {
	if o.mw != nil {
		if err := o.mw.Dealloc(); err != nil {
			return 0, err
		}
	}
	if o.mw, err = o.pd.AllocMW(verbs.MWType2); err != nil {
		return 0, err
	}
	rkey, err = o.qp.BindMW(0, verbs.SendSignaled, verbs.MWBind{MW: o.mw, MR: o.mr, Offset: off, Length: n,
		Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead})
	if err != nil {
		return 0, err
	}
	wcs, err := o.Poll(1, time.Second)
	if err == nil && (len(wcs) != 1 || wcs[0].Status != verbs.StatusSuccess) {
		err = fmt.Errorf("bind: completions %+v", wcs)
	}
	return rkey, err
}

func (o *ours) State() (verbs.QPState, error) {
	a, err := o.qp.Query()
	return a.State, err
}

func (o *ours) Fail() error { return o.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.AttrState) }

func (o *ours) Close() error {
	var errs []error
	if o.qp != nil {
		errs = append(errs, o.qp.Destroy())
	}
	if o.mw != nil {
		errs = append(errs, o.mw.Dealloc())
	}
	if o.ah != nil {
		errs = append(errs, o.ah.Destroy())
	}
	if o.cq != nil {
		errs = append(errs, o.cq.Destroy())
	}
	o.qp, o.mw, o.ah, o.cq = nil, nil, nil, nil
	return errors.Join(errs...)
}
