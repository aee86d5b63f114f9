package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
)

// The port receives several short datagrams in one call, into its own memory, and copies them: that costs less than a call
// per datagram. It receives long datagrams, which the kernel coalesces, directly into the buffer of the caller.
const (
	batchSize = 16
	batchMax  = 2048 // maximum length of a short datagram in bytes
	batchFrom = 2    // consecutive short datagrams before the port uses batches
)

// batch is the result of a recvmmsg(2) call.
type batch struct {
	of    *local
	short int // number of consecutive short datagrams
	msgs  [batchSize]mmsghdr
	parts []part // allocated on first use
	at, n int    // next message, number of messages
	dry   bool   // the socket was empty after the batch
}

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   uint32
}

// part is one message of a batch.
type part struct {
	name name
	ctl  control
	iov  unix.Iovec
	buf  []byte
}

// note records the size of a received datagram.
func (b *batch) note(l *local, size int) {
	if b.of != l || size > batchMax {
		b.of, b.short = l, 0
	}
	if size <= batchMax {
		b.short++
	}
}

// worth reports whether to receive a batch.
func (b *batch) worth() bool { return b.short >= batchFrom }

// forget discards the remaining messages.
func (b *batch) forget() { b.of, b.short, b.at, b.dry = nil, 0, b.n, false }

// empty reports whether no message remains.
func (b *batch) empty() bool { return b.at == b.n }

// take returns the next message, with headers before it.
func (b *batch) take(p *Port) (frame []byte, segSize int, ok bool) {
	if b.empty() {
		return nil, 0, false
	}
	m, q := &b.msgs[b.at], &b.parts[b.at]
	b.at++
	size := int(m.len)
	b.note(b.of, size)
	frame = q.buf[maxHdr-b.of.hdr.len : maxHdr+size]
	return frame, p.head(b.of, &q.name, q.ctl.received(&m.hdr), frame, size), true
}

// make allocates the memory of a batch.
func (b *batch) make() {
	b.parts, b.n = make([]part, batchSize), batchSize
	for i := range b.parts {
		q, h := &b.parts[i], &b.msgs[i].hdr
		q.buf = make([]byte, maxHdr+1<<16)
		q.iov.Base = &q.buf[maxHdr]
		q.iov.SetLen(len(q.buf) - maxHdr)
		h.Iov = &q.iov
		h.SetIovlen(1)
		h.Name, h.Control = &q.name[0], (*byte)(unsafe.Pointer(&q.ctl.b[0]))
	}
}

// recvBatch receives a batch and returns its first message.
func (p *Port) recvBatch(l *local) (frame []byte, segSize int, err error) {
	b := &p.batch
	if b.parts == nil {
		b.make()
	}
	for i := range b.msgs[:b.n] { // reset the fields that the last call has changed
		h := &b.msgs[i].hdr
		h.Namelen = uint32(len(b.parts[i].name))
		h.SetControllen(b.parts[i].ctl.size())
	}
	b.at, b.n, b.dry = 0, 0, false
	r, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(l.rx), uintptr(unsafe.Pointer(&b.msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return nil, 0, port.ErrAgain
	}
	b.n, b.dry = int(r), int(r) < batchSize
	frame, segSize, _ = b.take(p)
	return frame, segSize, nil
}
