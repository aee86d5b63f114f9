package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/internal/base/xsk"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// The port or the kernel owns each chunk. Chunks to send from are in free, or pass through the tx and the completion
// ring. Chunks to receive into are in the fill ring, or in the rx ring until the port has copied the frame.

// Send implements port.Port.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	if p.FD() < 0 {
		return port.ErrDown
	}
	if f.Len < ethLen || f.Len > p.dev.maxSend() || f.SegSize != 0 {
		p.Counters.SendDropped++
		return fmt.Errorf("xdp: cannot send a frame of %d bytes with segment size %d", f.Len, f.SegSize)
	}
	if !p.room(now, (f.Len+xsk.ChunkSize-1)/xsk.ChunkSize) {
		p.Counters.Again++
		p.blocked = now.Add(txRetry)
		return port.ErrAgain
	}
	p.put(f)
	p.sentAt = now
	if p.unsent++; p.unsent >= txBatch {
		p.flush(now)
	}
	return nil
}

// maxSend returns the length of the longest frame that can be sent, in bytes.
func (d *device) maxSend() int {
	if d.sg {
		return maxFrame
	}
	return xsk.ChunkSize
}

// room reports whether this many chunks are free to send from.
func (p *Port) room(now mono.Time, chunks int) bool {
	if len(p.free) >= chunks {
		return true
	}
	if p.reclaim(); len(p.free) >= chunks {
		return true
	}
	p.flush(now)
	p.reclaim()
	return len(p.free) >= chunks
}

// reclaim frees the chunks of transmitted frames.
func (p *Port) reclaim() {
	c := &p.dev.queues[0].Completion
	n := c.Refresh()
	for i := range n {
		p.free = append(p.free, c.At(i)&^(xsk.ChunkSize-1))
	}
	c.Take(n)
	c.Publish()
}

// put copies a frame into chunks and puts them into the tx ring. The caller has checked that there are enough chunks; the
// ring has an entry for each chunk.
func (p *Port) put(f *link.Frame) {
	tx := &p.dev.queues[0].Tx
	left := f.Len
	var d xsk.Desc
	var chunk []byte
	for _, b := range f.Bufs {
		for len(b) > 0 {
			if int(d.Len) == len(chunk) {
				if d.Len > 0 {
					d.Options = xsk.Continued
					tx.Put(d)
				}
				d, chunk = p.take(left)
			}
			n := min(len(chunk)-int(d.Len), len(b))
			if to := chunk[d.Len:][:n]; !mapped.Copy(to, b[:n]) {
				clear(to) // the receiver drops the frame: its ICRC is wrong
			}
			d.Len += uint32(n)
			b = b[n:]
			left -= n
		}
	}
	tx.Put(d)
}

// take returns a free chunk, truncated to n bytes.
func (p *Port) take(n int) (xsk.Desc, []byte) {
	last := len(p.free) - 1
	addr := p.free[last]
	p.free = p.free[:last]
	return xsk.Desc{Addr: addr}, p.dev.umem.Chunk(addr)[:min(n, xsk.ChunkSize)]
}

// flush makes the kernel send the batched frames. If the kernel does not accept all of them, flush schedules a retry.
func (p *Port) flush(now mono.Time) {
	p.unsent, p.blocked = 0, 0
	s := p.dev.queues[0]
	s.Tx.Publish()
	if !s.Tx.NeedWakeup() {
		return
	}
	for left := s.Tx.Pending(); left > 0; {
		if s.KickTx() == unix.EBUSY {
			p.Counters.SendDropped++ // the queue of the interface has dropped a frame
		}
		before := left
		if left = s.Tx.Pending(); left == before {
			p.blocked = now.Add(txRetry)
			return
		}
	}
}

// Recv implements port.Port.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if now >= p.Next {
		p.Poll(now)
	}
	if p.FD() < 0 {
		return nil, 0, port.ErrDown
	}
	if len(buf) == 0 {
		return nil, 0, errors.New("xdp: empty buffer")
	}
	if p.unsent > 0 && now != p.sentAt || p.blocked != 0 && now >= p.blocked {
		p.flush(now)
	}
	p.release()
	for range p.dev.queues {
		q := p.dev.queues[p.turn]
		if frame := p.receive(q, buf); frame != nil {
			if !p.dev.native {
				segSize = segmentSize(frame)
			}
			return frame, segSize, nil
		}
		if q.Fill.NeedWakeup() {
			q.KickRx()
		}
		if p.turn++; p.turn == len(p.dev.queues) {
			p.turn = 0
		}
	}
	if p.unsent > 0 {
		p.flush(now)
	}
	return nil, 0, port.ErrAgain
}

// receive returns the next usable frame of a queue, nil if there is none. A frame of one chunk stays there until
// release, others are copied into buf. It skips no frame that the driver has delivered only in part.
func (p *Port) receive(q *xsk.Socket, buf []byte) (frame []byte) {
	for {
		chunks := nextFrame(q)
		if chunks == 0 {
			return nil
		}
		p.dev.held, p.dev.chunks = q, chunks
		if chunks == 1 {
			frame, _ = p.dev.umem.Bytes(q.Rx.At(0))
		} else {
			frame = p.copyOut(q, chunks, buf)
		}
		if len(frame) >= ethLen && len(frame) <= len(buf) {
			return frame
		}
		p.release()
		p.Counters.RecvDropped++
	}
}

// release returns the chunks of the last frame to the fill ring. A descriptor outside the UMEM has none.
func (p *Port) release() {
	q := p.dev.held
	if q == nil {
		return
	}
	for i := range p.dev.chunks {
		d := q.Rx.At(i)
		if p.dev.umem.Chunk(d.Addr) != nil {
			q.Fill.Put(d.Addr &^ (xsk.ChunkSize - 1))
		}
	}
	q.Rx.Take(p.dev.chunks)
	p.dev.held = nil
}

// nextFrame returns the number of descriptors of the next frame, 0 if there is no complete frame. It publishes the
// indices of the rings when all known entries are used, and after rxBatch entries. A store to shared memory costs as
// much as a small frame.
func nextFrame(q *xsk.Socket) uint32 {
	if n := wholeFrame(&q.Rx, q.Rx.Known()); n > 0 && q.Rx.Unpublished() < rxBatch {
		return n
	}
	q.Rx.Publish()
	q.Fill.Publish()
	return wholeFrame(&q.Rx, q.Rx.Refresh())
}

// wholeFrame returns how many of the first n descriptors form a complete frame, 0 if there is none.
func wholeFrame(rx *xsk.Consumer[xsk.Desc], n uint32) uint32 {
	for i := range n {
		if rx.At(i).Options&xsk.Continued == 0 {
			return i + 1
		}
	}
	return 0
}

// copyOut copies a frame of several chunks into buf. It returns nil if the frame is too long, or if a descriptor is
// outside the UMEM.
func (p *Port) copyOut(q *xsk.Socket, chunks uint32, buf []byte) (frame []byte) {
	n := 0
	for i := range chunks {
		b, inside := p.dev.umem.Bytes(q.Rx.At(i))
		if !inside || n+len(b) > len(buf) {
			return nil
		}
		n += copy(buf[n:], b)
	}
	return buf[:n]
}
