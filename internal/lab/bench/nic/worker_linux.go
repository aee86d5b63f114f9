package nic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"roced.io/roced/verbs"
)

// Work runs a program of a group of pairs (workers). Its arguments are the run directory, the device, the task and its
// parameters.
func Work(args []string) error {
	if len(args) < 4 {
		return errors.New("worker: this command is for bench nic only")
	}
	w := &worker{runDir: args[0], device: args[1], enc: json.NewEncoder(os.Stdout), dec: json.NewDecoder(os.Stdin)}
	task, args := args[2], args[3:]
	var err error
	if w.ctx, err = verbs.Open(filepath.Join(w.runDir, "uverbs0")); err != nil {
		return err
	}
	defer w.ctx.Close()
	if w.pd, err = w.ctx.AllocPD(); err == nil {
		w.cq, err = w.ctx.CreateCQ(64, nil)
	}
	if err == nil {
		w.mr, err = w.pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	}
	if err != nil {
		return err
	}
	switch task {
	case "hold":
		return w.hold(number(args[0]))
	case "accept":
		return w.accept(args[0], number(args[1]))
	case "dial":
		return w.dial(args[0], number(args[1]), netip.MustParseAddrPort(args[2]), time.Duration(number(args[3]))*time.Second)
	}
	return fmt.Errorf("worker: no task %q", task)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err) // this package wrote it
	}
	return n
}

type worker struct {
	runDir, device string
	enc            *json.Encoder
	dec            *json.Decoder
	ctx            *verbs.Context
	pd             *verbs.PD
	cq             *verbs.CQ
	mr             *verbs.MR
}

func (w *worker) newQP() (*verbs.QP, error) {
	return w.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: w.cq, RecvCQ: w.cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1})
}

// offer has the addresses that a program with queue pairs sends to its peer.
type offer struct {
	QPs  []verbs.ConnInfo
	Addr uint64
	RKey uint32
}

// hold makes n queue pairs and connects them with those of another program. On request it writes over each queue pair.
func (w *worker) hold(n int) error {
	p := verbs.DefaultConnParams()
	mine := offer{Addr: w.mr.Addr(), RKey: w.mr.RKey()}
	var qps []*verbs.QP
	for range n {
		q, err := w.newQP()
		if err != nil {
			return err
		}
		info, err := q.Info(p)
		if err != nil {
			return err
		}
		qps, mine.QPs = append(qps, q), append(mine.QPs, info)
	}
	var theirs offer
	if err := errors.Join(w.enc.Encode(mine), w.dec.Decode(&theirs)); err != nil {
		return err
	}
	for i, q := range qps {
		if err := q.Connect(theirs.QPs[i], p); err != nil {
			return err
		}
	}
	for {
		if err := w.enc.Encode(true); err != nil {
			return err
		}
		var what string
		if err := w.dec.Decode(&what); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for _, q := range qps {
			if err := w.write(q, &theirs); err != nil {
				return err
			}
		}
	}
}

// write writes 64 B and waits for the completion.
func (w *worker) write(q *verbs.QP, to *offer) error {
	err := q.PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{w.mr.SGE(0, 64)},
		RemoteAddr: to.Addr, RKey: to.RKey})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wcs [1]verbs.WC
	if _, err := w.cq.PollWait(ctx, wcs[:]); err != nil {
		return err
	}
	return wcs[0].Err()
}

// pool is a set of queue pairs for connections: new or reused ones.
type pool struct {
	w    *worker
	free chan *verbs.QP // nil: each connection has a new one
}

func (w *worker) newPool(kind string, n int) (*pool, error) {
	p := &pool{w: w}
	if kind == "old" {
		p.free = make(chan *verbs.QP, n)
		for range n {
			q, err := w.newQP()
			if err != nil {
				return nil, err
			}
			p.free <- q
		}
	}
	return p, nil
}

func (p *pool) get() (*verbs.QP, error) {
	if p.free == nil {
		return p.w.newQP()
	}
	return <-p.free, nil
}

func (p *pool) put(q *verbs.QP) error {
	if p.free == nil {
		return q.Destroy()
	}
	defer func() { p.free <- q }()
	return q.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState)
}

// accept accepts connections until its standard input closes.
func (w *worker) accept(kind string, parallel int) error {
	m, err := verbs.OpenCM("", verbs.WithRunDir(w.runDir))
	if err != nil {
		return err
	}
	defer m.Close()
	qps, err := w.newPool(kind, 2*parallel)
	if err != nil {
		return err
	}
	l, err := m.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 4*parallel)
	if err != nil {
		return err
	}
	addr := netip.AddrPortFrom(netip.MustParseAddr("198.18.0.2"), l.Addr.Port())
	if err := w.enc.Encode(addr.String()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the parent closes it to end this program
		cancel()
	}()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		r, err := l.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := qps.serve(ctx, r); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "accept:", err)
			}
		})
	}
}

// serve handles a connection on the server's side.
func (p *pool) serve(ctx context.Context, r *verbs.CMRequest) error {
	q, err := p.get()
	if err != nil {
		return err
	}
	c, err := r.Accept(ctx, q, verbs.CMParams{})
	if err != nil {
		return errors.Join(err, p.put(q))
	}
	err = c.Wait(ctx)
	c.Close()
	return errors.Join(err, p.put(q))
}

// dialed has the number of connections and their rate per second.
type dialed struct {
	Count uint64
	Rate  float64
}

// dial makes connections for the duration d, parallel at a time, and prints their number.
func (w *worker) dial(kind string, parallel int, to netip.AddrPort, d time.Duration) error {
	m, err := verbs.OpenCM("", verbs.WithRunDir(w.runDir))
	if err != nil {
		return err
	}
	defer m.Close()
	qps, err := w.newPool(kind, parallel)
	if err != nil {
		return err
	}
	if err := qps.dial(m, to); err != nil { // it resolves the path
		return err
	}
	var all sync.WaitGroup
	var count atomic.Uint64
	errs := make(chan error, parallel)
	begun := time.Now()
	for range parallel {
		all.Go(func() {
			for time.Since(begun) < d {
				if err := qps.dial(m, to); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return errors.Join(err, w.enc.Encode(dialed{Count: count.Load(), Rate: float64(count.Load()) / took.Seconds()}))
}

// dial makes a connection on the client's side and closes it.
func (p *pool) dial(m *verbs.CM, to netip.AddrPort) error {
	q, err := p.get()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := m.Dial(ctx, to, q, verbs.CMParams{})
	if err != nil {
		return errors.Join(err, p.put(q))
	}
	err = c.Disconnect()
	if err == nil {
		err = c.Wait(ctx)
	}
	c.Close()
	return errors.Join(err, p.put(q))
}
