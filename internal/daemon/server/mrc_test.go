package server

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/rocev2"
)

// TestMRCAttributes: attributes of MRC are read back as set. Hostile values are refused with the name of the attribute,
// counted, and change nothing.
func TestMRCAttributes(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h) // of RC
	rc := e.qp
	if err := e.try(uverbs.ExtMRCDevice, uverbs.MRCDevice{}); err != unix.EOPNOTSUPP {
		t.Errorf("device of rc: %v", err)
	}
	name := uverbs.SetProfile{}
	uverbs.SetText(name.Profile[:], "mrc")
	e.must(uverbs.ExtSetProfile, name)
	resp, _ := e.must(uverbs.ExtMRCDevice, uverbs.MRCDevice{})
	if d, err := uverbs.Decode[uverbs.MRCDeviceResp](resp); err != nil || d.Versions != 1 || d.MaxMPR != mrc.MaxMPR || d.MaxWIMM != mrc.MaxWIMM || d.Cap != 3 {
		t.Errorf("device %+v, %v", d, err)
	}
	resp, _ = e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.RC)})
	handle := word(resp, 0)
	query := func() uverbs.MRCAttr {
		t.Helper()
		resp, _ := e.must(uverbs.ExtQueryMRC, uverbs.QueryMRC{QPHandle: handle})
		a, err := uverbs.Decode[uverbs.MRCAttr](resp)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	set := uverbs.MRCAttr{Cap: 2, MaxWIMM: 5, MaxWIMMDest: 6, MPR: 3, MPRDest: 4, Timeout: 9, Linear: 2, Exponential: 25}
	e.must(uverbs.ExtModifyMRC, uverbs.ModifyMRC{QPHandle: handle, AttrMask: 0x37f, Attr: set})
	if a := query(); a != set {
		t.Errorf("%+v, want %+v", a, set)
	}
	refused := 0
	for _, c := range []struct {
		handle uint32
		mask   uint32
		a      uverbs.MRCAttr
		errno  unix.Errno
		want   string
	}{
		{handle, 1 << 2, uverbs.MRCAttr{}, unix.EINVAL, "mpr 0: must be 1 to 64"},
		{handle, 1 << 3, uverbs.MRCAttr{MPRDest: 255}, unix.EINVAL, "mpr_dest 255"},
		{handle, 1 << 0, uverbs.MRCAttr{MaxWIMM: 65535}, unix.EINVAL, "max_wimm 65535"},
		{handle, 1 << 8, uverbs.MRCAttr{Linear: 1, Exponential: 26}, unix.EINVAL, "exp_cnt 26: must be 0 to 25"},
		{handle, 1 << 5, uverbs.MRCAttr{EVProfile: 1}, unix.EINVAL, "no profiles"},
		{handle, 1 << 6, uverbs.MRCAttr{CCProfile: 1 << 63}, unix.EINVAL, "no profiles"},
		{handle, 1 << 7, set, unix.EINVAL, "attribute mask 0x80"},
		{handle, 1<<32 - 1, set, unix.EINVAL, "attribute mask"},
		{rc, 1 << 2, set, unix.EOPNOTSUPP, "profile of the queue pair is not mrc"},
		{99, 1 << 2, set, unix.ENOENT, ""},
	} {
		err := e.try(uverbs.ExtModifyMRC, uverbs.ModifyMRC{QPHandle: c.handle, AttrMask: c.mask, Attr: c.a})
		if uverbs.Errno(err) != c.errno || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#x, %+v: %v, want %q", c.mask, c.a, err, c.want)
		}
		if c.handle != 99 {
			refused++
		}
	}
	if a := query(); a != set {
		t.Errorf("after refusals %+v, want %+v", a, set)
	}
	_ = h.shard.Do(t.Context(), func(_ mono.Time, n *rocev2.NIC) {
		for _, c := range n.CounterSnapshot() {
			if c.Name == "mrc_attr_errors" && c.Value != uint64(refused) {
				t.Errorf("%d refusals counted, want %d", c.Value, refused)
			}
		}
	})
	if err := e.try(uverbs.ExtQueryMRC, uverbs.QueryMRC{QPHandle: rc}); err != unix.EOPNOTSUPP {
		t.Errorf("query of RC: %v", err)
	}
	for _, cmd := range []uint32{uverbs.ExtModifyMRC, uverbs.ExtQueryMRC, uverbs.ExtMRCDevice} {
		if err := e.try(cmd, struct{ A uint32 }{}); err != unix.EINVAL {
			t.Errorf("short command %#x: %v", cmd, err)
		}
	}
}

// TestMRCMemory: the state of large ranges counts as memory of the user until the queue pair is destroyed, and is allocated with
// use.
func TestMRCMemory(t *testing.T) {
	limits := testLimits
	limits.Memory = 4 << 20
	h := pair(t, limits)[0]
	e := newEndpoint(t, h)
	name := uverbs.SetProfile{}
	uverbs.SetText(name.Profile[:], "mrc")
	e.must(uverbs.ExtSetProfile, name)
	create := func() uint32 {
		t.Helper()
		resp, _ := e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
			MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.RC)})
		return word(resp, 0)
	}
	widen := func(handle uint32, mpr uint8) error {
		return e.try(uverbs.ExtModifyMRC, uverbs.ModifyMRC{QPHandle: handle, AttrMask: 1 << 2, Attr: uverbs.MRCAttr{MPR: mpr}})
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, wide := heap(), []uint32{}
	for {
		handle := create()
		err := widen(handle, mrc.MaxMPR)
		if err == nil {
			err = errors.Join(widen(handle, 1), widen(handle, mrc.MaxMPR)) // counts once
		}
		if err != nil {
			if uverbs.Errno(err) != unix.ENOMEM || !strings.Contains(err.Error(), "raise limits.memory") {
				t.Fatal(err)
			}
			break
		}
		wide = append(wide, handle)
	}
	if n := limits.Memory / int64(mrc.StateBytes(mrc.MaxMPR)); int64(len(wide)) > n || int64(len(wide)) < n/2 {
		t.Errorf("%d queue pairs, want about %d", len(wide), n)
	}
	if each := (int64(heap()) - int64(before)) / int64(len(wide)); each > int64(mrc.StateBytes(mrc.MaxMPR))/2 {
		t.Errorf("an idle queue pair takes %d bytes", each)
	}
	for _, handle := range wide {
		e.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: handle})
	}
	for range wide {
		if err := widen(create(), mrc.MaxMPR); err != nil {
			t.Fatal(err)
		}
	}
}
