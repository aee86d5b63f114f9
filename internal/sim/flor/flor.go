// Package flor runs Flor's engine, package flor/engine, on the NICs of a simulated fabric. Data queue pairs are UC
// or RC; acknowledgements are datagrams of a class of their own. Payload is real bytes.
//
// A simulated NIC cannot revoke keys: all keys open all of a host's memory. Its networks do not delay packets for
// long.
package flor

import (
	"cmp"
	"fmt"
	"slices"

	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Config describes the engines of all hosts.
type Config struct {
	// Engine is the configuration of flor/engine, without a pool.
	Engine flor.Config
	// Pool is the number of a host's buffers for SENDs; default 64.
	Pool int
	// Pools has the exceptions by host.
	Pools map[int]int
	// Memory is the size of a host's memory for messages, in bytes.
	Memory int
	// QP is the configuration of all queue pairs, without type, users and memory.
	QP nic.QPConfig
	// AckTraffic is the traffic class of acknowledgements.
	AckTraffic uint8
	// SharedAcks sends acknowledgements by the data queue pairs, in order with data: the baseline of Flor 4.1.
	SharedAcks bool
	// Software is the processor time of engines; default none.
	Software Software
	// Backups is the number of queue pairs of a connection besides its primary one; default 2 (Flor 6), none if
	// negative.
	Backups int
	// Reconnect is the time to reconnect a queue pair; default 5 ms (Flor 6).
	Reconnect engine.Time
	// User returns the user of a host's connections.
	User func(h *Host) flor.User
	// Hosts lists the hosts with engines; default all.
	Hosts []int
}

// ackClass is the scheduler class of acknowledgements, above that of data (Flor 4.1).
const ackClass = 1

// queueDepth is the number of work requests of a queue pair, headers the number of headers that a host can have
// posted in total.
const (
	queueDepth = 128
	headers    = 1 << 15
)

// Acknowledgements that a host can receive at an instant, and that may wait to be sent; what is beyond that
// is lost.
const (
	// The number of acknowledgements that a host can receive at once, and that can wait to be sent; further ones
	// are lost.
	acksPosted = 256
	ackSlots   = 256
	grhLen     = 40 // before a datagram (IBTA vol.1 11.4.1.2)
	ackBuffer  = grhLen + flor.MaxAckLen
	ackQKey    = 0x466c6f72
)

// Fabric is the hosts.
type Fabric struct {
	// Switched lists the times from the error of a queue pair to the completion of the first request posted after
	// it.
	Switched []engine.Time

	k     *nic.Cluster
	cfg   Config
	hosts []*Host
}

// Host is an engine on a NIC. It delivers timers and completions to the engine.
type Host struct {
	*flor.Engine
	f       *Fabric
	num     int
	memory  []byte
	used    int // allocated bytes of memory
	recvs   nic.Receives
	acks    *nic.QP
	sent    [ackSlots]posted // acknowledgements, used in turns
	acked   int              // number of posted acknowledgements
	waiting int              // number of those that have not completed
	arrived flor.Buffer      // receive buffers of acknowledgements
	ends    []*end           // index: queue pair number minus one
	timer   engine.Timer
	failed  []failure
	failing engine.Timer
	spare   []*posted
	broken  engine.Time // when a queue pair failed; 0 after the first completion since
	threads []*thread
}

// end is one end of a queue pair, which may be reconnected.
type end struct {
	h      *Host
	num    flor.QPN // the engine's number, which does not change
	q      *nic.QP  // nil while disconnected
	peer   *end
	posted []*posted // not completed, in order
	timer  engine.Timer
}

// posted is an outstanding work request.
type posted struct {
	id     uint64
	at     engine.Time
	sges   [2]qp.SGE
	header flor.Buffer // of a SEND; or a whole acknowledgement
	ack    bool        // not a WQE of the engine
}

// failure is a work request of a disconnected queue pair.
type failure struct {
	num flor.QPN
	id  uint64
}

// New creates an engine on each NIC.
func New(k *nic.Cluster, c Config) (*Fabric, error) {
	c.Pool = cmp.Or(c.Pool, 64)
	c.Backups = cmp.Or(c.Backups, 2)
	c.Backups = max(c.Backups, 0)
	c.Reconnect = cmp.Or(c.Reconnect, 5*engine.Millisecond)
	c.Engine.MaxSend = cmp.Or(c.Engine.MaxSend, 32<<10)
	f := &Fabric{k: k, cfg: c, hosts: make([]*Host, k.Hosts())}
	for i := range f.hosts {
		if c.Hosts != nil && !slices.Contains(c.Hosts, i) {
			continue
		}
		h, err := f.newHost(i)
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", i, err)
		}
		f.hosts[i] = h
	}
	return f, nil
}

// Host returns the i-th host, nil if it has no engine.
func (f *Fabric) Host(i int) *Host { return f.hosts[i] }

// buffer returns the size of a pool buffer. The pool is at the beginning of a host's memory.
func (f *Fabric) buffer() int { return flor.HeaderLen + int(f.cfg.Engine.MaxSend) }

func (f *Fabric) newHost(i int) (*Host, error) {
	c := &f.cfg
	buffer := f.buffer()
	acks := (acksPosted + ackSlots) * ackBuffer
	pool := c.Pool
	if n, ok := c.Pools[i]; ok {
		pool = n
	}
	h := &Host{f: f, num: i, memory: make([]byte, pool*buffer+acks+headers*flor.MaxAckLen+c.Memory)}
	h.timer.Init(h, whatTimeout)
	h.failing.Init(h, whatFailed)
	h.startThreads()
	e := c.Engine
	e.Pool = make([]flor.Buffer, pool)
	for k := range e.Pool {
		e.Pool[k], _ = h.Memory(buffer)
	}
	if err := h.openAcks(); err != nil {
		return nil, err
	}
	var err error
	h.Engine, err = flor.New(e, h, c.User(h))
	return h, err
}

// Num returns the number of the host.
func (h *Host) Num() int { return h.num }

// Now returns the present instant on the engines' clock.
func (h *Host) Now() mono.Time { return h.f.k.Engine().Now().Mono() }

// Memory allocates n bytes of the host's memory, which cannot be freed.
func (h *Host) Memory(n int) (b flor.Buffer, ok bool) {
	if n > len(h.memory)-h.used {
		return flor.Buffer{}, false
	}
	at := h.used
	h.used += n
	return flor.Buffer{Data: h.memory[at:h.used:h.used], Addr: uint64(at)}, true
}

// Send sends a message on a connection of this host.
func (h *Host) Send(c *flor.Conn, id uint64, b flor.Buffer) error {
	err := c.Send(h.Now(), id, 0, b)
	h.rearm()
	return err
}

// Connect connects two hosts; x is on host a.
func (f *Fabric) Connect(a, b int) (x, y *flor.Conn, err error) {
	hosts := [2]*Host{f.hosts[a], f.hosts[b]}
	var cfgs [2]flor.ConnConfig
	for range 1 + f.cfg.Backups {
		var ends [2]*end
		for i, h := range hosts {
			ends[i] = &end{h: h, num: flor.QPN(len(h.ends) + 1)}
			ends[i].timer.Init(ends[i], 0)
			h.ends = append(h.ends, ends[i])
		}
		ends[0].peer, ends[1].peer = ends[1], ends[0]
		if err := ends[0].connect(); err != nil {
			return nil, nil, err
		}
		for i := range hosts {
			cfgs[i].QPs, cfgs[i].Peers = append(cfgs[i].QPs, ends[i].num), append(cfgs[i].Peers, ends[1-i].num)
		}
	}
	var conns [2]*flor.Conn
	for i, h := range hosts {
		cfgs[i].Ctx, cfgs[i].AckPeer = hosts[1-i], uint64(hosts[1-i].acks.Num())
		if conns[i], err = h.Open(h.Now(), cfgs[i]); err != nil {
			return nil, nil, err
		}
	}
	return conns[0], conns[1], nil
}

// connect connects both ends.
func (e *end) connect() error {
	a, b := e, e.peer
	q := e.h.f.cfg.QP
	q.Type = qp.UC
	if e.h.f.cfg.Engine.Hardware {
		q.Type, q.RetryCnt = qp.RC, 2 // Flor 6
	}
	q.User, q.Class, q.Elements = e.h.f, 0, 2
	q.SRQ, q.Memory = [2]*nic.Receives{&a.h.recvs, &b.h.recvs}, [2][]byte{a.h.memory, b.h.memory}
	x, y, err := e.h.f.k.Connect(a.h.num, b.h.num, q)
	if err != nil {
		return err
	}
	a.q, b.q, x.Ctx, y.Ctx = x, y, a, b
	return nil
}
