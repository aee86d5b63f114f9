package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Sizes of the transmit arenas.
const (
	// viewMin is the shortest payload that is sent from where it lies. Copying a
	// shorter one costs less than two more pieces of a frame.
	viewMin = 1024
	// txArena holds the headers, trailers and copied payloads of one frame.
	txArena = ethLen + vlanLen + maxIPTotal + 64
	// txScratch holds the payloads gathered for one frame and one packet more.
	txScratch = 72 << 10
	// txTurns bounds the frames that one PollTransmit may dispose of itself
	// (loopback, link down, no address) before it returns.
	txTurns = 64
)

// txState builds one frame at a time.
type txState struct {
	// Limits of a super-frame.
	maxSegs  int
	maxBytes int

	// The frame being built or on its way.
	frame   Frame
	bufs    [][]byte
	arena   []byte
	off     int // end of what is used of arena
	piece   int // start of the piece that is not in bufs yet
	segs    int
	segSize int
	body    int        // bytes of UDP payload
	path    *path      // where it goes
	port    uint16     // UDP source port if not that of path
	queue   *QueuePair // from which packets have been taken; nil when they have left
	seg     [maxHdrLen]byte
	control bool // frame is the head of the control ring
	away    bool // frame, made of packets, has been handed to the link

	// t is the packet just taken. When it does not fit the frame it waits for the
	// next one and pending is the queue pair that it belongs to.
	t       qp.Transmit
	to      *path
	pending *QueuePair

	// Two arenas take turns, because the payload of a packet that waits lies in
	// the one of the frame before.
	scratch    [2][]byte
	scratchOff int
	which      int

	ahead readAhead

	loop []byte // copy of a frame to ourselves
	obs  []byte // contiguous copy for the observer
	one  []byte // one segment of it
}

func (b *txState) init() {
	b.arena = make([]byte, txArena)
	b.scratch = [2][]byte{make([]byte, txScratch), make([]byte, txScratch)}
	b.bufs = make([][]byte, 0, 2*(txArena/viewMin)+2)
}

func (b *txState) setOffload(o Offload) {
	b.maxSegs, b.maxBytes = max(o.MaxSegments, 1), min(o.MaxBytes, ethLen+maxIPTotal)
	if o.MaxBytes <= 0 {
		b.maxSegs = 1
	}
}

// scratch returns sz bytes that stay valid until the frame has left whose packets
// are being taken.
func (n *NIC) scratch(sz int) []byte {
	b := &n.net.tx
	a := b.scratch[b.which]
	if sz > len(a)-b.scratchOff {
		return make([]byte, sz) // somebody takes more than goes into a frame
	}
	s := a[b.scratchOff : b.scratchOff+sz : b.scratchOff+sz]
	b.scratchOff += sz
	return s
}

// begin starts a frame to p. The UDP source port is that of p unless one is given.
func (b *txState) begin(p *path, size int, port uint16) {
	b.path, b.segSize, b.port = p, size, port
	b.segs, b.body, b.piece = 0, 0, 0
	b.bufs = b.bufs[:0]
	b.off = copy(b.arena, p.headers())
	if port != 0 {
		binary.BigEndian.PutUint16(b.arena[p.l4():], port)
	}
	copy(b.seg[:], b.arena[:b.off])
	if p.nb != nil {
		copy(b.arena, p.nb.mac[:])
	}
}

// setTrafficClass replaces DSCP and ECN bits in the headers of the frame, which the
// ICRC does not cover, and the priority in its tag.
func (b *txState) setTrafficClass(tclass uint8) {
	if b.path.l2 > ethLen {
		b.arena[ethLen] = b.arena[ethLen]&0x1f | tclass&0xe0
	}
	ip := b.arena[b.path.l2:]
	if b.path.src.is4() {
		ip[1] = tclass
		return
	}
	ip[0], ip[1] = ip[0]&0xf0|tclass>>4, ip[1]&0x0f|tclass<<4
}

// add appends a packet with its ICRC, which covers the headers that the datagram
// has once it is cut off (IBTA annex A17.3.3). snapshot: the payload is copied first.
func (b *txState) add(p *bth.Packet, id uint16, size int, snapshot bool) {
	l4 := b.path.l4()
	l3, udp := b.seg[b.path.l2:l4], b.seg[l4:b.path.hdrLen]
	setLengths(l3, udp, id+uint16(b.segs), size)
	start := b.off
	b.off += p.PutHeaders(b.arena[start:])
	crc := bth.ICRCStart(l3, udp, b.arena[start:b.off])
	if snapshot || len(p.Payload) < viewMin {
		n := copy(b.arena[b.off:], p.Payload)
		crc = bth.ICRCUpdate(crc, b.arena[b.off:b.off+n])
		b.off += n
	} else {
		crc = bth.ICRCUpdate(crc, p.Payload)
		b.bufs = append(b.bufs, b.arena[b.piece:b.off:b.off], p.Payload)
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

// fits reports whether one more packet of the frame's segment size may be added.
func (b *txState) fits() bool {
	return b.segs < b.maxSegs && int(b.path.hdrLen)+b.body+b.segSize <= b.maxBytes
}

// finish completes the headers and returns the frame. A super-frame has the sum of
// the pseudo-header as its UDP checksum, which is what a link needs to compute
// those of the segments; for a single frame it is zero, as rxe has it (IBTA annex
// A17.4.3 allows that for IPv6 too).
func (b *txState) finish(id uint16) *Frame {
	b.bufs = append(b.bufs, b.arena[b.piece:b.off:b.off])
	l4, hdrLen := b.path.l4(), int(b.path.hdrLen)
	l3, udp := b.arena[b.path.l2:l4], b.arena[l4:hdrLen]
	setLengths(l3, udp, id, b.body)
	if b.path.src.is4() {
		sealIPv4(l3)
	}
	b.frame = Frame{Bufs: b.bufs, Len: hdrLen + b.body, HdrLen: hdrLen}
	if b.segs > 1 {
		b.frame.SegSize = b.segSize
		binary.BigEndian.PutUint16(udp[6:], fold(pseudoSum(&b.path.src, &b.path.dst, protoUDP, udpLen+b.body)))
	}
	return &b.frame
}

// left ends the life of the frame on its way: its memory is used again, and the
// queue pair whose packets it held is told, unless one of them still waits.
func (n *NIC) left(now mono.Time) {
	b := &n.net.tx
	if b.control {
		b.control = false
		n.net.ctl.pop()
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
	if !q.dead {
		n.rearm(q)
	}
}

// drop forgets what was taken from q.
func (b *txState) drop(q *QueuePair) {
	if b.queue == q {
		b.queue = nil
	}
	if b.pending == q {
		b.pending = nil
	}
}

// forget discards a packet to p that waits for the next frame. Its queue pair is
// told as if it had left.
func (b *txState) forget(p *path) {
	if b.pending != nil && b.to == p {
		b.queue, b.pending = b.pending, nil
	}
}

// detachViews makes the frame on its way and the packet that waits independent of
// client memory. It must be called before memory goes away that a work request
// may have named.
func (n *NIC) detachViews() {
	b := &n.net.tx
	if b.away {
		for i, v := range b.frame.Bufs {
			b.frame.Bufs[i] = append([]byte(nil), v...)
		}
	}
	if b.pending != nil {
		b.t.Packet.Payload = append([]byte(nil), b.t.Packet.Payload...)
	}
}
