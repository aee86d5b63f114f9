package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// client is one connection: a verbs context. It runs one command at a time, on its goroutine or on the shard
// (Command). Concurrent access comes only from the shard's callbacks.
type client struct {
	srv     *Server
	limits  Limits // of the time of the connection
	conn    *uverbs.Conn
	cred    *unix.Ucred
	account *quota.Account
	pidfd   int // of the connected process, -1 if unavailable
	serial  uint64
	log     *slog.Logger

	mu   sync.Mutex // held while a command runs
	here *here      // the shard if the command runs there, nil on the client's goroutine

	worker  *worker      // accesses unshared memory
	proc    *process     // address space of unshared regions; nil until first needed
	used    atomic.Int64 // mapped bytes
	space   *space       // memory for rings; nil until first needed
	profile string       // of new queue pairs
	bell    *shard.Bell
	bellMem *mapping
	memory  lastMemory

	// asyncMu guards async: port events arrive at any time.
	asyncMu sync.Mutex
	async   *channel

	channels table[channel]
	maps     table[mapping]
	procs    table[process] // passed by the client
	pds      table[rocev2.PD]
	mrs      table[memoryRegion]
	mws      table[rocev2.MW]
	cqs      table[completionQueue]
	srqs     table[sharedQueue]
	qps      table[queuePair]
	ahs      table[addressHandle]
	origins  map[origin][]*rocev2.AH // of ahs; on the shard only
	groups   map[inet.GID]int        // multicast groups: how many of qps are attached

	traffic traffic
}

// Owner identifies the client that owns an object. The Ctx of every object is an Owner.
type Owner struct {
	Client uint64 // serial number of the connection
	PID    int32
	UID    uint32
	Device string // the verbs device
}

// Own returns o. Types that embed Owner thereby implement Owned.
func (o *Owner) Own() *Owner { return o }

var _ rocev2.Held = (*Owner)(nil)

// Holder implements rocev2.Held.
func (o *Owner) Holder() rocev2.Holder { return HolderOf(o.UID) }

// HolderOf returns the holder of a user's neighbours.
func HolderOf(uid uint32) rocev2.Holder {
	if quota.Privileged(uid) {
		return rocev2.Unlimited
	}
	return rocev2.Holder(uid)
}

// Owned is implemented by the Ctx of every object.
type Owned interface{ Own() *Owner }

// maxProcs limits the processes whose memory a client passes. Each needs two descriptors.
const maxProcs = 64

func newClient(s *Server, conn *uverbs.Conn, cred *unix.Ucred, account *quota.Account, pidfd int, serial uint64) *client {
	l := s.cfg.Limits
	c := &client{
		srv: s, limits: l, conn: conn, cred: cred, account: account, pidfd: pidfd, serial: serial, profile: s.cfg.Profile,
		log:      s.cfg.Log.With("client", serial, "pid", cred.Pid, "uid", cred.Uid),
		channels: newCounted[channel](l.Channels, quota.Channels, account), maps: newTable[mapping](l.MRs), procs: newTable[process](maxProcs),
		pds: newCounted[rocev2.PD](l.PDs, quota.PDs, account), mrs: newCounted[memoryRegion](l.MRs, quota.MRs, account), mws: newCounted[rocev2.MW](l.MWs, quota.MWs, account),
		cqs: newCounted[completionQueue](l.CQs, quota.CQs, account), srqs: newCounted[sharedQueue](l.SRQs, quota.SRQs, account),
		qps: newCounted[queuePair](min(l.QPs, uverbs.MaxQPHandle), quota.QPs, account), ahs: newCounted[addressHandle](l.AHs, quota.AHs, account),
		origins: map[origin][]*rocev2.AH{}, groups: map[inet.GID]int{},
	}
	c.worker = newWorker(c)
	if !c.trusted() {
		conn.Limit(Gate(account, s.ctx.Done()))
	}
	return c
}

// owner returns the Ctx for an object without its own type.
func (c *client) owner() Owner {
	return Owner{Client: c.serial, PID: c.cred.Pid, UID: c.cred.Uid, Device: c.srv.cfg.Device}
}

// serve runs commands until the client disconnects, then destroys its objects.
func (c *client) serve() {
	c.log.Debug("client connected")
	defer c.log.Debug("client gone")
	defer c.conn.Close()
	defer c.destroyAll()
	for {
		r, err := c.conn.ReadRequest()
		if err != nil && !uverbs.Recoverable(err) {
			return
		}
		q := &request{Request: r}
		if err == nil {
			c.mu.Lock()
			err = c.execute(q)
			c.mu.Unlock()
		}
		if err != nil {
			c.log.Debug("command failed", "command", r.Command, "err", err)
		}
		q.finish(err)
		c.conn.Drop(r.FDs)
		c.srv.commands.Add(1)
		err = c.conn.WriteAnswer(q.answer)
		q.closeFDs()
		if err != nil {
			return
		}
	}
}

// do runs f on the NIC's shard.
func (c *client) do(f func(now mono.Time, n *rocev2.NIC) error) error {
	return c.on(c.srv.cfg.Shard.Do, f)
}

// peek is like do, but f only reads the NIC's state.
func (c *client) peek(f func(n *rocev2.NIC) error) error {
	return c.on(c.srv.cfg.Shard.Look, func(_ mono.Time, n *rocev2.NIC) error { return f(n) })
}

func (c *client) on(shard func(context.Context, func(mono.Time, *rocev2.NIC)) error, f func(mono.Time, *rocev2.NIC) error) error {
	if c.here != nil {
		return f(c.here.now, c.here.nic)
	}
	var err error
	if derr := shard(c.srv.ctx, func(now mono.Time, n *rocev2.NIC) { err = f(now, n) }); derr != nil {
		return derr
	}
	return err
}

// always is do for work that must run even while the server closes.
func (c *client) always(f func(now mono.Time, n *rocev2.NIC)) {
	_ = c.srv.cfg.Shard.Do(context.Background(), f)
}

// destroyAll destroys all objects of the client, in reverse order of dependency.
func (c *client) destroyAll() {
	if c.space != nil {
		c.space.end()
	}
	if c.bell != nil {
		if err := c.srv.cfg.Shard.RemoveBell(c.bell); err != nil {
			c.log.Warn("remove doorbells", "err", err)
		}
	}
	c.destroyObjects()
	if c.bell != nil {
		c.bell.Close()
		c.bellMem.release()
	}
	for _, m := range c.maps.all {
		m.release()
	}
	if c.space != nil {
		c.space.release()
	}
	c.report()
	c.closeProcesses()
	c.memory.close()
	for _, ch := range c.channels.all {
		ch.close()
	}
	c.asyncMu.Lock()
	async := c.async
	c.async = nil
	c.asyncMu.Unlock()
	if async != nil {
		async.close()
	}
}

// destroyObjects destroys the objects in the NIC and then frees the memory that they used. Frames no longer refer to
// that memory.
func (c *client) destroyObjects() {
	destroyEach(c, &c.qps, func(n *rocev2.NIC, q *queuePair) error {
		c.srv.cfg.Shard.Unwatch(q.q)
		return n.DestroyQP(q.q)
	})
	destroyEach(c, &c.ahs, func(n *rocev2.NIC, h *addressHandle) error { return n.DestroyAH(h.ah) })
	destroyEach(c, &c.srqs, func(n *rocev2.NIC, s *sharedQueue) error { return n.DestroySRQ(s.s) })
	destroyEach(c, &c.mws, (*rocev2.NIC).DeallocMW)
	destroyEach(c, &c.mrs, func(n *rocev2.NIC, m *memoryRegion) error { return n.DeregMR(m.mr) })
	destroyEach(c, &c.cqs, func(n *rocev2.NIC, q *completionQueue) error { return n.DestroyCQ(q.c) })
	destroyEach(c, &c.pds, (*rocev2.NIC).DeallocPD)
	for _, q := range c.qps.all {
		release(q.rings...)
	}
	for _, s := range c.srqs.all {
		s.ring.release()
	}
	for _, m := range c.mrs.all {
		m.keep.release()
	}
	for _, q := range c.cqs.all {
		q.ring.release()
	}
}

// destroyBatch is the number of objects to destroy per turn of the shard, which also serves other clients.
const destroyBatch = 64

// destroyEach destroys the objects of one kind. It logs errors, which indicate an inconsistency of the daemon's
// tables.
func destroyEach[T any](c *client, t *table[T], destroy func(*rocev2.NIC, *T) error) {
	for batch := range slices.Chunk(t.slots, destroyBatch) {
		c.always(func(_ mono.Time, n *rocev2.NIC) {
			for _, v := range batch {
				if v == nil {
					continue
				}
				if err := destroy(n, v); err != nil {
					c.log.Error("clean up", "err", err)
				}
			}
		})
	}
}

// release drops the references of destroyed objects to their memory. It skips nil.
func release(ms ...*mapping) {
	for _, m := range ms {
		if m != nil {
			m.release()
		}
	}
}

// asyncEvent sends an asynchronous event to the client. count, if not nil, counts the events of the object.
func (c *client) asyncEvent(element uint64, e qp.Event, count *atomic.Uint32) {
	var b [16]byte
	native.PutUint64(b[:], element)
	native.PutUint32(b[8:], uint32(e))
	c.asyncMu.Lock()
	defer c.asyncMu.Unlock()
	if c.async != nil {
		c.async.send(newNotice(b[:], count))
	}
}

// asyncEvents returns the number of events written for an object that is being destroyed.
func (c *client) asyncEvents(count *atomic.Uint32) uint32 {
	c.asyncMu.Lock()
	defer c.asyncMu.Unlock()
	if c.async == nil {
		return 0
	}
	return c.async.forget(count)
}
