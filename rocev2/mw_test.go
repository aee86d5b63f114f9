package rocev2

import (
	"fmt"
	"testing"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
)

const mwBase = 0x100000

// newWindow returns a window and the parameters of a valid bind: the second page of a region, with all rights.
func (o *objs) newWindow(typ MWType) (*MW, qp.BindWR) {
	o.t.Helper()
	mr := o.reg(mwBase, 1<<16, allAccess)
	mw, err := o.AllocMW(o.pd, typ, nil)
	ok(o.t, err)
	return mw, qp.BindWR{Addr: mwBase + 4096, Length: 4096, MRLKey: mr.LKey, MWRKey: mw.RKey,
		RKey: mw.RKey ^ 0x55, Access: memory.AccessRemote}
}

func TestWindowLifeCycle(t *testing.T) {
	o := newObjs(t, Limits{})
	mw, b := o.newWindow(MWType2)
	h := o.host()
	inside := func(key uint32) bool { return h.CheckRemote(key, b.Addr, 4096, memory.AccessRemote) }
	if inside(mw.RKey) {
		t.Fatal("open before it is bound")
	}
	if !h.BindMW(b) || mw.RKey != b.RKey {
		t.Fatal("bind failed")
	}
	if !inside(b.RKey) || inside(b.MWRKey) {
		t.Error("the new key does not open it, or the old one does")
	}
	if !h.WriteRemote(b.RKey, b.Addr+1, []byte{9}, 0) || o.buf[4097] != 9 {
		t.Error("the write has not reached the memory")
	}
	if h.CheckRemote(b.RKey, b.Addr-1, 1, 0) || h.CheckRemote(b.RKey, b.Addr+4096, 1, 0) {
		t.Error("open outside its range")
	}
	if h.CheckLocal(b.RKey, b.Addr, 1, 0) {
		t.Error("the key of a window opens memory locally")
	}
	mr := o.keyMR(b.MRLKey)
	refused(t, "dereg", o.DeregMR(mr), ErrBusy)
	refused(t, "rereg", o.ReregMR(mr, ReregAccess, nil, MRAttr{}), ErrBusy)
	if !h.Invalidate(b.RKey) || inside(b.RKey) || h.Invalidate(b.RKey) {
		t.Error("invalidation")
	}
	if !o.q.windows.Empty() || o.info(mr).Windows != 0 {
		t.Error("the window is still counted")
	}
	again := b
	again.MWRKey, again.RKey = b.RKey, b.RKey+1&0xff|b.RKey&^0xff
	if !h.BindMW(again) || !inside(again.RKey) || inside(b.RKey) {
		t.Error("the second bind")
	}
	ok(t, o.DeallocMW(mw))
	if inside(again.RKey) {
		t.Error("open after it has gone")
	}
	refused(t, "dealloc twice", o.DeallocMW(mw), ErrInvalid)
	ok(t, o.DeregMR(mr))
}

func TestBindRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  MWType
		mr   qp.Access // rights of the region
		edit func(o *objs, b *qp.BindWR)
		want bool
	}{
		{"plain", MWType2, allAccess, func(*objs, *qp.BindWR) {}, true},
		{"type 1", MWType1, allAccess, func(*objs, *qp.BindWR) {}, true},
		{"same tag", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.RKey = b.MWRKey }, true},
		{"other index", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.RKey = 1024 }, true},
		{"wrong current key", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.MWRKey ^= 1 }, false},
		{"key of a region", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.MWRKey, b.RKey = b.MRLKey, b.MRLKey }, false},
		{"no region", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.MRLKey = 0 }, false},
		{"key of a window as region", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.MRLKey = b.MWRKey }, false},
		{"empty", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Length = 0 }, false},
		{"too long", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Length = 1 << 16 }, false},
		{"before", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Addr = mwBase - 1 }, false},
		{"wraps", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Length = 1<<64 - 1 }, false},
		{"local right means nothing", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Access |= qp.AccessLocalWrite }, true},
		{"unknown right", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Access |= 1 << 12 }, false},
		{"no bind right", MWType2, allAccess &^ qp.AccessMWBind, func(*objs, *qp.BindWR) {}, false},
		{"no local write", MWType2, qp.AccessMWBind, func(*objs, *qp.BindWR) {}, false},
		{"no local write, atomic", MWType2, qp.AccessMWBind, func(_ *objs, b *qp.BindWR) { b.Access = qp.AccessRemoteAtomic }, false},
		{"read of what is only local", MWType2, qp.AccessMWBind, func(_ *objs, b *qp.BindWR) { b.Access = qp.AccessRemoteRead }, true},
		{"zero-based region", MWType2, allAccess | qp.AccessZeroBased, func(_ *objs, b *qp.BindWR) { b.Addr = 0 }, false},
		{"zero-based window", MWType2, allAccess, func(_ *objs, b *qp.BindWR) { b.Access |= qp.AccessZeroBased }, true},
		{"zero-based type 1", MWType1, allAccess, func(_ *objs, b *qp.BindWR) { b.Access |= qp.AccessZeroBased }, false},
		{"queue pair of another domain", MWType2, allAccess, func(o *objs, _ *qp.BindWR) { o.q = o.newQP(o.newPD()) }, false},
		{"type 1, other domain", MWType1, allAccess, func(o *objs, _ *qp.BindWR) { o.q = o.newQP(o.newPD()) }, false},
		{"region of another domain", MWType2, allAccess, func(o *objs, b *qp.BindWR) {
			mr, err := o.RegMR(o.newPD(), MRAttr{VA: mwBase, Length: 1 << 16, Access: allAccess, Mem: NewBytes(o.buf)})
			ok(o.t, err)
			b.MRLKey = mr.LKey
		}, false},
		{"bound already", MWType2, allAccess, func(o *objs, b *qp.BindWR) {
			first := *b
			first.RKey = b.MWRKey
			if !o.host().BindMW(first) {
				o.t.Fatal("first bind")
			}
		}, false},
		{"type 1 bound already", MWType1, allAccess, func(o *objs, b *qp.BindWR) {
			first := *b
			first.RKey = b.MWRKey
			if !o.host().BindMW(first) {
				o.t.Fatal("first bind")
			}
		}, true},
	} {
		o := newObjs(t, Limits{})
		mw, b := o.newWindow(c.typ)
		ok(t, o.ReregMR(o.keyMR(b.MRLKey), ReregTranslation|ReregAccess, nil,
			MRAttr{VA: mwBase, Length: 1 << 16, Access: c.mr, Mem: NewBytes(o.buf)}))
		c.edit(o, &b)
		before := *mw
		if got := o.host().BindMW(b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		} else if !got && *mw != before {
			t.Errorf("%s: a refused bind has changed the window", c.name)
		}
	}
}

func TestZeroBasedWindow(t *testing.T) {
	o := newObjs(t, Limits{})
	_, b := o.newWindow(MWType2)
	b.Access |= qp.AccessZeroBased
	if h := o.host(); !h.BindMW(b) || !h.WriteRemote(b.RKey, 3, []byte{1}, 0) || o.buf[4099] != 1 ||
		h.CheckRemote(b.RKey, b.Addr, 1, 0) {
		t.Error("addresses do not count from the first byte of the window")
	}
}

// TestWindowBelongsToItsQueuePair: a type 2 window opens memory only to the queue pair that bound it, a type 1 window
// to the protection domain.
func TestWindowBelongsToItsQueuePair(t *testing.T) {
	for _, typ := range []MWType{MWType1, MWType2} {
		o := newObjs(t, Limits{})
		mw, b := o.newWindow(typ)
		if !o.host().BindMW(b) {
			t.Fatal("bind")
		}
		sibling, other := (*host)(o.newQP(o.pd)), (*host)(o.newQP(o.newPD()))
		if got := sibling.CheckRemote(b.RKey, b.Addr, 1, memory.AccessRemote); got != (typ == MWType1) {
			t.Errorf("type %d: another queue pair of the domain: %v", typ, got)
		}
		if other.CheckRemote(b.RKey, b.Addr, 1, 0) {
			t.Errorf("type %d: open to another domain", typ)
		}
		if sibling.Invalidate(b.RKey) || other.Invalidate(b.RKey) {
			t.Errorf("type %d: invalidated by another queue pair", typ)
		}
		if got := o.host().Invalidate(b.RKey); got != (typ == MWType2) {
			t.Errorf("type %d: invalidated: %v", typ, got)
		}
		_ = mw
	}
}

// TestBindTakesTheTag: a bind takes the low 8 bits of the requested key. The window keeps its index.
func TestBindTakesTheTag(t *testing.T) {
	for _, typ := range []MWType{MWType1, MWType2} {
		o := newObjs(t, Limits{})
		mw, b := o.newWindow(typ)
		b.RKey = 1024 + 7
		want := b.MWRKey&^0xff | 7
		if !o.host().BindMW(b) || mw.RKey != want {
			t.Fatalf("type %d: key %#x, want %#x", typ, mw.RKey, want)
		}
		if !o.host().WriteRemote(want, b.Addr, []byte{9}, 0) || o.host().CheckRemote(b.RKey, b.Addr, 1, 0) {
			t.Errorf("type %d: open by another key", typ)
		}
	}
}

func TestUnbindType1(t *testing.T) {
	o := newObjs(t, Limits{})
	mw, b := o.newWindow(MWType1)
	h := o.host()
	if !h.BindMW(b) || !h.BindMW(qp.BindWR{MWRKey: b.RKey, RKey: b.RKey ^ 3}) {
		t.Fatal("bind")
	}
	if mw.RKey != b.RKey^3 || h.CheckRemote(mw.RKey, b.Addr, 1, 0) || o.info(o.keyMR(b.MRLKey)).Windows != 0 {
		t.Error("still bound")
	}
}

func TestDestroyQPClosesWindows(t *testing.T) {
	o := newObjs(t, Limits{})
	mw, b := o.newWindow(MWType2)
	if !o.host().BindMW(b) {
		t.Fatal("bind")
	}
	ok(t, o.DestroyQP(o.q))
	if o.bound(mw) || o.info(o.keyMR(b.MRLKey)).Windows != 0 {
		t.Error("still bound")
	}
	ok(t, o.DeregMR(o.keyMR(b.MRLKey)))
	q := o.newQP(o.pd)
	mr := o.reg(mwBase, 1<<16, allAccess)
	if !(*host)(q).BindMW(qp.BindWR{Addr: mwBase, Length: 8, MRLKey: mr.LKey, MWRKey: mw.RKey, RKey: mw.RKey}) {
		t.Error("cannot be bound again")
	}
}

// BenchmarkDestroyQP destroys queue pairs while other queue pairs have windows. These windows must not slow it down.
func BenchmarkDestroyQP(b *testing.B) {
	for _, windows := range []int{0, 60_000} {
		b.Run(fmt.Sprintf("windows=%d", windows), func(b *testing.B) {
			o := newObjs(b, Limits{MWs: 1 << 16})
			for range windows {
				if _, err := o.AllocMW(o.pd, MWType2, nil); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if err := o.DestroyQP(o.newQP(o.pd)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAllocMWRefusals(t *testing.T) {
	o := newObjs(t, Limits{MWs: 1})
	_, err := o.AllocMW(nil, MWType2, nil)
	refused(t, "no domain", err, ErrInvalid)
	_, err = o.AllocMW(o.pd, 3, nil)
	refused(t, "type", err, ErrInvalid)
	mw, err := o.AllocMW(o.pd, MWType2, nil)
	ok(t, err)
	_, err = o.AllocMW(o.pd, MWType2, nil)
	refused(t, "too many", err, ErrLimit)
	refused(t, "dealloc of a used domain", o.DeallocPD(o.pd), ErrBusy)
	ok(t, o.DeallocMW(mw))
	refused(t, "nil", o.DeallocMW(nil), ErrInvalid)
}
