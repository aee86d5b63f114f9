package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// plainNIC carries the same calls on RC alone, like the paper's XRDMA. A request of up to 32 KB is a SEND. For a
// longer request the client asks the server for memory; the request is then a WRITE_WITH_IMM to this memory.
type plainNIC struct {
	ctx   *verbs.Context
	cm    *verbs.CM
	pd    *verbs.PD
	ch    *verbs.CompChannel
	cq    *verbs.CQ
	end   context.CancelFunc
	group sync.WaitGroup

	mu    sync.Mutex
	conns map[uint32]*plainConn
}

// Types of plainConn messages, in the first byte. The slot and the length follow, 4 B each. A grant also has an
// address and a key.
const (
	plainRequest byte = 1 + iota // carries its data
	plainAsk                     // asks for memory
	plainGrant
	plainAnswer
	plainHeader   = 24
	plainSend     = 32 << 10
	plainMaxDepth = 1024
)

// plainConn is a connection. Each call has a slot.
type plainConn struct {
	n           *plainNIC
	q           *verbs.QP
	cm          *verbs.CMConn
	size, depth int
	server      bool
	recv        *verbs.MR
	recvBytes   int
	data        *verbs.MR // slots: outgoing requests, or memory for the peer's WRITEs
	free        chan int
	done        []chan error
	over        chan struct{}
	closing     sync.Once
}

func openPlain(o *florOptions) (c carrier, err error) {
	n := &plainNIC{conns: map[uint32]*plainConn{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	runDir := verbs.WithRunDir(o.RunDir)
	if n.ctx, err = verbs.Open(o.Device, runDir); err != nil {
		return nil, err
	}
	if n.cm, err = verbs.OpenCM(n.ctx.Name(), runDir); err != nil {
		return nil, err
	}
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if n.ch, err = n.ctx.CreateCompChannel(); err != nil {
		return nil, err
	}
	if n.cq, err = n.ctx.CreateCQ(1<<16, n.ch); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.end = cancel
	n.group.Go(func() { n.poll(ctx) })
	return n, nil
}

func (n *plainNIC) counters() any        { return nil }
func (n *plainNIC) roundTrips() *Latency { return nil }

func (n *plainNIC) close() error {
	if n.end != nil {
		n.end()
		n.group.Wait()
	}
	var err error
	if n.cm != nil {
		err = n.cm.Close()
	}
	if n.ctx != nil {
		err = errors.Join(err, n.ctx.Close())
	}
	return err
}

// poll handles completions like Flor's loop: it polls for a short time before it sleeps.
func (n *plainNIC) poll(ctx context.Context) {
	var wcs [32]verbs.WC
	const spin = 20 * time.Microsecond
	for idle := time.Now(); ctx.Err() == nil; {
		k, err := n.cq.Poll(wcs[:])
		if err == nil && k == 0 && time.Since(idle) > spin {
			k, err = n.cq.Wait(ctx, wcs[:])
		}
		if err != nil {
			return
		}
		for i := range k {
			n.mu.Lock()
			c := n.conns[wcs[i].QPN]
			n.mu.Unlock()
			if c != nil {
				c.completed(&wcs[i])
			}
		}
		if k > 0 {
			idle = time.Now()
			continue
		}
		runtime.Gosched()
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// conn creates one end of a connection.
func (n *plainNIC) conn(size, depth int, server bool) (c *plainConn, err error) {
	c = &plainConn{n: n, size: size, depth: depth, server: server, over: make(chan struct{}), free: make(chan int, depth), recvBytes: 64}
	if server {
		c.recvBytes = min(size, plainSend) + plainHeader
	}
	if c.q, err = n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: n.cq, RecvCQ: n.cq, MaxSendWR: 4 * depth, MaxRecvWR: 2 * depth,
		MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: plainHeader}); err != nil {
		return nil, err
	}
	if c.recv, err = n.pd.AllocMR(2*depth*c.recvBytes, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	if c.data, err = n.pd.AllocMR(depth*(size+plainHeader), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return nil, err
	}
	if err = c.q.ToInit(verbs.DefaultConnParams()); err != nil {
		return nil, err
	}
	for i := range 2 * depth {
		if err := c.post(uint64(i)); err != nil {
			return nil, err
		}
	}
	for i := range depth {
		c.free <- i
		c.done = append(c.done, make(chan error, 1))
	}
	n.mu.Lock()
	n.conns[c.q.Num()] = c
	n.mu.Unlock()
	return c, nil
}

func (c *plainConn) post(i uint64) error {
	return c.q.PostRecv(&verbs.RecvWR{WRID: i, SGEs: []verbs.SGE{c.recv.SGE(int(i)*c.recvBytes, c.recvBytes)}})
}

func (n *plainNIC) dial(ctx context.Context, to netip.AddrPort, size, depth int) (caller, error) {
	c, err := n.conn(size, depth, false)
	if err != nil {
		return nil, err
	}
	private := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(size)), uint32(depth))
	if c.cm, err = n.cm.Dial(ctx, to, c.q, verbs.CMParams{PrivateData: private}); err != nil {
		return nil, err
	}
	return c, nil
}

func (n *plainNIC) serve(ctx context.Context, at netip.AddrPort, ready func()) error {
	l, err := n.cm.Listen(at, 64)
	if err != nil {
		return err
	}
	defer l.Close()
	ready()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		r, err := l.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		size, depth := int(binary.BigEndian.Uint32(r.PrivateData)), int(binary.BigEndian.Uint32(r.PrivateData[4:]))
		if size < 1 || size > 1<<20 || depth < 1 || depth > plainMaxDepth {
			_ = r.Reject(nil) // the request may have expired
			continue
		}
		c, err := n.conn(size, depth, true)
		if err != nil {
			_ = r.Reject(nil) // the request may have expired
			return err
		}
		if c.cm, err = r.Accept(ctx, c.q, verbs.CMParams{}); err != nil {
			return errors.Join(err, c.close())
		}
		group.Go(func() {
			_ = c.cm.Wait(ctx) // the reason of the end does not matter
			_ = c.close()      // the peer closed the connection
		})
	}
}

// close closes the connection.
func (c *plainConn) close() (err error) {
	c.closing.Do(func() {
		close(c.over)
		c.n.mu.Lock()
		delete(c.n.conns, c.q.Num())
		c.n.mu.Unlock()
		if c.cm != nil {
			_ = c.cm.Disconnect() // the peer may have disconnected first
			c.cm.Close()
		}
		err = errors.Join(c.q.Destroy(), c.recv.Dereg(), c.data.Dereg())
	})
	return err
}

// slot returns the offset of a slot's data. The header is directly before the data.
func (c *plainConn) slot(i int) int { return i*(c.size+plainHeader) + plainHeader }

func plainHead(b []byte, kind byte, slot, size int) []byte {
	clear(b[:plainHeader])
	b[0] = kind
	binary.BigEndian.PutUint32(b[4:], uint32(slot))
	binary.BigEndian.PutUint32(b[8:], uint32(size))
	return b[:plainHeader]
}

// call implements caller.
func (c *plainConn) call(ctx context.Context, size int) error {
	var i int
	select {
	case i = <-c.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { c.free <- i }()
	var head [plainHeader]byte
	wr := verbs.SendWR{WRID: sendOf(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if size <= plainSend {
		at := c.slot(i) - plainHeader
		plainHead(c.data.Bytes()[at:], plainRequest, i, size)
		wr.SGEs = []verbs.SGE{c.data.SGE(at, plainHeader+size)}
	} else {
		wr.Inline = plainHead(head[:], plainAsk, i, size)
	}
	if err := c.q.PostSend(&wr); err != nil {
		return err
	}
	select {
	case err := <-c.done[i]:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.over:
		return verbs.ErrDisconnected
	}
}

// sendOf returns the WRID of the sends of slot i.
func sendOf(i int) uint64 { return 1<<32 | uint64(i) }

// completed handles a completion.
func (c *plainConn) completed(wc *verbs.WC) {
	if err := wc.Err(); err != nil {
		if !c.server {
			for _, d := range c.done {
				select {
				case d <- err:
				default:
				}
			}
		}
		return
	}
	if wc.WRID>>32 != 0 {
		return
	}
	b := c.recv.Bytes()[int(wc.WRID)*c.recvBytes:][:c.recvBytes]
	kind, slot, size := b[0], int(binary.BigEndian.Uint32(b[4:])), int(binary.BigEndian.Uint32(b[8:]))
	if wc.Opcode == verbs.WCRecvWithImm {
		kind, slot = plainRequest, int(wc.Imm)
	}
	if slot < c.depth && size <= c.size {
		c.react(kind, slot, size, b)
	}
	_ = c.post(wc.WRID) // fails when the connection ends
}

func (c *plainConn) react(kind byte, slot, size int, b []byte) {
	var head [plainHeader]byte
	wr := verbs.SendWR{WRID: sendOf(slot), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	switch kind {
	case plainRequest:
		wr.Inline = plainHead(head[:], plainAnswer, slot, answerBytes)
	case plainAsk:
		wr.Inline = plainHead(head[:], plainGrant, slot, size)
		binary.BigEndian.PutUint64(head[12:], c.data.Addr()+uint64(c.slot(slot)))
		binary.BigEndian.PutUint32(head[20:], c.data.RKey())
	case plainGrant:
		wr.Opcode, wr.Imm = verbs.OpWriteImm, uint32(slot)
		wr.RemoteAddr, wr.RKey = binary.BigEndian.Uint64(b[12:]), binary.BigEndian.Uint32(b[20:])
		wr.SGEs = []verbs.SGE{c.data.SGE(c.slot(slot), size)}
	case plainAnswer:
		c.done[slot] <- nil
		return
	}
	if err := c.q.PostSend(&wr); err != nil && !c.server {
		c.done[slot] <- err
	}
}
