package nictest

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/queue"
)

// AllAccess are all access rights.
const AllAccess = qp.AccessLocalWrite | qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic |
	qp.AccessMWBind

// Buffer is registered memory of a node.
type Buffer struct {
	B      []byte
	VA     uint64
	MR     *rocev2.MR
	Remote *RemoteMemory // its memory with Options.Remote or Deferred
	// Deferred is its memory with Options.Deferred.
	Deferred *Deferred
}

// Remote is an address in a peer's memory.
type Remote struct {
	VA   uint64
	RKey uint32
}

// Buffer registers size bytes with all rights.
func (n *Node) Buffer(size int) *Buffer {
	n.pair.tb.Helper()
	return n.BufferWith(size, AllAccess)
}

// BufferWith registers size bytes with the rights a. Buffers lie far apart, so that an access beyond the end of one does not
// reach another.
func (n *Node) BufferWith(size int, a qp.Access) *Buffer {
	n.pair.tb.Helper()
	b := &Buffer{B: make([]byte, size), VA: n.nextVA}
	n.nextVA += uint64(size+0x1fff) &^ 0xfff
	mem := rocev2.Memory(rocev2.NewBytes(b.B))
	if n.pair.o.Remote || n.pair.o.Deferred {
		b.Remote = &RemoteMemory{Bytes: rocev2.NewBytes(b.B)}
		mem = b.Remote
	}
	if n.pair.o.Deferred {
		b.Deferred = &Deferred{RemoteMemory: b.Remote, node: n}
		n.deferred = append(n.deferred, b.Deferred)
		mem = b.Deferred
	}
	var err error
	b.MR, err = n.NIC.RegMR(n.PD, rocev2.MRAttr{VA: b.VA, Length: uint64(size), Access: a, Mem: mem})
	n.pair.check(err)
	return b
}

// Fill writes bytes that depend on the offset and the seed.
func (b *Buffer) Fill(seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b.B {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.B[i] = byte(x)
	}
}

// SGE returns the whole buffer as an element.
func (b *Buffer) SGE() qp.SGE { return b.Part(0, len(b.B)) }

// Part returns n bytes at off as an element.
func (b *Buffer) Part(off, n int) qp.SGE {
	return qp.SGE{Addr: b.VA + uint64(off), Length: uint32(n), LKey: b.MR.LKey}
}

// At returns the address of the byte at off for a peer.
func (b *Buffer) At(off int) Remote { return Remote{b.VA + uint64(off), b.MR.RKey} }

// CQ is a completion queue of a node.
type CQ struct {
	*rocev2.CQ
	*queue.Ring
	Node     *Node
	Notified int // notifications so far
}

// CQ creates a completion queue.
func (n *Node) CQ(entries int) *CQ {
	n.pair.tb.Helper()
	c := &CQ{Node: n, Ring: queue.NewRing(entries)}
	var err error
	c.CQ, err = n.NIC.CreateCQ(rocev2.CQAttr{Entries: entries, Ring: c.Ring, Notify: func() { c.Notified++ }})
	n.pair.check(err)
	return c
}

// Arm requests a notification.
func (c *CQ) Arm(solicitedOnly bool) {
	c.Node.pair.tb.Helper()
	c.Node.pair.check(c.Node.NIC.ArmCQ(c.CQ, solicitedOnly))
}

// Wait advances the time until there is a completion, and takes it.
func (c *CQ) Wait() qp.CQE {
	p := c.Node.pair
	p.tb.Helper()
	if !p.RunUntil(func() bool { return c.Len() > 0 }, p.o.Limit) {
		p.Fatalf("%s: no completion within %v", c.Node.Name, p.o.Limit)
	}
	e, _ := c.Poll()
	return e
}

// SRQ is a shared receive queue of a node.
type SRQ struct {
	*rocev2.SRQ
	*queue.Recv
	Node *Node
}

// SRQ creates a shared receive queue.
func (n *Node) SRQ(depth int) *SRQ {
	n.pair.tb.Helper()
	s := &SRQ{Recv: queue.NewRecv(depth), Node: n}
	var err error
	s.SRQ, err = n.NIC.CreateSRQ(rocev2.SRQAttr{PD: n.PD, RQ: s.Recv, MaxWR: uint32(depth), MaxSGE: qp.MaxSGE})
	n.pair.check(err)
	return s
}

// PostRecv posts a receive request.
func (s *SRQ) PostRecv(id uint64, sges ...qp.SGE) {
	s.Node.pair.tb.Helper()
	s.Node.pair.check(s.Post(qp.RecvWQE{WRID: id, SGEs: sges}))
}
