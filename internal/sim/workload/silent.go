package workload

import (
	"fmt"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// silent carries messages over UC or UD, whose senders get no acknowledgements. Each message has its number as
// immediate data, so that the destination knows which ones have arrived.
type silent struct {
	r        *Runner
	from, to *nic.QP
	flows    map[uint32]*Flow
	posted   qp.SendWQE // common to all messages
}

// connectSilent makes a carrier for f, whose service is not RC.
func (r *Runner) connectSilent(f *Flow) (carrier, error) {
	c := &silent{r: r, flows: map[uint32]*Flow{}}
	q := r.transport(f).QP
	q.User = c
	var err error
	switch {
	case f.Service == UC && (f.Verb == Send || f.Verb == WriteImm):
		q.Type = qp.UC
		c.from, c.to, err = r.k.Connect(f.Src, f.Dst, q)
	case f.Service == UC:
		return nil, fmt.Errorf("UC supports only send and write_imm")
	case f.Verb != Send:
		return nil, fmt.Errorf("UD supports only send")
	default:
		c.from, c.to, err = r.datagrams(f, q)
	}
	if err != nil {
		return nil, err
	}
	c.posted = qp.SendWQE{Opcode: qp.WRSendImm, AH: c.to.AddressHandle(), RemoteQPN: uint32(c.to.Num()), RemoteQKey: q.QKey}
	if f.Verb == WriteImm {
		c.posted.Opcode = qp.WRWriteImm
	}
	if r.cfg.Opened != nil {
		r.cfg.Opened(c.from, c.to, f)
	}
	return c, nil
}

// datagrams makes a UD queue pair at each end.
func (r *Runner) datagrams(f *Flow, q nic.QPConfig) (from, to *nic.QP, err error) {
	if mtu := q.MTU; f.Bytes > uint32(mtu) {
		return nil, nil, fmt.Errorf("message of %d bytes: UD carries at most the MTU, %d", f.Bytes, mtu)
	}
	return r.k.DatagramPair(f.Src, f.Dst, q)
}

// post starts f. If f is lost, the next message takes its receive.
func (c *silent) post(f *Flow) {
	c.flows[uint32(f.ID)] = f
	c.to.PostRecv(nic.RecvWR{Length: MaxMessage})
	w := c.posted
	w.Imm, w.Length = uint32(f.ID), f.Bytes
	c.from.Post(w)
}

// Completed implements nic.User.
func (c *silent) Completed(now engine.Time, q *nic.QP, e qp.CQE, receive bool) {
	f := c.flows[e.Imm]
	if !receive || f == nil {
		return // a send completion, or a flushed receive
	}
	delete(c.flows, e.Imm)
	if e.Status == qp.StatusSuccess && f.App != nil {
		f.App.Delivered(now, c.r, f)
	}
	f.End, f.Failed = now, e.Status != qp.StatusSuccess
	c.r.end(ending{f: f, from: c.from, to: c.to}, q)
}
