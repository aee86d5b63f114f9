package rocev2

import (
	"bytes"
	"math"
	"testing"

	"roced.io/roced/qp"
)

func TestRegMRRefusals(t *testing.T) {
	o := newObjs(t, Limits{MRs: 2})
	mem := NewBytes(o.buf)
	gone := o.newPD()
	ok(t, o.DeallocPD(gone))
	other := newObjs(t, Limits{})
	for _, c := range []struct {
		name string
		pd   *PD
		a    MRAttr
		want error
	}{
		{"no domain", nil, MRAttr{Length: 1, Mem: mem}, ErrInvalid},
		{"domain that has gone", gone, MRAttr{Length: 1, Mem: mem}, ErrInvalid},
		{"domain of another NIC", other.pd, MRAttr{Length: 1, Mem: mem}, ErrInvalid},
		{"remote write alone", o.pd, MRAttr{Length: 1, Mem: mem, Access: qp.AccessRemoteWrite}, ErrInvalid},
		{"remote atomic alone", o.pd, MRAttr{Length: 1, Mem: mem, Access: qp.AccessRemoteAtomic}, ErrInvalid},
		{"unknown right", o.pd, MRAttr{Length: 1, Mem: mem, Access: 1 << 6}, ErrInvalid},
		{"no memory", o.pd, MRAttr{Length: 1}, ErrInvalid},
		{"longer than the memory", o.pd, MRAttr{Length: 1<<16 + 1, Mem: mem}, ErrInvalid},
		{"wraps", o.pd, MRAttr{VA: math.MaxUint64 - 7, Length: 9, Mem: mem}, ErrInvalid},
		{"ends with the address space", o.pd, MRAttr{VA: math.MaxUint64 - 7, Length: 8, Mem: mem}, nil},
		{"empty", o.pd, MRAttr{VA: 5}, nil},
		{"too many", o.pd, MRAttr{}, ErrLimit},
	} {
		mr, err := o.RegMR(c.pd, c.a)
		refused(t, c.name, err, c.want)
		if (mr == nil) != (c.want != nil) {
			t.Errorf("%s: region %v", c.name, mr)
		}
	}
	if o.users(o.pd) != 3 { // two regions and the queue pair
		t.Errorf("%d users of the domain", o.users(o.pd))
	}
}

func TestOptionalAccessIsIgnored(t *testing.T) {
	o := newObjs(t, Limits{})
	if mr := o.reg(0, 8, qp.AccessRemoteRead|1<<20); o.info(mr).Access != qp.AccessRemoteRead {
		t.Errorf("rights %#x", o.info(mr).Access)
	}
}

// TestBounds tries ranges around the ends of a region, with sums that wrap.
func TestBounds(t *testing.T) {
	const far = math.MaxUint64 - 0xfff // the last page of the address space
	for _, c := range []struct {
		name         string
		base, length uint64
		access       qp.Access
		va           uint64
		n            uint32
		want         bool
	}{
		{"all", 0x1000, 0x1000, 0, 0x1000, 0x1000, true},
		{"last byte", 0x1000, 0x1000, 0, 0x1fff, 1, true},
		{"one before", 0x1000, 0x1000, 0, 0xfff, 1, false},
		{"from one before", 0x1000, 0x1000, 0, 0xfff, 2, false},
		{"one behind", 0x1000, 0x1000, 0, 0x2000, 1, false},
		{"one too long", 0x1000, 0x1000, 0, 0x1000, 0x1001, false},
		{"wraps", 0x1000, 0x1000, 0, math.MaxUint64, 2, false},
		{"wraps into it", 0x1000, 0x1000, 0, math.MaxUint64 - 0xff, 0x80000000, false},
		{"longest", 0x1000, 0x1000, 0, 0x1000, math.MaxUint32, false},
		{"last page", far, 0x1000, 0, far, 0x1000, true},
		{"last page, wraps", far, 0x1000, 0, far + 1, 0x1000, false},
		{"last page, address 0", far, 0x1000, 0, 0, 1, false},
		{"empty region", 0x1000, 0, 0, 0x1000, 1, false},
		{"empty range", 0x1000, 0, 0, 0x9999, 0, true},
		{"zero based", 0x1000, 0x1000, qp.AccessZeroBased, 0, 0x1000, true},
		{"zero based, one behind", 0x1000, 0x1000, qp.AccessZeroBased, 0x1000, 1, false},
	} {
		o := newObjs(t, Limits{})
		mr := o.reg(c.base, c.length, c.access|qp.AccessRemoteRead)
		if got := o.host().CheckLocal(mr.LKey, c.va, c.n, 0); got != c.want {
			t.Errorf("%s: local %v", c.name, got)
		}
		if got := o.host().CheckRemote(mr.RKey, c.va, c.n, qp.AccessRemoteRead); got != c.want {
			t.Errorf("%s: remote %v", c.name, got)
		}
	}
}

// bigMemory has a length, but no storage.
type bigMemory struct{ off uint64 }

func (m *bigMemory) View(off uint64, n int) ([]byte, bool) { m.off = off; return make([]byte, n), true }
func (m *bigMemory) Write(off uint64, _ []byte) bool       { m.off = off; return true }
func (m *bigMemory) CompareSwap(off uint64, _, _ uint64) (orig uint64, ok bool) {
	m.off = off
	return 0, true
}
func (m *bigMemory) FetchAdd(off uint64, _ uint64) (orig uint64, ok bool) {
	m.off = off
	return 0, true
}

func TestHugeRegion(t *testing.T) {
	o := newObjs(t, Limits{})
	m := &bigMemory{}
	mr, err := o.RegMR(o.pd, MRAttr{VA: 1 << 40, Length: 1 << 62, Access: allAccess, Mem: m})
	ok(t, err)
	h := o.host()
	if !h.CheckRemote(mr.RKey, 1<<40, 1<<31, qp.AccessRemoteWrite) || !h.CheckLocal(mr.LKey, 1<<40+1<<61, math.MaxUint32, 0) {
		t.Error("a long range is refused")
	}
	if !h.WriteRemote(mr.RKey, 1<<40+1<<61, []byte{1}, 0) || m.off != 1<<61 {
		t.Errorf("offset %#x", m.off)
	}
	if _, ok := h.FetchAdd(mr.RKey, 1<<40+4, 1); ok {
		t.Error("FetchAdd at an address that is not aligned")
	}
}

// TestRights tries every access with every set of rights.
func TestRights(t *testing.T) {
	const base = 0x10000
	lw, rw, rr, ra := qp.AccessLocalWrite, qp.AccessRemoteWrite, qp.AccessRemoteRead, qp.AccessRemoteAtomic
	for _, have := range []qp.Access{0, lw, rr, lw | rr, lw | rw, lw | ra, lw | rw | rr | ra} {
		o := newObjs(t, Limits{})
		mr := o.reg(base, 4096, have)
		h := o.host()
		_, readLocal := h.ReadLocal(mr.LKey, base, 8, 0)
		_, readRemote := h.ReadRemote(mr.RKey, base, 8, 0)
		_, cas := h.CompareSwap(mr.RKey, base, 0, 0)
		_, add := h.FetchAdd(mr.RKey, base, 0)
		for _, c := range []struct {
			name string
			got  bool
			need qp.Access
		}{
			{"ReadLocal", readLocal, 0},
			{"WriteLocal", h.WriteLocal(mr.LKey, base, []byte{1}, 0), lw},
			{"ReadRemote", readRemote, rr},
			{"WriteRemote", h.WriteRemote(mr.RKey, base, []byte{1}, 0), rw},
			{"CompareSwap", cas, ra},
			{"FetchAdd", add, ra},
			{"CheckLocal", h.CheckLocal(mr.LKey, base, 1, lw), lw},
			{"CheckRemote write", h.CheckRemote(mr.RKey, base, 1, rw), rw},
			{"CheckRemote read", h.CheckRemote(mr.RKey, base, 1, rr), rr},
			{"CheckRemote atomic", h.CheckRemote(mr.RKey, base, 8, ra), ra},
		} {
			if want := have&c.need == c.need; c.got != want {
				t.Errorf("%s with rights %#x: %v", c.name, have, c.got)
			}
		}
	}
}

func TestHostileKeys(t *testing.T) {
	o := newObjs(t, Limits{})
	const base = 0x10000
	mine := o.reg(base, 4096, allAccess)
	theirs, err := o.RegMR(o.newPD(), MRAttr{VA: base, Length: 4096, Access: allAccess, Mem: NewBytes(o.buf)})
	ok(t, err)
	gone := o.reg(base, 4096, allAccess)
	old := gone.RKey
	ok(t, o.DeregMR(gone))
	for name, key := range map[string]uint32{
		"zero": 0, "all ones": math.MaxUint32, "next index": mine.RKey + 1<<8, "next tag": mine.RKey ^ 1,
		"other domain": theirs.RKey, "deregistered": old, "index only": mine.RKey >> 8,
	} {
		h := o.host()
		_, r := h.ReadLocal(key, base, 8, 0)
		_, rr := h.ReadRemote(key, base, 8, 0)
		_, cas := h.CompareSwap(key, base, 0, 0)
		_, add := h.FetchAdd(key, base, 0)
		if r || rr || cas || add || h.WriteLocal(key, base, []byte{1}, 0) || h.WriteRemote(key, base, []byte{1}, 0) ||
			h.CheckLocal(key, base, 1, 0) || h.CheckRemote(key, base, 1, 0) || h.Invalidate(key) {
			t.Errorf("%s: key %#x opens something", name, key)
		}
	}
	if o.host().Invalidate(mine.RKey) {
		t.Error("a peer has invalidated a memory region")
	}
}

func TestNegativeLengths(t *testing.T) {
	o := newObjs(t, Limits{})
	mr := o.reg(0, 4096, allAccess)
	for _, n := range []int{-1, 0, math.MinInt} {
		if _, ok := o.host().ReadLocal(mr.LKey, 16, n, 0); ok {
			t.Errorf("ReadLocal of %d bytes", n)
		}
		if _, ok := o.host().ReadRemote(mr.RKey, 16, n, 0); ok {
			t.Errorf("ReadRemote of %d bytes", n)
		}
	}
}

func TestAtomics(t *testing.T) {
	o := newObjs(t, Limits{})
	mr := o.reg(0x10000, 4096, allAccess)
	h := o.host()
	if v, ok := h.FetchAdd(mr.RKey, 0x10008, 5); v != 0 || !ok {
		t.Errorf("FetchAdd: %d %v", v, ok)
	}
	if v, ok := h.CompareSwap(mr.RKey, 0x10008, 4, 9); v != 5 || !ok {
		t.Errorf("CompareSwap that does not match: %d %v", v, ok)
	}
	if v, ok := h.CompareSwap(mr.RKey, 0x10008, 5, math.MaxUint64); v != 5 || !ok {
		t.Errorf("CompareSwap: %d %v", v, ok)
	}
	if v, ok := h.FetchAdd(mr.RKey, 0x10008, 2); v != math.MaxUint64 || !ok {
		t.Errorf("FetchAdd: %d %v", v, ok)
	}
	if !bytes.Equal(o.buf[8:16], []byte{1, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("memory %x", o.buf[8:16])
	}
	for _, va := range []uint64{0x10001, 0x10004, 0x11000, 0xfff8, math.MaxUint64} {
		if _, ok := h.FetchAdd(mr.RKey, va, 1); ok {
			t.Errorf("FetchAdd at %#x", va)
		}
	}
	// The address is aligned, the memory is not.
	skew, err := o.RegMR(o.pd, MRAttr{VA: 0, Length: 64, Access: allAccess, Mem: NewBytes(o.buf[1:])})
	ok(t, err)
	if _, ok := h.CompareSwap(skew.RKey, 8, 0, 1); ok {
		t.Error("CompareSwap of a word that is not aligned")
	}
}

func TestRereg(t *testing.T) {
	o := newObjs(t, Limits{})
	mr := o.reg(0x1000, 4096, qp.AccessLocalWrite)
	key, h := mr.RKey, o.host()
	pd := o.newPD()
	mem2 := make([]byte, 64)
	for _, c := range []struct {
		name  string
		flags ReregFlags
		pd    *PD
		a     MRAttr
		want  error
	}{
		{"nothing", 0, nil, MRAttr{}, ErrInvalid},
		{"unknown", 8, nil, MRAttr{}, ErrInvalid},
		{"no domain", ReregPD, nil, MRAttr{}, ErrInvalid},
		{"rights", ReregAccess, nil, MRAttr{Access: qp.AccessRemoteWrite}, ErrInvalid},
		{"zero based later", ReregAccess, nil, MRAttr{Access: qp.AccessZeroBased}, ErrInvalid},
		{"length", ReregTranslation, nil, MRAttr{Length: 65, Mem: NewBytes(mem2)}, ErrInvalid},
	} {
		refused(t, c.name, o.ReregMR(mr, c.flags, c.pd, c.a), c.want)
	}
	if !h.CheckLocal(key, 0x1000, 4096, qp.AccessLocalWrite) {
		t.Fatal("a failed call has changed the region")
	}
	ok(t, o.ReregMR(mr, ReregAccess, nil, MRAttr{Access: qp.AccessRemoteRead}))
	if h.CheckLocal(key, 0x1000, 1, qp.AccessLocalWrite) || !h.CheckRemote(key, 0x1000, 1, qp.AccessRemoteRead) {
		t.Error("rights have not changed")
	}
	ok(t, o.ReregMR(mr, ReregTranslation|ReregAccess, nil, MRAttr{VA: 0x9000, Length: 64, Mem: NewBytes(mem2), Access: allAccess}))
	if h.CheckLocal(key, 0x1000, 1, 0) || !h.WriteRemote(key, 0x9001, []byte{7}, 0) || mem2[1] != 7 {
		t.Error("translation has not changed")
	}
	ok(t, o.ReregMR(mr, ReregPD, pd, MRAttr{}))
	if h.CheckLocal(key, 0x9000, 1, 0) {
		t.Error("the domain has not changed")
	}
	refused(t, "dealloc", o.DeallocPD(pd), ErrBusy)
	ok(t, o.DeregMR(mr))
	ok(t, o.DeallocPD(pd))
	refused(t, "rereg of what has gone", o.ReregMR(mr, ReregAccess, nil, MRAttr{}), ErrInvalid)
}

func TestBytesBounds(t *testing.T) {
	m := NewBytes(make([]byte, 16))
	for _, c := range []struct {
		off uint64
		n   int
		ok  bool
	}{{0, 16, true}, {16, 0, true}, {15, 2, false}, {17, 0, false}, {math.MaxUint64, 2, false}, {0, -1, false}, {8, math.MaxInt, false}} {
		if _, ok := m.View(c.off, c.n); ok != c.ok {
			t.Errorf("View(%d, %d): %v", c.off, c.n, ok)
		}
	}
	if v, _ := m.View(4, 4); cap(v) != 4 {
		t.Errorf("a view reaches %d bytes further", cap(v)-4)
	}
	if m.Write(12, make([]byte, 5)) {
		t.Error("write beyond the end")
	}
	if _, ok := m.FetchAdd(12, 1); ok {
		t.Error("atomic beyond the end")
	}
}
