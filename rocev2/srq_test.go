package rocev2_test

import (
	"testing"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestSRQOfAnotherDomain: a queue pair may use an SRQ of another protection domain, and its receives name regions of
// that domain. Its sends must still use its own domain's.
func TestSRQOfAnotherDomain(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1})
	own := p.B.PD
	other, err := p.B.NIC.AllocPD(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.B.PD = other
	srq, buf := p.B.SRQ(4), p.B.Buffer(64)
	p.B.PD = own
	a, b := p.A.QP(), p.B.QP(func(o *nictest.QPOptions) { o.SRQ = srq })
	nictest.Connect(a, b)
	srq.PostRecv(5, buf.SGE())
	a.Post(nictest.SendInline(1, []byte("hello")))
	a.WaitSend(1)
	b.WaitRecv(5)
	if string(buf.B[:5]) != "hello" {
		t.Errorf("received %q", buf.B[:5])
	}
	b.Post(nictest.Write(2, p.A.Buffer(64).At(0), buf.SGE()))
	if c := b.SendCQ.Wait(); c.Status != qp.StatusLocProtErr {
		t.Errorf("a WRITE from the other domain's memory has status %d", c.Status)
	}
}
