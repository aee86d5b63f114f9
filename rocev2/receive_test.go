package rocev2_test

import (
	"testing"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// TestReceiveBeyondRegion: an element of a receive may be longer than its region. Only the bytes that arrive must lie in
// it, and in a region with a valid key, as with rxe (copy_data in rxe_mr.c).
func TestReceiveBeyondRegion(t *testing.T) {
	const size = 3000 // the region, several packets
	for _, c := range []struct {
		name    string
		list    func(b *nictest.Buffer) []qp.SGE
		message int
		status  qp.Status
	}{
		{"fits", beyond, size, qp.StatusSuccess},
		{"one byte too long", beyond, size + 1, qp.StatusLocProtErr},
		{"empty, key unknown", unknown, 0, qp.StatusSuccess},
		{"key unknown", unknown, 1, qp.StatusLocProtErr},
		{"unknown key behind the message", second, size, qp.StatusSuccess},
		{"unknown key at its end", second, size + 1, qp.StatusLocProtErr},
	} {
		for _, typ := range []qp.Type{qp.RC, qp.UC} {
			p := nictest.New(t, nictest.Options{Seed: 1})
			set := func(o *nictest.QPOptions) { o.Type = typ }
			a, b := p.A.QP(set), p.B.QP(set)
			nictest.Connect(a, b)
			src, dst := p.A.Buffer(2*size), p.B.Buffer(size)
			b.PostRecv(1, c.list(dst)...)
			a.Post(nictest.Send(2, src.Part(0, c.message)))
			if got := b.RecvCQ.Wait(); got.Status != c.status {
				t.Errorf("%s, type %d: status %d, want %d", c.name, typ, got.Status, c.status)
			}
		}
	}
}

func beyond(b *nictest.Buffer) []qp.SGE { return []qp.SGE{b.Part(0, 2*len(b.B))} }

func unknown(b *nictest.Buffer) []qp.SGE {
	return []qp.SGE{{Addr: b.VA, Length: 100, LKey: b.MR.LKey ^ 1}}
}

func second(b *nictest.Buffer) []qp.SGE { return append([]qp.SGE{b.SGE()}, unknown(b)...) }

// TestDatagramBeyondRegion: the same for UD, whose receives begin with a GRH.
func TestDatagramBeyondRegion(t *testing.T) {
	for n, status := range map[int]qp.Status{60: qp.StatusSuccess, 61: qp.StatusLocProtErr} {
		p := nictest.New(t, nictest.Options{Seed: 1})
		a, b, toB, _ := p.UD()
		src, dst := p.A.Buffer(100), p.B.Buffer(100)
		b.PostRecv(1, dst.Part(0, 200))
		a.Post(nictest.SendTo(2, toB.Handle(), b, src.Part(0, n)))
		if got := b.RecvCQ.Wait(); got.Status != status {
			t.Errorf("%d bytes: status %d, want %d", n, got.Status, status)
		}
	}
}
