package capture

import (
	"encoding/binary"
	"sync/atomic"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Layout of a record in the ring. Records begin at multiples of 8 bytes and are contiguous. A record that would cross
// the end starts at the beginning, after a record of kind skip.
const (
	recSize    = 0  // uint32, length of the whole record
	recKind    = 4  // uint8
	recComment = 6  // uint16, length of the comment
	recKept    = 8  // uint32, captured bytes of the frame
	recLength  = 12 // uint32, original length of the frame
	recTime    = 16 // int64
	recLost    = 24 // uint64, frames lost directly before
	recHeader  = 32
)

const (
	kindRx   = uint8(link.Rx)
	kindTx   = uint8(link.Tx)
	kindSkip = 2
)

const maxComment = 1024

// ring is a single-producer, single-consumer ring of frames. The producer never blocks.
type ring struct {
	buf  []byte // the length is a power of two
	head atomic.Uint64
	tail atomic.Uint64
	lost atomic.Uint64
	// gap is the number of frames lost since the last one that fitted. Only the producer uses it.
	gap uint64
}

// record is a frame in the ring, valid until its release.
type record struct {
	size    int
	kind    uint8
	time    mono.Time
	lost    uint64
	length  int
	frame   []byte
	comment []byte
}

// put copies up to snap bytes of a frame, or counts the frame as lost.
func (r *ring) put(now mono.Time, d link.Direction, frame []byte, snap int, comment string) {
	kept := min(len(frame), snap)
	comment = comment[:min(len(comment), maxComment)]
	size := (recHeader + kept + len(comment) + 7) &^ 7
	b := r.reserve(size)
	if b == nil {
		r.gap++
		r.lost.Add(1)
		return
	}
	binary.NativeEndian.PutUint32(b[recSize:], uint32(size))
	b[recKind] = uint8(d)
	binary.NativeEndian.PutUint16(b[recComment:], uint16(len(comment)))
	binary.NativeEndian.PutUint32(b[recKept:], uint32(kept))
	binary.NativeEndian.PutUint32(b[recLength:], uint32(len(frame)))
	binary.NativeEndian.PutUint64(b[recTime:], uint64(now))
	binary.NativeEndian.PutUint64(b[recLost:], r.gap)
	n := copy(b[recHeader:], frame[:kept])
	copy(b[recHeader+n:], comment)
	r.gap = 0
	r.head.Add(uint64(size))
}

// reserve returns size contiguous bytes at the head, or nil if there is no room.
func (r *ring) reserve(size int) []byte {
	n := uint64(len(r.buf))
	head := r.head.Load()
	free := n - (head - r.tail.Load())
	at := head & (n - 1)
	if rest := n - at; rest < uint64(size) {
		if free < rest+uint64(size) {
			return nil
		}
		binary.NativeEndian.PutUint32(r.buf[at+recSize:], uint32(rest))
		r.buf[at+recKind] = kindSkip
		r.head.Add(rest)
		at = 0
	} else if free < uint64(size) {
		return nil
	}
	return r.buf[at : at+uint64(size)]
}

// used returns the fill level of the ring, in 1/16.
func (r *ring) used() uint64 { return (r.head.Load() - r.tail.Load()) * 16 / uint64(len(r.buf)) }

// get returns the oldest record, or false if the ring is empty.
func (r *ring) get(rec *record) bool {
	for {
		tail := r.tail.Load()
		if tail == r.head.Load() {
			return false
		}
		b := r.buf[tail&uint64(len(r.buf)-1):]
		rec.size, rec.kind = int(binary.NativeEndian.Uint32(b[recSize:])), b[recKind]
		if rec.kind == kindSkip {
			r.release(rec)
			continue
		}
		kept := int(binary.NativeEndian.Uint32(b[recKept:]))
		comment := int(binary.NativeEndian.Uint16(b[recComment:]))
		rec.length = int(binary.NativeEndian.Uint32(b[recLength:]))
		rec.time = mono.Time(binary.NativeEndian.Uint64(b[recTime:]))
		rec.lost = binary.NativeEndian.Uint64(b[recLost:])
		rec.frame = b[recHeader : recHeader+kept]
		rec.comment = b[recHeader+kept : recHeader+kept+comment]
		return true
	}
}

// release frees the oldest record.
func (r *ring) release(rec *record) { r.tail.Add(uint64(rec.size)) }
