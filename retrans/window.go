package retrans

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/psnring"
	"roced.io/roced/reorder"
)

// MaxLate is the maximum number of packets acknowledged while an acknowledgement travels on a longer path. A later one
// is stale.
const MaxLate = 1 << 16

// window is the range of outstanding PSNs, from una up to but not including nxt.
type window struct{ una, nxt bth.PSN }

// Una implements Recovery.
func (w *window) Una() bth.PSN { return w.una }

// offset returns the distance of psn from una.
func (w *window) offset(psn bth.PSN) uint32 { return psn.Since(w.una) }

// outstanding returns the number of outstanding PSNs.
func (w *window) outstanding() uint32 { return w.offset(w.nxt) }

// isOutstanding reports whether psn is outstanding.
func (w *window) isOutstanding(psn bth.PSN) bool { return w.offset(psn) < w.outstanding() }

// advance moves una to an outstanding PSN or to nxt, and moves the positions that it passes to una.
func (w *window) advance(to bth.PSN, positions ...*bth.PSN) {
	w.una = to
	for _, p := range positions {
		if w.offset(*p) > w.outstanding() {
			*p = to
		}
	}
}

// overtaken reports whether f answers one packet but acknowledges less than is known, because later acknowledgements
// have arrived on shorter paths.
func (w *window) overtaken(f *reorder.Feedback) bool {
	behind := w.una.Since(f.Expected)
	return f.HasSACK && behind > 0 && behind <= MaxLate
}

// marked is a window with marks for packets that have arrived ahead of a gap.
type marked struct {
	window
	marks psnring.Bits
	set   uint32 // number of marks
}

func makeMarked(packets int) marked { return marked{marks: psnring.Make(packets)} }

// reset begins a window at psn.
func (m *marked) reset(psn bth.PSN) {
	clear(m.marks)
	m.window, m.set = window{psn, psn}, 0
}

// mark marks psn. It returns false if psn is beyond the marks or already marked.
func (m *marked) mark(psn bth.PSN) bool {
	if m.offset(psn) >= m.marks.Len() || m.marks.Has(psn) {
		return false
	}
	m.marks.Set(psn)
	m.set++
	return true
}

func (m *marked) has(psn bth.PSN) bool {
	return m.offset(psn) < m.marks.Len() && m.marks.Has(psn)
}

// clear removes the mark of psn, if it has one.
func (m *marked) clear(psn bth.PSN) {
	if m.has(psn) {
		m.marks.Clear(psn)
		m.set--
	}
}

// unmarked counts the packets from from up to but not including to that have no mark.
func (m *marked) unmarked(from, to bth.PSN) uint32 {
	n := to.Since(from)
	return n - m.marks.Count(from, min(n, m.marks.Len()-min(m.marks.Len(), m.offset(from))))
}

// advance is window.advance. It returns the number of packets without a mark that una passes.
func (m *marked) advance(to bth.PSN, positions ...*bth.PSN) (unmarked uint32) {
	acked := m.offset(to)
	unmarked = m.unmarked(m.una, to)
	m.set -= acked - unmarked
	for k := range min(acked, m.marks.Len()) {
		m.marks.Clear(m.una.Add(int(k)))
	}
	m.window.advance(to, positions...)
	return unmarked
}
