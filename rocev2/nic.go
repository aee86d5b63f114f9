// Package rocev2 is the NIC: verbs objects, encapsulation of transport packets, the scheduler, counters and events.
// Its parts are packages of their own where one owns its state alone:
//
//   - stack: Ethernet, IP, ARP, neighbour discovery, ICMP, multicast groups, routes
//   - memory: protection domains, memory regions and windows, keys
//   - object: tables and errors of all verbs objects
//
// Receive (rx*.go), transmit (tx*.go) and the scheduler (sched.go) are types in this package, because each of them runs
// for every packet and works on the queue pair itself. A package boundary would turn its fields into methods. They
// depend on each other in one direction: receive and transmit use the scheduler, the scheduler uses queue pairs only.
//
// Like the transport below it, the NIC is sans-I/O: frames and the time go in, frames come out. One goroutine owns a
// NIC; nothing here locks.
//
//	inputs (Receive, Doorbell, control calls, Advance)
//	-> PollTransmit until it returns nil
//	-> NextTimeout
//
// No promise: this package may change between releases.
package rocev2

import (
	"net/netip"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
	"roced.io/roced/rocev2/stack"
)

// Config describes a NIC.
type Config struct {
	Name string // verbs device name, such as rxe_a
	MAC  inet.MAC
	// MTU is the largest IP packet of the link in bytes. The active path MTU is the largest of 256..4096 that fits
	// with headers.
	MTU int
	// The network: see stack.Config.
	Addrs      []netip.Prefix
	VLANs      []VLAN
	PairedGIDs bool // see stack.Config
	Gateways   []netip.Addr
	Shared     bool
	Routes     []netip.Prefix
	Sockets    bool
	Translated func(Translation)
	// Bound reports whether a socket is bound to a UDP port of that address, which belongs to this host. It makes the NIC
	// check the source ports of connected peers on this host. nil: the NIC does not check them.
	Bound   func(netip.Addr, uint16) bool
	Group   func(group inet.GID, in bool) error
	UDPPort uint16
	// Ports is the number of planes of the link; 0 without planes. SetPorts changes which of them are up.
	Ports int
	// Offload describes the port's segmentation; SetOffload changes it.
	Offload link.Offload
	// Seed makes keys and QPNs unpredictable in the daemon and repeatable in tests. It also gives each queue pair
	// random paths that differ from those of all others, on other NICs too.
	Seed [32]byte
	// Events receives asynchronous events.
	Events EventSink
	// Failed receives the status of completions in error except flushes; may be nil.
	Failed func(q *QueuePair, s qp.Status)
	// MaxUnacked is the maximum number of PSNs in flight on a queue pair.
	MaxUnacked uint32
	// PeerWindow is the maximum number of packets in flight towards an address; zero is the default of qp.NewPeer. Near
	// means that the peers share this machine's processors.
	PeerWindow uint32
	Local      bool
	// Quantum is the number of bytes of UDP payload that a queue pair sends in its turn; zero is a little more than
	// the largest super-frame. Turns end between frames.
	Quantum int
	// SingleWrites is a setting of RC: see qp.Config.
	SingleWrites bool
	// CNPInterval is the shortest time between two congestion notifications of a queue pair; zero is 50 us, as in
	// DCQCN, and a negative value disables them.
	CNPInterval time.Duration
	// CNPClass, ACKClass and NAKClass are the traffic classes of congestion notifications and of acknowledgements that carry
	// no data; NAKs of all kinds have NAKClass. Zero: that of the connection, and for CNPs traffic class 0.
	CNPClass, ACKClass, NAKClass Class
	// OwnECN keeps the ECN bits of address vectors, although congestion control needs marks.
	OwnECN bool
	// Bucket limits the rate of frames to the link. NICs of one goroutine may share it; nil: no limit.
	Bucket *sched.Bucket
	// NewProfile creates the plug-ins of a new queue pair, by profile name. The empty name is the NIC's default.
	NewProfile func(name string) (qp.Profile, error)
	// MRCProfile creates the plug-ins of queue pairs of MRC that select other paths or congestion control by their number.
	// 0 is the transport profile's own. nil: there are no others.
	MRCProfile func(paths, congestion uint64) (qp.Profile, error)
	Limits     Limits
	// Distributions makes the NIC keep distributions of times and degrees.
	Distributions bool
}

// Limits bound the objects of a NIC. Zero fields take the default.
type Limits struct {
	QPs, CQs, SRQs, MRs, MWs, PDs, AHs int
	SendWR, RecvWR, SGE, CQE, Inline   int
	RdAtomic                           int
}

// EventSink receives asynchronous events (ibv_async_event).
type EventSink interface {
	QPEvent(q *QueuePair, e qp.Event)
	CQEvent(c *CQ, e qp.Event)
	SRQEvent(s *SRQ, e qp.Event)
	PortEvent(e qp.Event)
}

// SendQueue is the posting side's ring of send work requests. See qp.Host.
type SendQueue interface {
	Next(w *qp.SendWQE) bool
	Pending() bool
	Retire(n int)
	Reset() // discards all posted requests
}

// RecvQueue is the posting side's ring of receive work requests, of an RQ or SRQ.
type RecvQueue interface {
	Next(w *qp.RecvWQE) bool
	// Len returns the number of requests that are posted and not taken.
	Len() int
	Reset()
}

// CompletionRing is a ring of completions that a client reads and arms. The client may arm the ring at any time. The NIC
// calls Armed after Push: it must see each arming that precedes the visible completion.
type CompletionRing interface {
	// Push appends a completion; false means that the ring is full.
	Push(c *qp.CQE) bool
	// Len returns the number of completions that the consumer has not reported as reaped.
	Len() int
	// Arm adds conditions for the next notification, Armed returns them, Disarm clears them.
	Arm(a Arm)
	Armed() Arm
	Disarm()
}

// NIC is one RoCEv2 NIC.
type NIC struct {
	cfg        Config
	obj        objects            // CQs, SRQs, QPs, AHs (objects.go)
	mem        *memory.Space      // PDs, MRs, MWs
	run        writeRun           // gathered writes (distant.go)
	pulled     pulled             // data of a burst that are in place (switch.go)
	net        *stack.Stack       // addresses, neighbours, routes
	up         bool               // the link is up
	rx         rxState            // rx.go
	tx         txState            // tx.go
	sch        scheduler          // sched.go
	gsi        gsiState           // gsi.go
	ends       endpoints          // endpoint.go
	mcast      multicast          // multicast.go
	peers      map[inet.GID]*peer // peer.go
	contention qp.Contention      // of clients
	ctr        Counters           // counters.go
	temp       qp.Scratch
	obs        link.Observer
	next       NextTracer // trace.go
	sw         *Switch    // switch.go; nil: none
	swPort     any        // of Switch.Join
	now        mono.Time  // of the current input: its completions carry this time
}

// The verbs of protection domains, memory regions and windows are those of memory.Space.

func (n *NIC) AllocPD(ctx any) (*PD, error)                     { return n.mem.AllocPD(ctx) }
func (n *NIC) DeallocPD(p *PD) error                            { return n.mem.DeallocPD(p) }
func (n *NIC) PDs() []PDInfo                                    { return n.mem.PDs() }
func (n *NIC) RegMR(pd *PD, a MRAttr) (*MR, error)              { return n.mem.RegMR(pd, a) }
func (n *NIC) DeregMR(mr *MR) error                             { return n.mem.DeregMR(mr) }
func (n *NIC) MRs() []MRInfo                                    { return n.mem.MRs() }
func (n *NIC) AllocMW(pd *PD, typ MWType, ctx any) (*MW, error) { return n.mem.AllocMW(pd, typ, ctx) }
func (n *NIC) DeallocMW(mw *MW) error                           { return n.mem.DeallocMW(mw) }
func (n *NIC) MWs() []MWInfo                                    { return n.mem.MWs() }
func (n *NIC) ReregMR(mr *MR, f ReregFlags, pd *PD, a MRAttr) error {
	return n.mem.ReregMR(mr, f, pd, a)
}

// The queries about addresses, routes and neighbours are those of stack.Stack.

func (n *NIC) MAC() inet.MAC                                             { return n.net.MAC() }
func (n *NIC) Neighbours() []*stack.Neighbour                            { return n.net.Neighbours() }
func (n *NIC) GIDs() []GIDEntry                                          { return n.net.GIDs() }
func (n *NIC) GIDError(err error, index uint32) error                    { return n.net.GIDError(err, index) }
func (n *NIC) Source(dst inet.GID) (e GIDEntry, bits RouteBits, ok bool) { return n.net.Source(dst) }
func (n *NIC) PollQuery() (q Query, ok bool)                             { return n.net.PollQuery() }
func (n *NIC) Destinations() []Query                                     { return n.net.Destinations() }
func (n *NIC) Resolved(now mono.Time, dst inet.GID, mac inet.MAC)        { n.net.Resolved(now, dst, mac) }
func (n *NIC) Unreachable(now mono.Time, dst inet.GID)                   { n.net.Unreachable(now, dst) }
func (n *NIC) ResolveNeighbour(now mono.Time, dst inet.GID, src uint8, h Holder, done func(now mono.Time, err error)) error {
	return n.net.ResolveNeighbour(now, dst, src, h, done)
}
