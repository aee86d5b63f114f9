package rocev2_test

import (
	"testing"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestSRQOfAnotherDomain: a queue pair may use an SRQ of another protection domain. Receives must then name regions of
// the SRQ's domain, all other requests regions of the queue pair's.
func TestSRQOfAnotherDomain(t *testing.T) {
	for _, c := range []struct {
		name              string
		inSRQs            bool // the memory belongs to the SRQ's domain
		receive, readInto qp.Status
	}{
		{"memory of the SRQ's domain", true, qp.StatusSuccess, qp.StatusLocProtErr},
		{"memory of the queue pair's domain", false, qp.StatusLocProtErr, qp.StatusSuccess},
	} {
		for _, read := range []bool{false, true} {
			p := nictest.New(t, nictest.Options{Seed: 1})
			own := p.B.PD
			other, err := p.B.NIC.AllocPD(nil)
			if err != nil {
				t.Fatal(err)
			}
			p.B.PD = other
			srq, buf := p.B.SRQ(4), p.B.Buffer(64)
			p.B.PD = own
			if !c.inSRQs {
				buf = p.B.Buffer(64)
			}
			a, b := p.A.QP(), p.B.QP(func(o *nictest.QPOptions) { o.SRQ = srq })
			nictest.Connect(a, b)
			if read {
				b.Post(nictest.Read(2, p.A.Buffer(64).At(0), buf.SGE()))
				if got := b.SendCQ.Wait(); got.Status != c.readInto {
					t.Errorf("%s: READ has status %d, want %d", c.name, got.Status, c.readInto)
				}
				continue
			}
			srq.PostRecv(5, buf.SGE())
			a.Post(nictest.SendInline(1, []byte("hello")))
			if got := b.RecvCQ.Wait(); got.Status != c.receive {
				t.Errorf("%s: receive has status %d, want %d", c.name, got.Status, c.receive)
			}
		}
	}
}
