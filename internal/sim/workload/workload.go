// Package workload generates the traffic of simulated hosts. Applications send messages at given or random instants
// (open loop), when others have completed (closed loop), or in patterns (all-to-all, all-reduce). A Runner connects
// hosts as needed and records when each message begins and ends.
package workload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// Verb is the operation that carries a message.
type Verb uint8

// Verbs.
const (
	Write    Verb = iota // RDMA WRITE, posted by the source
	Send                 // SEND; the destination gets a completion
	Read                 // RDMA READ, posted by the destination
	WriteImm             // RDMA WRITE with immediate data; the destination gets a completion
	FetchAdd             // of eight bytes at the destination
	CmpSwap              // likewise
)

// Service is the transport service of a message.
type Service uint8

// Services. Of what UC and UD carry, the source hears nothing: it is done when it has arrived, and
// stays outstanding if it is lost.
const (
	RC Service = iota
	UC         // for Send and WriteImm
	UD         // for Send, in one packet
)

// atomicBytes is the size of an atomic operand.
const atomicBytes = 8

// Flow is one message.
type Flow struct {
	Src, Dst int
	Bytes    uint32
	Port     uint16 // destination port in a flow list; has no effect
	Verb     Verb
	Service  Service
	Class    uint8 // traffic class
	App      App
	Tag      uint64 // for the application
	Fence    bool   // a synchronise operation of MP-RDMA (3.4)
	Lane     int    // selects one of several persistent connections between the same hosts
	// Transport is a number of Config.Transports, from 1; 0: that of Config.Senders, or Config.QP.
	Transport int
	Via       string // switch through which its packets pass; empty: any way

	ID     int // in starting order
	Start  engine.Time
	End    engine.Time // completion at the posting host, that is the last acknowledgement; for UC and UD arrival at the destination
	Ideal  engine.Time // duration in an empty network
	Failed bool        // it completed in error
}

// Slowdown returns the duration of f relative to the ideal, at least one.
func (f *Flow) Slowdown() float64 {
	if f.Ideal <= 0 {
		return 1
	}
	return max(float64(f.End-f.Start)/float64(f.Ideal), 1)
}

// App is an application. Its methods are called while the simulation runs, and may send.
type App interface {
	// Begin starts it.
	Begin(now engine.Time, r *Runner)
	// Done is called when a message of the application has completed at its posting host.
	Done(now engine.Time, r *Runner, f *Flow)
	// Delivered is called when a message that the application has sent by Send or WriteImm has arrived.
	Delivered(now engine.Time, r *Runner, f *Flow)
}

// Config describes how a Runner connects hosts.
type Config struct {
	QP nic.QPConfig
	// Clock is that of the cluster; default: its engine alone.
	Clock *engine.Group
	// Supports reports whether the reliable transport executes an operation; nil: all.
	Supports func(op qp.WROpcode) bool
	// Transports are further transports, which messages select by number.
	Transports []Transport
	// Senders has the transports of messages by source host, from 1.
	Senders map[int]int
	// Persistent keeps a connection for each pair of hosts and direction. Otherwise each message has its own.
	Persistent bool
	// Ideal returns the duration of a message in an empty network.
	Ideal func(f *Flow) engine.Time
	// Ended, if not nil, is called for each message that has completed.
	Ended func(f *Flow)
	// Opened, if not nil, is called for each new connection.
	Opened func(first, second *nic.QP, f *Flow)
}

// Transport is a transport besides the default one.
type Transport struct {
	QP       nic.QPConfig
	Supports func(op qp.WROpcode) bool // nil: all
}

// Runner runs applications on the hosts of a cluster.
type Runner struct {
	k       *nic.Cluster
	cfg     Config
	apps    []App
	conns   map[pair]carrier
	spares  [][UD + 1]nic.Spares // by transport
	flows   int
	running int
	failed  int
	err     error
	ended   [][]ending // by part: of this window; nil without windows
	late    int
}

// ending is a message that has ended, and its queue pairs.
type ending struct {
	f        *Flow
	from, to *nic.QP
	stays    bool // the connection does not close
}

// compare orders endings as one part would: by time, then by the number of the message.
func (e ending) compare(o ending) int {
	return cmp.Or(cmp.Compare(e.f.End, o.f.End), cmp.Compare(e.f.ID, o.f.ID))
}

type pair struct {
	src, dst int
	verb     Verb
	service  Service
	class    uint8
	lane     int
	carries  int // transport
	via      string
}

// carrier carries messages from one host to another.
type carrier interface {
	nic.User
	post(f *Flow)
}

// connection has the outstanding messages in order.
type connection struct {
	r         *Runner
	from, to  *nic.QP // data flow from the first to the second
	flows     []*Flow
	delivered int // number of delivered messages in flows
}

// NewRunner returns a runner without applications.
func NewRunner(k *nic.Cluster, c Config) *Runner {
	if c.Clock == nil {
		c.Clock = engine.Alone(k.Engine())
	}
	r := &Runner{k: k, cfg: c, conns: map[pair]carrier{}, spares: make([][UD + 1]nic.Spares, 1+len(c.Transports))}
	if c.Clock.Windows() {
		r.ended = make([][]ending, k.Parts())
	}
	return r
}

// Cluster returns the NICs.
func (r *Runner) Cluster() *nic.Cluster { return r.k }

// Engine returns the clock.
func (r *Runner) Engine() *engine.Engine { return r.k.Engine() }

// Hosts returns the number of hosts.
func (r *Runner) Hosts() int { return r.k.Hosts() }

// Add adds an application, which begins with Start.
func (r *Runner) Add(a App) { r.apps = append(r.apps, a) }

// Start begins all applications.
func (r *Runner) Start() {
	for _, a := range r.apps {
		a.Begin(r.Engine().Now(), r)
	}
}

// Running returns the number of outstanding messages.
func (r *Runner) Running() int { return r.running }

// Failed returns the number of messages that completed in error.
func (r *Runner) Failed() int { return r.failed }

// Err returns the error of a connection or an application.
func (r *Runner) Err() error { return r.err }

// QP returns the configuration of messages' queue pairs, for applications that make their own.
func (r *Runner) QP() nic.QPConfig { return r.cfg.QP }

// Notifying returns the verb of messages whose destination gets a completion: Send, or WriteImm if the transport has no
// SEND.
func (r *Runner) Notifying() Verb {
	if s := r.cfg.Supports; s != nil && !s(qp.WRSend) {
		return WriteImm
	}
	return Send
}

// Fail ends the simulation with an error of an application.
func (r *Runner) Fail(err error) {
	if r.err == nil {
		r.err = err
		r.cfg.Clock.Halt()
	}
}

// Send starts a message now.
func (r *Runner) Send(f Flow) {
	if r.err != nil {
		return
	}
	f.ID, f.Start = r.flows, r.Engine().Now()
	if f.Transport == 0 {
		f.Transport = r.cfg.Senders[f.Src]
	}
	if r.cfg.Ideal != nil {
		f.Ideal = r.cfg.Ideal(&f)
	}
	c, err := r.carrier(&f)
	if err != nil {
		r.Fail(fmt.Errorf("message %d from host %d to host %d: %w", f.ID, f.Src, f.Dst, err))
		return
	}
	r.flows++
	r.running++
	c.post(&f)
}

// carrier returns the carrier for f.
func (r *Runner) carrier(f *Flow) (carrier, error) {
	key := pair{f.Src, f.Dst, f.Verb, f.Service, f.Class, f.Lane, f.Transport, f.Via}
	if c := r.conns[key]; c != nil {
		return c, nil
	}
	c, err := r.connect(f)
	if err == nil && r.cfg.Persistent {
		r.conns[key] = c
	}
	return c, err
}

// transport returns the transport of f, with the queue pair's traffic class, spares and way.
func (r *Runner) transport(f *Flow) Transport {
	t := Transport{r.cfg.QP, r.cfg.Supports}
	if f.Transport > 0 {
		t = r.cfg.Transports[f.Transport-1]
	}
	t.QP.Traffic, t.QP.Spares, t.QP.Via = f.Class, &r.spares[f.Transport][f.Service], f.Via
	return t
}

// connect makes a carrier for f.
func (r *Runner) connect(f *Flow) (carrier, error) {
	if (f.Verb == FetchAdd || f.Verb == CmpSwap) && f.Bytes != atomicBytes {
		return nil, fmt.Errorf("an atomic operation has %d bytes, not %d", atomicBytes, f.Bytes)
	}
	if f.Service != RC {
		return r.connectSilent(f)
	}
	t := r.transport(f)
	if s := t.Supports; s != nil && !s(opcodes[f.Verb]) {
		return nil, errors.New("this transport supports only write and write_imm")
	}
	c := &connection{r: r}
	q := t.QP
	q.User = c
	var err error
	if c.from, c.to, err = r.k.Connect(f.Src, f.Dst, q); err != nil {
		return nil, err
	}
	if r.cfg.Opened != nil {
		r.cfg.Opened(c.from, c.to, f)
	}
	return c, nil
}

var opcodes = [...]qp.WROpcode{Write: qp.WRWrite, Send: qp.WRSend, Read: qp.WRRead, WriteImm: qp.WRWriteImm, FetchAdd: qp.WRFetchAdd, CmpSwap: qp.WRCmpSwap}

// post begins f.
func (c *connection) post(f *Flow) {
	c.flows = append(c.flows, f)
	by := c.from
	switch f.Verb {
	case Send, WriteImm:
		c.to.PostRecv(nic.RecvWR{Length: f.Bytes})
	case Read:
		by = c.to
	}
	w := qp.SendWQE{Opcode: opcodes[f.Verb], Length: f.Bytes}
	if f.Fence {
		w.Flags = qp.SendFence
	}
	by.Post(w)
}

// Completed implements nic.User.
func (c *connection) Completed(now engine.Time, q *nic.QP, e qp.CQE, receive bool) {
	if len(c.flows) == 0 {
		return // a flushed receive
	}
	if receive {
		if e.Status == qp.StatusSuccess && c.delivered < len(c.flows) {
			f := c.flows[c.delivered]
			c.delivered++
			if f.App != nil {
				f.App.Delivered(now, c.r, f)
			}
		}
		return
	}
	f := c.flows[0]
	c.flows = c.flows[1:]
	c.delivered = max(c.delivered-1, 0)
	f.End, f.Failed = now, e.Status != qp.StatusSuccess
	c.r.end(ending{f: f, from: c.from, to: c.to}, q)
}

// end records the end of a message, which completed at q. If the clock has windows, the other end of its connection
// may be in another part: it learns of the end after the window.
func (r *Runner) end(e ending, q *nic.QP) {
	if r.ended == nil {
		r.settle(e)
		return
	}
	if !r.cfg.Persistent && !e.stays {
		q.Stop()
	}
	r.ended[q.Part()] = append(r.ended[q.Part()], e)
}

// Settle closes the connections of messages that have ended in this window. Call it from Group.Between.
func (r *Runner) Settle() {
	var all []ending
	for i := range r.ended {
		all = append(all, r.ended[i]...)
		r.ended[i] = r.ended[i][:0]
	}
	slices.SortFunc(all, ending.compare)
	for _, e := range all {
		if !r.cfg.Persistent && !e.stays && max(e.from.Used(), e.to.Used()) > e.f.End {
			r.late++
		}
		r.settle(e)
	}
}

// Late returns the number of messages whose connection was in use between their end and Settle. Without windows
// connections close at the end of their message.
func (r *Runner) Late() int { return r.late }

// settle closes the connection of a message and informs its application.
func (r *Runner) settle(e ending) {
	f := e.f
	r.running--
	if f.Failed {
		r.failed++
	}
	if !r.cfg.Persistent && !e.stays {
		e.from.Close()
		e.to.Close()
	}
	if !f.Failed && r.cfg.Ended != nil {
		r.cfg.Ended(f)
	}
	if f.App != nil {
		f.App.Done(f.End, r, f)
	}
}

// AckTimeout returns the code of the shortest ACK timeout that is not less than d (IBTA vol.1
// 9.7.6.1.3: 4.096 us times a power of two).
func AckTimeout(d time.Duration) uint8 {
	for code := uint8(1); code < 31; code++ {
		if time.Duration(4096)<<code >= d {
			return code
		}
	}
	return 31
}
