package flor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// Device is a NIC with an engine and the goroutine that drives it. A Device and its connections are safe for concurrent
// use.
type Device struct {
	cfg  Config
	ctx  *verbs.Context
	cm   *verbs.CM
	pd   *verbs.PD
	ch   *verbs.CompChannel
	gids []verbs.GID
	mtu  verbs.MTU

	ackCQ, sendCQ, recvCQ *verbs.CQ // in polling order (Flor 4.1)
	srq                   *verbs.SRQ
	acks                  *verbs.QP
	pool, ackMR           *verbs.MR

	send   memory // memory for outgoing messages
	header memory // memory for headers of SENDs
	worker *worker
	group  sync.WaitGroup
	quit   chan struct{}
	kicked chan struct{}

	opening sync.Mutex // serializes connection setup; guards peers

	mu      sync.Mutex // guards the fields below and the connections
	eng     *engine.Engine
	err     error // set when the device has failed
	lost    bool  // the NIC is gone
	closeBy mono.Time
	asleep  mono.Time // end of the loop's sleep; zero while awake
	pairs   map[uint32]*pair
	conns   map[*Conn]struct{}
	joining map[*pair]struct{}
	failed  []failure
	calls   []func()
	ctr     Counters
	lent    int // pool buffers held by the application
	landing landings
	keys    keys
	peers   map[ackAddr]*peer
	lastID  uint64
	ackRoom int
	wcs     [32]verbs.WC
	recvWCs [32]verbs.WC
	sendWR  verbs.SendWR
	sges    [2]verbs.SGE
	recvWR  verbs.RecvWR
	recvSGE [1]verbs.SGE
	control []byte
}

// Counters are the counters of a device.
type Counters struct {
	engine.Counters
	Connections int
	Refused     uint64 // peers' connections refused because of their parameters or a full backlog
	Violations  uint64 // connections ended because the peer violated the protocol
	BadControl  uint64 // datagrams that are neither acknowledgements nor valid control messages
	Reconnects  uint64 // reconnected queue pairs
	// Failover is the time of the last failover: from the completion in error to the first message of a backup queue pair.
	Failover time.Duration
	Copied   uint64 // messages copied out of the pool because the application held too many pool buffers
}

// Open opens a NIC of roced.
func Open(cfg Config) (*Device, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.RunDir == "" {
		cfg.RunDir = verbs.DefaultRunDir()
	}
	d := &Device{cfg: cfg, quit: make(chan struct{}), kicked: make(chan struct{}, 1),
		pairs: map[uint32]*pair{}, conns: map[*Conn]struct{}{}, joining: map[*pair]struct{}{},
		peers: map[ackAddr]*peer{}}
	if err := d.open(); err != nil {
		if d.ctx != nil {
			err = errors.Join(err, d.ctx.Close())
		}
		if d.cm != nil {
			err = errors.Join(err, d.cm.Close())
		}
		return nil, fmt.Errorf("flor: open %s: %w", cfg.Device, err)
	}
	d.worker = newWorker()
	d.group.Go(d.run)
	return d, nil
}

func (d *Device) open() (err error) {
	runDir := verbs.WithRunDir(d.cfg.RunDir)
	if d.ctx, err = verbs.Open(d.cfg.Device, runDir); err != nil {
		return err
	}
	if d.cm, err = verbs.OpenCM(d.ctx.Name(), runDir); err != nil {
		return err
	}
	if d.pd, err = d.ctx.AllocPD(); err != nil {
		return err
	}
	if d.ch, err = d.ctx.CreateCompChannel(); err != nil {
		return err
	}
	d.send.init(d.pd, d.cfg.Memory)
	d.header.init(d.pd, 1<<30)
	d.landing.init(d)
	return errors.Join(d.queryPort(), d.openQueues(), d.openAcks(), d.openEngine())
}

// queryPort reads the attributes of the port.
func (d *Device) queryPort() error {
	port, err := d.ctx.QueryPort(1)
	if err != nil {
		return err
	}
	d.mtu = port.ActiveMTU
	for i := range port.GIDs {
		g, err := d.ctx.QueryGID(1, i)
		if errors.Is(err, unix.EINVAL) {
			break // the end of the entries in use
		}
		if err != nil {
			return err
		}
		d.gids = append(d.gids, g)
	}
	return nil
}

// openQueues creates the queues shared by all connections.
func (d *Device) openQueues() (err error) {
	if d.ackCQ, err = d.ctx.CreateCQ(acksPosted+ackDepth, d.ch); err != nil {
		return err
	}
	if d.sendCQ, err = d.ctx.CreateCQ(1<<10, d.ch); err != nil {
		return err
	}
	if d.recvCQ, err = d.ctx.CreateCQ(d.cfg.Pool, d.ch); err != nil {
		return err
	}
	if err = d.keys.open(d); err != nil {
		return err
	}
	d.srq, err = d.pd.CreateSRQ(verbs.SRQAttr{MaxWR: d.cfg.Pool, MaxSGE: 1})
	return err
}

// openEngine registers the pool and creates the engine. The engine posts the pool's buffers.
func (d *Device) openEngine() (err error) {
	if d.srq == nil || d.acks == nil {
		return nil // an earlier step has failed and reported its error
	}
	size := engine.HeaderLen + int(d.cfg.Engine.MaxSend)
	if d.pool, err = d.pd.AllocMR(size*d.cfg.Pool, verbs.AccessLocalWrite); err != nil {
		return err
	}
	d.cfg.Engine.Pool = make([]engine.Buffer, d.cfg.Pool)
	for i := range d.cfg.Engine.Pool {
		d.cfg.Engine.Pool[i] = engine.Buffer{Data: d.pool.Bytes()[i*size : (i+1)*size : (i+1)*size], Addr: d.pool.Addr() + uint64(i*size), Key: d.pool.LKey()}
	}
	if d.eng, err = engine.New(d.cfg.Engine, (*nic)(d), (*user)(d)); err != nil {
		return err
	}
	return d.err
}

// now returns the time of the NIC's clock.
func (d *Device) now() mono.Time { return mono.Time(d.ctx.Now()) }

// MaxMessage returns the length of the longest message in bytes.
func (d *Device) MaxMessage() int { return d.cfg.Engine.MaxMessage() }

// Counters returns the counters.
func (d *Device) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.ctr
	c.Counters, c.Connections = d.eng.Counters(), len(d.conns)
	return c
}

// NewMessage returns a message of n bytes in registered memory, for sending without a copy. It blocks while all of that
// memory is in use.
func (d *Device) NewMessage(ctx context.Context, n int) (*Message, error) {
	if n < 0 || n > d.MaxMessage() {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLong, n)
	}
	return d.send.take(ctx, d.quit, n)
}

// Close closes all connections at once, then the NIC. Do not use messages of the Device afterwards.
func (d *Device) Close() error {
	d.enter()
	if d.err == nil {
		d.err = ErrClosed
	}
	select {
	case <-d.quit:
		d.leave()
		return nil
	default:
	}
	close(d.quit)
	for c := range d.conns {
		c.e.Fail(d.now(), ErrClosed)
	}
	d.leave()
	d.group.Wait()
	d.worker.close()
	return errors.Join(d.cm.Close(), d.ctx.Close(), d.ch.Close())
}
