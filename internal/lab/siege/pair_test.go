package siege

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"roced.io/roced/verbs"
)

// pair is a set of connected queue pairs between the two NICs of a daemon.
type pair struct {
	ctx      [2]*verbs.Context
	from, to []*verbs.QP
	cq       *verbs.CQ
	src, dst *verbs.MR
	depth    int // work requests in a send queue; 0 means 16
	pds      [2]*verbs.PD
}

// newPair connects n queue pairs of the first NIC with as many of the second.
func newPair(runDir string, n, size int) (*pair, error) {
	p := &pair{}
	if err := p.connect([2]string{device(runDir, 0), device(runDir, 1)}, n, size); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// connect connects n queue pairs of the first device with as many of the second.
func (p *pair) connect(devices [2]string, n, size int) error {
	if err := p.open(devices, n, size); err != nil {
		return err
	}
	return p.join([2]verbs.ConnParams{connParams(), connParams()})
}

// connParams returns usual parameters, with one UDP source port for all. Ports on sockets keep a socket for each used
// source port, up to 64 for an address.
func connParams() verbs.ConnParams {
	p := verbs.DefaultConnParams()
	p.FlowLabel = 1
	return p
}

// open opens the devices and creates the queue pairs.
func (p *pair) open(devices [2]string, n, size int) (err error) {
	var qps [2][]*verbs.QP
	for i := range p.ctx {
		if p.ctx[i], err = verbs.Open(devices[i]); err != nil {
			return err
		}
		pd, err := p.ctx[i].AllocPD()
		if err != nil {
			return err
		}
		p.pds[i] = pd
		depth := cmp.Or(p.depth, 16)
		cq, err := p.ctx[i].CreateCQ(max(64, depth)*n, nil)
		if err != nil {
			return err
		}
		mr, err := pd.AllocMR(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
		if err != nil {
			return err
		}
		if i == 0 {
			p.cq, p.src = cq, mr
		} else {
			p.dst = mr
		}
		for range n {
			q, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1})
			if err != nil {
				return err
			}
			qps[i] = append(qps[i], q)
		}
	}
	p.from, p.to = qps[0], qps[1]
	return nil
}

// join connects the queue pairs, each side with its own parameters.
func (p *pair) join(side [2]verbs.ConnParams) error {
	for i := range p.from {
		a, err1 := p.from[i].Info(side[0])
		b, err2 := p.to[i].Info(side[1])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := errors.Join(p.to[i].Connect(a, side[1]), p.from[i].Connect(b, side[0])); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) close() {
	for _, c := range p.ctx {
		if c != nil {
			c.Close()
		}
	}
}

// post writes the first n bytes to the other end.
func (p *pair) post(i, n int) error {
	return p.from[i].PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{p.src.SGE(0, n)},
		RemoteAddr: p.dst.Addr(), RKey: p.dst.RKey()})
}

// reap polls completions.
func (p *pair) reap(int) error {
	var wcs [64]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	for _, wc := range wcs[:max(n, 0)] {
		if err == nil {
			err = wc.Err()
		}
	}
	return err
}

// write writes n bytes of a new pattern and checks their arrival. It returns the duration, or an error.
func (p *pair) write(ctx context.Context, pattern byte, n int) (time.Duration, error) {
	for i := range n {
		p.src.Bytes()[i] = pattern + byte(i)
	}
	begun := time.Now()
	if err := p.post(0, n); err != nil {
		return 0, err
	}
	var wcs [1]verbs.WC
	if _, err := p.cq.PollWait(ctx, wcs[:]); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	if err := wcs[0].Err(); err != nil {
		return took, err
	}
	for i := range n {
		if p.dst.Bytes()[i] != pattern+byte(i) {
			return 0, fmt.Errorf("byte %d is %d, want %d", i, p.dst.Bytes()[i], pattern+byte(i))
		}
	}
	return took, nil
}
