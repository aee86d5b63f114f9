package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
)

// While datagrams are short, several are received by one call, into memory of ours, and copied out
// of it: that costs less than a call each. Long ones, which the kernel joins, are received where the NIC wants
// them.
const (
	batchSize = 16
	batchMax  = 2048 // bytes of what is short
	batchFrom = 2    // short ones in a row that make a batch worth it
)

// batch is what one call of recvmmsg(2) has received.
type batch struct {
	of    *local
	short int // datagrams in a row that were short
	msgs  [batchSize]mmsghdr
	parts []part // made when they are needed
	at, n int    // of msgs: the next one, and how many there are
	dry   bool   // there were no more, so that nobody has to ask again
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

// note remembers what was received by a single call.
func (b *batch) note(l *local, size int) {
	if b.of != l || size > batchMax {
		b.of, b.short = l, 0
	}
	if size <= batchMax {
		b.short++
	}
}

// worth reports whether a batch is worth it.
func (b *batch) worth() bool { return b.short >= batchFrom }

// forget throws away what has not been taken.
func (b *batch) forget() { b.of, b.short, b.at, b.dry = nil, 0, b.n, false }

// empty reports whether all has been taken.
func (b *batch) empty() bool { return b.at == b.n }

// take copies the next message out.
func (b *batch) take(p *Port, buf []byte) (n, segSize int, ok bool) {
	if b.empty() {
		return 0, 0, false
	}
	m, q := &b.msgs[b.at], &b.parts[b.at]
	b.at++
	size := int(m.len)
	b.note(b.of, size)
	seg := p.head(b.of, &q.name, q.ctl.received(&m.hdr), buf, size)
	return b.of.hdr.len + copy(buf[b.of.hdr.len:], q.buf[:size]), seg, true
}

// make prepares the memory for a batch.
func (b *batch) make() {
	b.parts, b.n = make([]part, batchSize), batchSize
	for i := range b.parts {
		q, h := &b.parts[i], &b.msgs[i].hdr
		q.buf = make([]byte, 1<<16)
		q.iov.Base = &q.buf[0]
		q.iov.SetLen(len(q.buf))
		h.Iov = &q.iov
		h.SetIovlen(1)
		h.Name, h.Control = &q.name[0], (*byte)(unsafe.Pointer(&q.ctl.b[0]))
	}
}

// recvBatch receives a batch and takes its first message.
func (p *Port) recvBatch(l *local, buf []byte) (n, segSize int, err error) {
	b := &p.batch
	if b.parts == nil {
		b.make()
	}
	for i := range b.msgs[:b.n] { // what the last call has changed
		h := &b.msgs[i].hdr
		h.Namelen = uint32(len(b.parts[i].name))
		h.SetControllen(b.parts[i].ctl.size())
	}
	b.at, b.n, b.dry = 0, 0, false
	r, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(l.rx), uintptr(unsafe.Pointer(&b.msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, 0, port.ErrAgain
	}
	b.n, b.dry = int(r), int(r) < batchSize
	n, segSize, _ = b.take(p, buf)
	return n, segSize, nil
}
