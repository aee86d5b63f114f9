// Package rocev2 is the NIC: the verbs objects (protection domains, memory
// regions and windows, completion queues, queue pairs, address handles), the
// encapsulation of transport packets in Ethernet, IPv4 or IPv6 and UDP, address
// resolution, the scheduler, counters and events.
//
// Like the transport below it, it is sans-I/O: frames and the time go in,
// frames come out. One goroutine owns a NIC; nothing here locks.
//
//	inputs (Receive, Doorbell, control calls, Advance)
//	-> PollTransmit until it returns nil
//	-> NextTimeout
package rocev2

import (
	"net/netip"
	"time"

	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// MAC is an Ethernet address.
type MAC [6]byte

// GID is a RoCEv2 GID: an IPv6 address or an IPv4-mapped one (IBTA annex A17.3).
type GID [16]byte

// Config describes a NIC.
type Config struct {
	Name string // verbs device name, such as rxe_a
	MAC  MAC
	// MTU is the largest IP packet of the link in bytes. The active path MTU is
	// the largest of 256..4096 that fits with headers.
	MTU int
	// Addrs are the NIC's own addresses with their prefix lengths; a link-local
	// IPv6 address is derived from MAC as well (the last of the GIDs).
	Addrs []netip.Prefix
	// VLANs are addresses that frames with a tag go by. A shared interface has none of its own.
	VLANs []VLAN
	// Gateways are the next hops for addresses outside the prefixes, one a family and VLAN: each is in the one
	// whose prefix has it.
	Gateways []netip.Addr
	// Shared says that the link is an interface of a kernel, which resolves addresses: see
	// SetInterface. Addrs are those of the interface then and there are no Gateways.
	Shared bool
	// Routes are the destinations that a shared interface leads to.
	Routes []netip.Prefix
	// Sockets says that the kernel makes the IP and UDP headers too (sockets.go); Shared is set
	// then. Translated is told of address translation on the way, and may be nil.
	Sockets    bool
	Translated func(Translation)
	// Group has the kernel join or leave a multicast group for a NIC that shares an interface. Nil: such a NIC has no groups.
	Group func(group GID, in bool) error
	// Offload is what the port takes; it can be changed with SetOffload.
	Offload Offload
	// Seed makes keys and QPNs unguessable in the daemon and repeatable in tests, and gives each
	// queue pair other random paths than those of all others, on other NICs too.
	Seed [32]byte
	// Events receives asynchronous events.
	Events EventSink
	// MaxUnacked is the number of PSNs a queue pair may have outstanding.
	MaxUnacked uint32
	// Quantum is what a queue pair sends in its turn before the next one has its own, in
	// bytes of UDP payload; zero is a little more than the largest super-frame. Turns end
	// between frames.
	Quantum int
	// CNPInterval is the shortest time between two congestion notifications that a
	// queue pair sends; zero is 50 us, as DCQCN has it, and a negative value sends
	// none. CNPDSCP is their differentiated services code point (6 bits).
	CNPInterval time.Duration
	CNPDSCP     uint8
	// NewProfile makes the plug-ins of a new queue pair, by profile name; the
	// empty name is the NIC's default.
	NewProfile func(name string) (qp.Profile, error)
	Limits     Limits
	// Distributions says that those of times and degrees are kept.
	Distributions bool
}

// VLAN says which addresses a NIC has in a VLAN (IEEE 802.1Q). Packets from them have its tag, with the
// Priority of their address vector, and so have the answers to ARP, neighbour discovery and echo requests.
type VLAN struct {
	ID    uint16 // 1 to 4094
	Addrs []netip.Prefix
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
	Reset() // discards what is posted
}

// RecvQueue is the posting side's ring of receive work requests, of an RQ or SRQ.
type RecvQueue interface {
	Next(w *qp.RecvWQE) bool
	// Len is the number of work requests posted and not taken.
	Len() int
	Reset()
}

// CompletionRing is the reaping side's ring of completions, and what that side wants
// to be told of. It may arm the ring itself, at any time; Armed, called after Push,
// must see what was armed before the completion could be seen.
type CompletionRing interface {
	// Push appends a completion; false means that the ring is full.
	Push(c *qp.CQE) bool
	// Len is the number of completions that have not been reaped, as far as the consumer
	// has said.
	Len() int
	// Arm adds to what is waited for, Armed says what that is, Disarm ends it.
	Arm(a Arm)
	Armed() Arm
	Disarm()
}

// Memory is what lies behind a memory region. Offsets count from the region's
// first byte and have been checked against its length.
type Memory interface {
	// View returns n bytes at off, to be read before the next frame is polled.
	View(off uint64, n int) ([]byte, bool)
	// Write places p at off.
	Write(off uint64, p []byte) bool
	// CompareSwap and FetchAdd act on 8 aligned bytes in host byte order.
	CompareSwap(off uint64, compare, swap uint64) (orig uint64, ok bool)
	FetchAdd(off uint64, add uint64) (orig uint64, ok bool)
}

// AddressVector says how to reach a peer (ibv_ah_attr with a GRH).
type AddressVector struct {
	DGID         GID
	SGIDIndex    uint8
	TrafficClass uint8 // DSCP and ECN bits
	HopLimit     uint8
	FlowLabel    uint32 // 20 bits; for RC and UC it chooses the UDP source port
	SL           uint8  // service level: see Priority
}

// Priority is when packets leave by this way among those of the same client: the service
// level, up to 7, or without one what the traffic class says, the upper three bits of its DSCP (RFC 2474
// 4.2.2, what NICs that trust the DSCP do if nobody has set them up otherwise).
func (v *AddressVector) Priority() uint8 {
	if v.SL > 0 {
		return min(v.SL, sched.Classes-1)
	}
	return v.TrafficClass >> 5
}

// NIC is one RoCEv2 NIC. The fields of its parts are in the files that use them.
type NIC struct {
	cfg  Config
	obj  objects   // PDs, MRs, CQs, QPs ... (objects.go)
	net  netstack  // addresses, neighbours, encapsulation (net.go)
	sch  scheduler // QPs with work, deadlines (sched.go)
	ctr  Counters
	temp qp.Scratch
	obs  Observer
	next NextTracer // waits for a queue pair that connects (trace.go)
	now  mono.Time  // of the input that is dealt with: completions that come of it have this time
}
