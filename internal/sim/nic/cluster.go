// Package nic has the NICs of a simulated fabric: the queue pairs of package qp, with the plug-ins of package
// profile and the scheduler of package sched, as in the daemon. It leaves out frames, checksums and address
// resolution.
//
// Payload is phantom, that is a length without content, or real bytes in a queue pair's memory.
package nic

import (
	"errors"
	"fmt"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/path"
	"roced.io/roced/qp"
)

// Framing says how many bytes packets take on a link.
type Framing struct {
	// Header is the size of the headers of a packet with payload, and Control the size of a packet without payload
	// or a CNP, as in simulators without real headers. Zero: Ethernet with preamble, FCS and gap, IPv4, UDP, and
	// the packet as it is on the wire.
	Header, Control quantity.Bytes
	// Bare leaves out preamble, FCS, gap and padding, as for TAP devices and sockets.
	Bare bool `yaml:"-"`
}

// Lengths around a transport packet.
const (
	encapsulation = 14 + 20 + 8 // Ethernet, IPv4, UDP
	minFrame      = 60          // without FCS
	linkBytes     = 8 + 4 + 12  // preamble, FCS, gap
)

// bytes returns the size of p on a link.
func (f *Framing) bytes(p *bth.Packet) uint32 {
	switch n := uint32(len(p.Payload)); {
	case f.Bare:
		return uint32(encapsulation + p.WireLen())
	case f.Header == 0:
		return uint32(max(encapsulation+p.WireLen(), minFrame) + linkBytes)
	case n == 0 || p.Opcode.IsCNP():
		return uint32(f.Control)
	default:
		return n + uint32(f.Header)
	}
}

// Classes are the traffic classes of a NIC's packets.
type Classes struct {
	Data, Ack, CNP uint8
	AckAsData      bool // acknowledgements have the class of their queue pair's data instead of Ack
	// Limits, in descending order, raise the class of data: by one for each limit that the bytes left do not exceed.
	Limits []uint32
}

// above returns the number of limits that left does not exceed.
func (c *Classes) above(left uint32) (n uint8) {
	for _, limit := range c.Limits {
		if left > limit {
			break
		}
		n++
	}
	return n
}

// Config describes the NICs of a cluster.
type Config struct {
	Network func(o fabric.Owner) (*fabric.Network, error)
	Framing Framing
	Classes Classes
	// MTU is the longest payload of a packet, of any queue pair.
	MTU int
	// Contexts is the cost of many queue pairs.
	Contexts Contexts
	// Planes is the number of ports of each NIC, at most path.MaxPlanes; zero is one. Port p of NIC i is host p*n + i of the
	// network, which has n hosts in each plane (fabric.Planes). Entropy values of MRC select the plane.
	Planes int
	// Telemetry makes room for the records of switches, for queue pairs whose congestion control needs them.
	Telemetry bool
	// Explicit is set if switches balance by fabric.Explicit: an entropy value names a path instead of being hashed.
	Explicit bool
	// Engines are those of the network's parts, also of a single part, if the clock has windows (engine.NewGroup).
	Engines []*engine.Engine
}

// Cluster is the NICs of a network. It belongs to its engine's goroutine; if the network has several parts, each part
// belongs to that of its engine. Its hosts are the machines of the network's graph. One with several NICs uses for each
// connection those with the fewest links between them, then the highest rate; a hash selects among equals.
type Cluster struct {
	part
	net      *fabric.Network
	nics     []NIC
	machines *machines // nil: each host has one NIC, which reaches all others
	parts    []*part   // the first is part
}

// part is the NICs of a part of the network.
type part struct {
	all  *Cluster
	id   int
	eng  *engine.Engine
	fab  *fabric.Part
	cfg  Config
	slab slab
	zero []byte
	out  qp.Transmit // of the sending queue pair
	in   bth.Packet  // of the receiving queue pair
	ctr  qp.Counters
	temp qp.Scratch

	placed uint64 // payload bytes written to memory

	done      []completion // not delivered yet
	telling   []completion // being delivered
	tellTimer engine.Timer
	told      []engine.Time // of deliveries, if there are several parts

	stray, cut uint64
}

// hash returns what switches choose the path of a packet by.
func (k *part) hash(src, dst, entropy uint32) uint32 {
	if k.cfg.Explicit {
		return path.EVPath(entropy, k.cfg.Planes)
	}
	return fabric.FlowHash(src, dst, entropy)
}

// ErrHost reports a host number that does not exist.
var ErrHost = errors.New("no such host")

// NewCluster creates a NIC for each host of a network. c.Engines replaces e if the network has several parts.
func NewCluster(e *engine.Engine, c Config) (*Cluster, error) {
	if c.MTU < int(qp.MinMTU) || c.MTU > 1<<16-1 {
		return nil, fmt.Errorf("MTU %d: must be from %d to 65535", c.MTU, qp.MinMTU)
	}
	if c.Classes.Data >= fabric.Classes || c.Classes.Ack >= fabric.Classes || c.Classes.CNP >= fabric.Classes {
		return nil, fmt.Errorf("traffic classes must be less than %d", fabric.Classes)
	}
	if c.Contexts.Held < 0 || c.Contexts.Fetch < 0 {
		return nil, fmt.Errorf("contexts: held %d and fetch %v must not be negative", c.Contexts.Held, c.Contexts.Fetch)
	}
	planes := c.Planes
	c.Planes = max(planes, 1)
	k := new(Cluster)
	k.init(k, 0, e, c)
	var err error
	if k.net, err = c.Network(&k.part); err != nil {
		return nil, err
	}
	if c.Planes > path.MaxPlanes || k.net.Hosts()%c.Planes != 0 {
		return nil, fmt.Errorf("%d hosts cannot be the ports of NICs with %d ports", k.net.Hosts(), planes)
	}
	k.divide(c)
	k.nics = make([]NIC, k.net.Hosts()/c.Planes)
	for h := range k.nics {
		k.nics[h].init(k.parts[k.net.PartOf(h)], uint32(h))
	}
	k.machines = newMachines(k.net, c.Planes)
	return k, nil
}

// divide makes a part for each part of the network.
func (k *Cluster) divide(c Config) {
	k.parts = []*part{&k.part}
	for i, f := range k.net.Parts() {
		if i > 0 {
			k.parts = append(k.parts, new(part))
			k.parts[i].init(k, i, c.Engines[i], c)
		}
		k.parts[i].fab, f.Owner = f, k.parts[i]
		if c.Telemetry {
			k.parts[i].slab.telemetry = [][]ccalgo.Telemetry{}
			f.Telemetry = k.parts[i].telemetry
		}
	}
	if n := len(k.parts); n > 1 {
		chunks, records := make([][]parcel, mostChunks), [][]ccalgo.Telemetry(nil)
		if c.Telemetry {
			records = make([][]ccalgo.Telemetry, mostChunks)
		}
		for i, p := range k.parts {
			p.slab.share(chunks, i, n)
			p.slab.telemetry = records
		}
	}
}

// Begin begins a window of a part (engine.NewGroup).
func (k *Cluster) Begin(part int) {
	p := k.parts[part]
	p.fab.Begin()
	p.slab.window ^= 1
	for _, other := range k.parts {
		if other != p {
			p.slab.reclaim(&other.slab)
		}
	}
}

// Parts returns the number of parts.
func (k *Cluster) Parts() int { return len(k.parts) }

// Repeated returns the number of timers that delivered completions at an instant at which another part delivered some,
// too. A single part has one timer for all. Each call counts from the previous one.
func (k *Cluster) Repeated() int {
	var all []engine.Time
	for _, p := range k.parts {
		all = append(all, p.told...)
		p.told = p.told[:0]
	}
	slices.Sort(all)
	n := len(all)
	return n - len(slices.Compact(all))
}

func (k *part) init(all *Cluster, id int, e *engine.Engine, c Config) {
	*k = part{all: all, id: id, eng: e, cfg: c, zero: make([]byte, c.MTU)}
	k.tellTimer.Init(k, 0)
}

// completion is one that has not been delivered to its user.
type completion struct {
	q       *QP
	user    User // at that time
	cqe     qp.CQE
	receive bool
}

// complete delivers a completion to q's user at the same instant, but not from within q's transport: the user may
// post.
func (k *part) complete(q *QP, c qp.CQE, receive bool) {
	k.done = append(k.done, completion{q, q.user, c, receive})
	if !k.tellTimer.Pending() {
		k.eng.Set(&k.tellTimer, k.eng.Now())
	}
}

// Handle implements engine.Handler: it delivers completions.
func (k *part) Handle(now engine.Time, _ int32) {
	k.done, k.telling = k.telling[:0], k.done
	if len(k.all.parts) > 1 {
		k.told = append(k.told, now)
	}
	for i := range k.telling {
		c := &k.telling[i]
		c.user.Completed(now, c.q, c.cqe, c.receive)
	}
}

// Network returns the network.
func (k *Cluster) Network() *fabric.Network { return k.net }

// Hosts returns the number of hosts.
func (k *Cluster) Hosts() int {
	if k.machines != nil {
		return len(k.machines.nics)
	}
	return len(k.nics)
}

// Engine returns the engine.
func (k *Cluster) Engine() *engine.Engine { return k.eng }

// EngineOf returns the engine of a host's part.
func (k *Cluster) EngineOf(host int) *engine.Engine {
	if k.machines != nil {
		host = k.machines.nics[host][0]
	}
	return k.nics[host].k.eng
}

// Check verifies that all packets and bytes are accounted for.
func (k *Cluster) Check() error {
	held := 0
	for h := range k.nics {
		held += k.nics[h].returns.Len() + k.nics[h].cut.Len() + k.nics[h].queued()
	}
	return k.net.Check(held)
}

// Counters returns the sums over all queue pairs. Of several parts it sums only the counters that results have.
func (k *Cluster) Counters() qp.Counters {
	sum := k.ctr
	for _, p := range k.parts[1:] {
		sum.RetransmittedPackets += p.ctr.RetransmittedPackets
		sum.LocalAckTimeoutErr += p.ctr.LocalAckTimeoutErr
		sum.DuplicateRequest += p.ctr.DuplicateRequest
		sum.OutOfSequence += p.ctr.OutOfSequence
	}
	return sum
}

// Stray returns the number of packets for queue pairs that do not exist.
func (k *Cluster) Stray() (sum uint64) {
	for _, p := range k.parts {
		sum += p.stray
	}
	return sum
}

// Cut returns the number of packets that arrived without their payload.
func (k *Cluster) Cut() (sum uint64) {
	for _, p := range k.parts {
		sum += p.cut
	}
	return sum
}

// Placed returns the payload bytes written to memory on all hosts.
func (k *Cluster) Placed() (sum uint64) {
	for _, p := range k.parts {
		sum += p.placed
	}
	return sum
}

// InFlight returns the number of packets in flight.
func (k *Cluster) InFlight() (sum int) {
	for _, p := range k.parts {
		sum += p.slab.used
	}
	return sum
}

// Packet returns the packet of a descriptor, its source and its UDP source port.
func (k *Cluster) Packet(d *fabric.Packet) (p *bth.Packet, src uint32, port uint16) {
	p = new(bth.Packet)
	s := k.slab.at(d.Ref)
	k.slab.unpack(s, p, k.zero)
	port, _ = bth.SplitEntropy(s.entropy)
	return p, s.src, port
}

// Dropped implements fabric.Owner.
func (k *part) Dropped(_ engine.Time, p *fabric.Packet, _ fabric.Reason) { k.slab.free(p.Ref) }
