package rocev2_test

import (
	"testing"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestRegionGoneBeforeTheAck: a region is deregistered after WRITEs from it have left without an acknowledgement
// request. There is no timeout. All WRITEs complete.
func TestRegionGoneBeforeTheAck(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1, Rate: 1e9, Busy: true})
	a, _ := p.RC(func(o *nictest.QPOptions) { o.Timeout = 0 })
	src, dst := p.A.Buffer(1024), p.B.Buffer(1024)
	const n = 8
	for i := range uint64(n) {
		a.Post(nictest.Write(i, dst.At(0), src.SGE()))
	}
	p.RunUntil(func() bool { return p.B.Counter("rx_write_requests") == n/2 }, time.Second)
	if err := p.A.NIC.DeregMR(src.MR); err != nil {
		t.Fatal(err)
	}
	if !p.RunUntil(func() bool { return a.SQ.Outstanding() == 0 }, time.Second) {
		t.Fatalf("%d requests wait for ever in state %v", a.SQ.Outstanding(), a.State())
	}
	for i, c := range a.SendCQ.PollAll() {
		if c.WRID != uint64(i) || i == n-1 && c.Status == qp.StatusSuccess {
			t.Errorf("completion %d: request %d, status %d", i, c.WRID, c.Status)
		}
	}
}
