package nictest

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// shaky is memory whose pages can go.
type shaky struct {
	*rocev2.Bytes
	Buffer
	t     *testing.T
	lost  int    // reports of missing pages
	after func() // if set, called once after View, while the packet is being built
}

func (n *Node) shaky(t *testing.T, size int) *shaky {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	s := &shaky{Bytes: rocev2.NewBytes(mem), Buffer: Buffer{B: mem, VA: n.nextVA}, t: t}
	s.Lost = func(uint64, int) { s.lost++ }
	n.nextVA += uint64(2 * size)
	s.MR, err = n.NIC.RegMR(n.PD, rocev2.MRAttr{VA: s.VA, Length: uint64(size), Access: AllAccess, Mem: s})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// View implements rocev2.Memory.
func (s *shaky) View(off uint64, n int) ([]byte, bool) {
	v, ok := s.Bytes.View(off, n)
	if f := s.after; f != nil {
		s.after = nil
		f()
	}
	return v, ok
}

// remove removes the pages in [from, to).
func (s *shaky) remove(from, to int) {
	if err := unix.Mprotect(s.B[from:to], unix.PROT_NONE); err != nil {
		s.t.Error(err)
	}
}

const page = 4096

// TestMissingPages accesses memory without its second page. One request fails as with a bad address.
func TestMissingPages(t *testing.T) {
	for _, c := range []struct {
		name     string
		here     bool // the page is missing on the side of the requester
		post     func(b *QP, src, dst *shaky) qp.SendWQE
		requests qp.Status
		receives qp.Status // of the receive involved; success if there is none
	}{
		{"WRITE from", true, func(_ *QP, src, dst *shaky) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr, 0},
		{"short WRITE from", true, func(_ *QP, src, dst *shaky) qp.SendWQE { return Write(1, dst.At(0), src.Part(page+9, 1)) }, qp.StatusLocProtErr, 0},
		{"WRITE from a list", true, func(_ *QP, src, dst *shaky) qp.SendWQE { return Write(1, dst.At(0), src.Part(0, 7), src.Part(page, 7)) },
			qp.StatusLocProtErr, 0},
		{"WRITE to", false, func(_ *QP, src, dst *shaky) qp.SendWQE { return Write(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr, 0},
		{"READ from", false, func(_ *QP, src, dst *shaky) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusRemAccessErr, 0},
		{"READ to", true, func(_ *QP, src, dst *shaky) qp.SendWQE { return Read(1, dst.At(0), src.SGE()) }, qp.StatusLocProtErr, 0},
		{"SEND to", false, func(b *QP, src, dst *shaky) qp.SendWQE { b.PostRecv(9, dst.SGE()); return Send(1, src.SGE()) },
			qp.StatusRemOpErr, qp.StatusLocProtErr},
		{"FETCH AND ADD", false, func(_ *QP, src, dst *shaky) qp.SendWQE { return FetchAdd(1, dst.At(page), 1, src.Part(0, 8)) }, qp.StatusRemAccessErr, 0},
		{"COMPARE AND SWAP", false, func(_ *QP, src, dst *shaky) qp.SendWQE { return CompareSwap(1, dst.At(page), 0, 1, src.Part(0, 8)) },
			qp.StatusRemAccessErr, 0},
		{"the result of an atomic", true, func(_ *QP, src, dst *shaky) qp.SendWQE { return FetchAdd(1, dst.At(0), 1, src.Part(page, 8)) }, qp.StatusLocProtErr, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			p := New(t, Options{Seed: 1, Offload: super, Whole: true})
			a, b := p.RC()
			src, dst := p.A.shaky(t, 4*page), p.B.shaky(t, 4*page)
			bad, node := dst, p.B
			if c.here {
				bad, node = src, p.A
			}
			bad.remove(page, 2*page)
			a.Post(c.post(b, src, dst))
			if e := a.SendCQ.Wait(); e.Status != c.requests {
				t.Errorf("%v, want %v", e.Status, c.requests)
			}
			if c.receives != 0 {
				if e := b.RecvCQ.Wait(); e.Status != c.receives {
					t.Errorf("receive %v, want %v", e.Status, c.receives)
				}
			}
			if bad.lost != 1 || node.Counter("memory_faults") != 1 {
				t.Errorf("%d reports, counted %d", bad.lost, node.Counter("memory_faults"))
			}
		})
	}
}

// TestPagesGo removes pages between the view of a packet and its transmission. The packet is lost or has zeros and a wrong
// ICRC, and its retransmission fails. Messages of other queue pairs arrive.
func TestPagesGo(t *testing.T) {
	for _, c := range []struct {
		name  string
		post  func(src *shaky, to Remote) qp.SendWQE
		until func(src *shaky) // what happens after the first View
		wrong uint64           // packets with a wrong ICRC
	}{
		{"before the ICRC", func(src *shaky, to Remote) qp.SendWQE { return Write(1, to, src.SGE()) },
			func(src *shaky) { src.remove(0, page) }, 0},
		{"before a copy", func(src *shaky, to Remote) qp.SendWQE { return Write(1, to, src.Part(0, 8)) },
			func(src *shaky) { src.remove(0, page) }, 0},
		{"in a list", func(src *shaky, to Remote) qp.SendWQE { return Write(1, to, src.Part(0, 2000), src.Part(page, 2000)) },
			func(src *shaky) { src.remove(0, page) }, 0},
		{"before the transmission", func(src *shaky, to Remote) qp.SendWQE { return Write(1, to, src.SGE()) },
			func(src *shaky) { src.after = func() { src.remove(0, page) } }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			p := New(t, Options{Seed: 1, Offload: super, Whole: true})
			a, _ := p.RC()
			other, _ := p.RC()
			src, dst := p.A.shaky(t, 4*page), p.B.shaky(t, 4*page)
			for i := range src.B {
				src.B[i] = 7
			}
			src.after = func() { c.until(src) }
			a.Post(c.post(src, dst.At(0)))
			good, to := p.A.Buffer(4*page), p.B.Buffer(4*page)
			good.Fill(3)
			other.Post(Write(2, to.At(0), good.SGE()))
			if e := other.SendCQ.Wait(); e.Status != qp.StatusSuccess || string(good.B) != string(to.B) {
				t.Errorf("another queue pair: %v, or the data differ", e.Status)
			}
			if e := a.SendCQ.Wait(); e.Status != qp.StatusLocProtErr {
				t.Errorf("%v", e.Status)
			}
			if n := p.B.Counter("rx_dropped_icrc"); n != c.wrong {
				t.Errorf("%d wrong ICRCs, want %d", n, c.wrong)
			}
		})
	}
}
