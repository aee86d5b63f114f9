package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

// TestMRCReports: SACKs after each packet tell the truth. They report each packet that has arrived, in a bitmap or by the
// expected PSN, although the bitmap is smaller than the range.
func TestMRCReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := bth.MakePSN(rapid.Uint32().Draw(t, "first"))
		m := reorder.NewMRC(2)
		m.Reset(first)
		arrived, told := map[uint32]bool{}, map[uint32]bool{}
		expected := uint32(0)
		for _, n := range rapid.SliceOfN(rapid.Uint32Range(0, 300), 1, 300).Draw(t, "packets") {
			psn := first.Add(int(expected) + int(n) - 20)
			d, v := expected+n-20, m.Classify(psn)
			if int32(d) >= 0 && v == reorder.Duplicate != (d < expected || arrived[d]) || v == reorder.Beyond != (n >= 20+256) {
				t.Fatalf("%d, expected %d: %v", d, expected, v)
			}
			if m.Commit(psn, v); v == reorder.InOrder || v == reorder.Held {
				arrived[d] = true
			}
			for arrived[expected] {
				expected++
			}
			ahead := uint16(0)
			for k := range arrived {
				if k > expected {
					ahead++
				}
			}
			var f reorder.Feedback
			if m.Feedback(&f); f.Expected != first.Add(int(expected)) || f.Receiver.OutOfOrder != ahead || f.Gap != (ahead > 0) || f.Gap != (f.Bitmap != 0) {
				t.Fatalf("expected %d, ahead %d: %+v", expected, ahead, f)
			}
			for i := range 64 {
				k := f.Base.Add(i).Since(first)
				if set := f.Bitmap>>i&1 != 0; set != (arrived[k] && k >= expected) && f.Bitmap != 0 {
					t.Fatalf("packet %d reported as arrived: %t", k, set)
				} else if set {
					told[k] = true
				}
			}
		}
		for range 8 { // enough for all packets
			var f reorder.Feedback
			m.Feedback(&f)
			for i := range 64 {
				if f.Bitmap>>i&1 != 0 {
					told[f.Base.Add(i).Since(first)] = true
				}
			}
		}
		for k := range arrived {
			if k > expected && !told[k] {
				t.Fatalf("packet %d is not reported", k)
			}
		}
	})
}

// TestMRCFullRange: the largest range, of 255 units.
func TestMRCFullRange(t *testing.T) {
	m := reorder.NewMRC(255)
	if m.Footprint() != 255*16+12 || m.Bitmap() != 255*16 {
		t.Fatalf("%d bytes, bitmap %d", m.Footprint(), m.Bitmap())
	}
	m.Reset(bth.MakePSN(10))
	if v := m.Classify(bth.MakePSN(10 + 255*128 - 1)); v != reorder.Held {
		t.Errorf("the last PSN of the range: %v", v)
	}
	if v := m.Classify(bth.MakePSN(10 + 255*128)); v != reorder.Beyond {
		t.Errorf("the PSN behind it: %v", v)
	}
}
