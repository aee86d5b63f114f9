package server

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
)

// regions maps and registers n pages of a memfd one by one, and returns the first error.
func (u *user) regions(tb testing.TB, pd uint32, first, n int) error {
	tb.Helper()
	fd, mem, err := shm.New("regions", int64(n)*shm.PageSize, shm.SealSize)
	if err != nil {
		tb.Fatal(err)
	}
	defer unix.Close(fd)
	defer func() { _ = shm.Unmap(mem) }()
	for i := range uint64(n) {
		base := (uint64(first)+i)*2*shm.PageSize + 1<<32 // no two regions touch
		resp, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: base, Length: shm.PageSize, Offset: i * shm.PageSize})
		if err != nil {
			return err
		}
		_, _, err = u.conn.Call(uverbs.Command(uverbs.CmdRegMR, uverbs.Size[uverbs.RegMRResp](),
			uverbs.RegMR{Start: base, HCAVA: base, Length: shm.PageSize, AccessFlags: 3, PDHandle: pd},
			uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: word(resp, 0)}), nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// TestManyRegions checks that a client can map as many regions as its limit allows. Without mappings it would have
// to pass its memory, which takes a hundred times as long.
func TestManyRegions(t *testing.T) {
	l := testLimits
	l.MRs = 16384
	u := pair(t, l)[0].connect(t)
	if err := u.regions(t, u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), 0, 12000); err != nil {
		t.Error(err)
	}
}

// TestMapQuota checks the quota of mappings. The kernel limits their number for the whole daemon.
func TestMapQuota(t *testing.T) {
	var all quota.Amounts
	all[quota.Maps] = 12
	h := pair(t, testLimits, quota.New(quota.Amounts{}, all, nil))[0]
	u := h.connect(t) // uses one mapping
	if err := u.regions(t, u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), 0, 20); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("20 mappings of 12: %v", err)
	}
	u.conn.Close()
	eventually(t, "an end of all accounts", func() bool { return len(h.srv.cfg.Quota.Usage()) == 0 })
}

// TestMapParts maps parts of a memfd one behind the other, and refuses others. A region may span the parts.
func TestMapParts(t *testing.T) {
	const page, base = shm.PageSize, 1 << 32
	type request struct {
		First uverbs.MapMemory
		More  [2]shm.Part
	}
	var all quota.Amounts
	all[quota.Maps] = 5
	u := pair(t, testLimits, quota.New(quota.Amounts{}, all, nil))[0].connect(t) // uses one mapping
	fd, mem, err := shm.New("parts", 8*page, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer func() { _ = shm.Unmap(mem) }()
	first := uverbs.MapMemory{Base: base, Length: page, Offset: 6 * page}
	for what, more := range map[string][2]shm.Part{
		"an empty part": {{Length: page}, {}}, "a part of a page": {{Length: page}, {Length: 100}},
		"a part at no page": {{Length: page, Offset: 100}, {Length: page}}, "a part beyond the end": {{Length: page}, {Length: page, Offset: 8 * page}},
		"a long part": {{Length: page}, {Length: 1 << 63}}, "too long": {{Length: 1<<63 - page}, {Length: 1<<63 - page}},
	} {
		if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, request{first, more}); err != unix.EINVAL {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, struct {
		First uverbs.MapMemory
		Half  uint64
	}{first, page}); err != unix.EINVAL {
		t.Errorf("half a part: %v", err)
	}
	parts := request{first, [2]shm.Part{{Length: 2 * page, Offset: page}, {Length: page, Offset: 4 * page}}}
	resp, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, parts)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, parts); err != unix.ENOMEM {
		t.Errorf("3 parts more than the quota of 5 mappings: %v", err)
	}
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	for length, want := range map[uint64]error{4 * page: nil, 4*page + 1: unix.EFAULT} {
		_, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, uverbs.Size[uverbs.RegMRResp](),
			uverbs.RegMR{Start: base, HCAVA: base, Length: length, AccessFlags: 3, PDHandle: pd},
			uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: word(resp, 0)}), nil)
		if !errors.Is(err, want) {
			t.Errorf("a region of %d bytes: %v, want %v", length, err, want)
		}
	}
}

// BenchmarkManyRegions registers memory beside 16,000 regions.
func BenchmarkManyRegions(b *testing.B) {
	l := testLimits
	l.MRs, l.Memory = 1<<17, 1<<30
	u := pair(b, l)[0].connect(b)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	if err := u.regions(b, pd, 0, 16000); err != nil {
		b.Fatal(err)
	}
	first := 16000
	for b.Loop() {
		if err := u.regions(b, pd, first, 1); err != nil {
			b.Fatal(err)
		}
		first++
	}
}
