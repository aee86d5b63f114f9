package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

const (
	// viewMin is the shortest payload that is sent without a copy. Copying a shorter one costs less than two more
	// pieces of a frame.
	viewMin = 1024
	// txArena holds the headers, trailers and copied payloads of one frame.
	txArena = inet.EthernetLen + inet.VLANLen + inet.MaxIPLen + 64
	// txScratch holds the payloads gathered for one frame and one more packet.
	txScratch = 72 << 10
	// txTurns bounds the frames that one PollTransmit handles without the link (loopback, link down, no address).
	txTurns = 64
)

// txState builds one frame at a time.
type txState struct {
	// Limits of a super-frame.
	maxSegs  int
	maxBytes int

	// The frame being built or sent.
	frame    link.Frame
	bufs     [][]byte
	arena    []byte
	off      int // end of the used part of arena
	start    int // of the latest packet there
	piece    int // start of the piece that is not in bufs yet
	segs     int
	segSize  int
	body     int         // bytes of UDP payload
	path     *stack.Path // destination
	unsealed bool        // without ICRCs
	entropy  uint32      // path selected by the queue pair, 0: that of path
	queue    *QueuePair  // source of the packets, until they have left
	seg      [stack.MaxHeaderLen]byte
	control  bool // frame is the head of the control ring
	away     bool // the link has frame, which consists of packets
	shaped   bool // PollTransmit waits for the bucket

	// For packets to NICs of the switch (switch.go).
	burst     bool   // the packets probably need no frame
	forwarded int    // bytes of UDP payload that needed none
	gathering bool   // the payload of the packet is being gathered
	source    origin // of the packet
	scrap     [viewMin]byte

	// t is the latest packet. If it does not fit the frame it waits for the next one, and pending is its queue pair.
	t       qp.Transmit
	to      *stack.Path
	pending *QueuePair

	// The arenas alternate, because the payload of a waiting packet lies in that of the previous frame.
	scratch    [2][]byte
	scratchOff int
	which      int

	ahead readAhead

	loop []byte // copy of a frame to this NIC
	obs  []byte // contiguous copy for the observer
	one  []byte // one segment of it
}

func (b *txState) init() {
	b.arena = make([]byte, txArena)
	b.scratch = [2][]byte{make([]byte, txScratch), make([]byte, txScratch)}
	b.bufs = make([][]byte, 0, 2*(txArena/viewMin)+2)
}

func (b *txState) setOffload(o link.Offload) {
	b.maxSegs, b.maxBytes = max(o.MaxSegments, 1), min(o.MaxBytes, inet.EthernetLen+inet.MaxIPLen)
	if o.MaxBytes <= 0 {
		b.maxSegs = 1
	}
}

// alloc returns sz bytes that stay valid until the frame of the current packets has left.
func (b *txState) alloc(sz int) []byte {
	a := b.scratch[b.which]
	if sz > len(a)-b.scratchOff {
		return make([]byte, sz) // more than a frame holds
	}
	s := a[b.scratchOff : b.scratchOff+sz : b.scratchOff+sz]
	b.scratchOff += sz
	return s
}

// begin starts a frame to p. Its path is that of p, or another one if entropy is not 0.
func (b *txState) begin(p *stack.Path, size int, entropy uint32) {
	b.path, b.segSize, b.entropy, b.unsealed = p, size, entropy, false
	b.segs, b.body, b.piece = 0, 0, 0
	b.bufs = b.bufs[:0]
	b.off = copy(b.arena, p.Headers())
	if entropy != 0 {
		p.SetEntropy(b.arena, entropy)
	}
	copy(b.seg[:], b.arena[:b.off])
	if p.Next != nil {
		copy(b.arena, p.Next.MAC[:])
	}
}

// add appends a packet with its ICRC, which covers the headers that the datagram has after segmentation (IBTA annex
// A17.3.3). snapshot: copy the payload first.
func (b *txState) add(p *bth.Packet, id uint16, size int, snapshot bool) {
	l4 := b.path.L4()
	l3, udp := b.seg[b.path.L2():l4], b.seg[l4:b.path.Len()]
	inet.SetLengths(l3, udp, id+uint16(b.segs), size)
	b.start = b.off
	b.off += p.PutHeaders(b.arena[b.start:])
	data, crc := p.Payload, uint32(0)
	copied := snapshot || len(data) < viewMin
	if copied {
		data = b.arena[b.off : b.off+copy(b.arena[b.off:], data)]
	}
	if !b.unsealed {
		crc = bth.ICRCUpdate(bth.ICRCStart(l3, udp, b.arena[b.start:b.off]), data)
	}
	if copied { // after the last access to the payload, which panics if its pages are gone
		b.off += len(data)
	} else {
		b.bufs = append(b.bufs, b.arena[b.piece:b.off:b.off], data)
		b.piece = b.off
	}
	pad := p.PadLen()
	clear(b.arena[b.off : b.off+pad])
	b.off += pad
	bth.PutICRC(b.arena[b.off:], bth.ICRCPad(crc, pad))
	b.off += bth.ICRCLen
	b.segs++
	b.body += size
}

// fits reports whether the frame has room for one more packet of its segment size.
func (b *txState) fits() bool {
	return b.segs < b.maxSegs && b.path.Len()+b.body+b.segSize <= b.maxBytes
}

// finish completes the headers and returns the frame.
func (b *txState) finish(id uint16) *link.Frame {
	b.bufs = append(b.bufs, b.arena[b.piece:b.off:b.off])
	hdrLen := b.path.Len()
	b.path.Seal(b.arena, id, b.body, b.segs > 1)
	b.frame = link.Frame{Bufs: b.bufs, Len: hdrLen + b.body, HdrLen: hdrLen, Unsealed: b.unsealed}
	if b.segs > 1 {
		b.frame.SegSize = b.segSize
	}
	return &b.frame
}

// left ends the life of the previous frame: its memory is free for the next one. The queue pair of its packets is
// informed, unless one of them still waits.
func (n *NIC) left(now mono.Time) {
	b := &n.tx
	if b.control {
		b.control = false
		n.net.PopControl()
	}
	b.away = false
	q := b.queue
	if q == nil {
		return
	}
	b.queue, b.path = nil, nil
	b.which, b.scratchOff = b.which^1, 0
	if b.pending == q {
		return
	}
	q.machine().Flushed(now)
	n.sch.rearm(q)
}

// drop discards the packets of q.
func (b *txState) drop(q *QueuePair) {
	if b.queue == q {
		b.queue = nil
	}
	if b.pending == q {
		b.pending = nil
	}
}

// releasePath ends the use of p. It discards a packet to p that waits for the next frame; its queue pair is informed as
// if the packet had left.
func (n *NIC) releasePath(p *stack.Path) {
	if b := &n.tx; b.pending != nil && b.to == p {
		b.queue, b.pending = b.pending, nil
	}
	n.net.ReleasePath(p)
}

// detachViews makes the frame being sent and the waiting packet independent of client memory. The caller is about to
// free memory that a work request may have named.
func (n *NIC) detachViews() {
	b := &n.tx
	if b.away {
		for i, v := range b.frame.Bufs {
			b.frame.Bufs[i] = mapped.Append(nil, v)
		}
	}
	if b.pending != nil {
		b.t.Packet.Payload = mapped.Append(nil, b.t.Packet.Payload)
	}
}
