package rocev2

import (
	"testing"

	"roced.io/roced/qp"
)

// heldMemory is Deferred memory that records started accesses.
type heldMemory struct {
	*Bytes
	started []*MemoryAccess
}

func (m *heldMemory) Start(a *MemoryAccess) { m.started = append(m.started, a) }
func (m *heldMemory) Read(off uint64, p []byte) bool {
	v, ok := m.View(off, len(p))
	copy(p, v)
	return ok
}

// TestDeferrals: read data last for one packet, each element of a list once. The number of writes in progress is
// bounded.
func TestDeferrals(t *testing.T) {
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	q := plug(t, n, 0x22, qp.RC, newScript())
	m := &heldMemory{Bytes: NewBytes(make([]byte, 1<<20))}
	pd, err := n.AllocPD(nil)
	ok(t, err)
	mr, err := n.RegMR(pd, MRAttr{Length: m.Len(), Access: qp.AccessLocalWrite, Mem: m})
	ok(t, err)
	r, h := &mr.Region, (*host)(q)
	end := func() {
		t.Helper()
		a := m.started[len(m.started)-1]
		a.Run(m)
		n.Accessed(0, a)
	}
	d := h.deferrals()
	for _, off := range []uint64{0, 5000} { // two elements
		if _, ok := d.view(r, off, 100, 0, false); ok || !h.Later() || h.Later() {
			t.Fatal("not to come later")
		}
		if _, ok := d.view(r, off, 100, 0, false); ok || len(m.started) != 1+int(off/5000) {
			t.Fatalf("%d accesses", len(m.started))
		}
		h.Later()
		end()
	}
	for range 2 {
		for _, off := range []uint64{0, 5000} {
			if _, ok := d.view(r, off, 100, 0, false); !ok {
				t.Fatal("not there")
			}
		}
	}
	if d.sent(); len(d.reads) != 0 {
		t.Errorf("%d are left", len(d.reads))
	}
	m.started = nil
	writes := 0
	for !d.full() {
		d.write(r, uint64(writes)*10, []byte{1})
		writes++
	}
	if writes != maxRuns+1 || len(m.started) != maxRuns {
		t.Errorf("%d writes, %d started", writes, len(m.started))
	}
	if h.Sync() || !h.Later() {
		t.Error("synchronous")
	}
	for _, a := range m.started {
		a.Run(m)
		n.Accessed(0, a)
	}
	if !h.Sync() {
		t.Error("writes have ended")
	}
}
