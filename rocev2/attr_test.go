package rocev2_test

import (
	"testing"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestRemoteQPNIsMasked: only 24 bits of the queue pair number of a UD send count.
func TestRemoteQPNIsMasked(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1})
	a, b, toB, _ := p.UD()
	buf := p.B.Buffer(256)
	b.PostRecv(3, buf.SGE())
	w := nictest.SendInline(2, []byte("x"))
	w.AH, w.RemoteQPN, w.RemoteQKey = toB.Handle(), uint32(b.Num())|0xab000000, 0x11111111
	a.Post(w)
	a.WaitSend(2)
	if c := b.WaitRecv(3); c.SrcQP != uint32(a.Num()) || c.Opcode != qp.WCRecv {
		t.Errorf("%+v", c)
	}
}

// librdmacm of rdma-core 56 and later requests the FLUSH right for every queue pair.
func TestFlushFlagsOfQueuePairs(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1})
	a, _ := p.RC(func(o *nictest.QPOptions) { o.Access |= qp.AccessFlushGlobal | qp.AccessFlushPersistent })
	if a.State() != qp.RTS {
		t.Error(a.State())
	}
}
