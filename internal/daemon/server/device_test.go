package server

import (
	"testing"

	"roced.io/roced/internal/base/abi/uverbs"
)

// TestWritesOnly: the device of a client whose transport profile has WRITEs only offers no READs, atomics or windows.
func TestWritesOnly(t *testing.T) {
	h := pair(t, testLimits)
	a, _ := connected(t, h)
	query := func() uverbs.QueryDeviceResp {
		resp, _ := a.must(uverbs.CmdQueryDevice, uverbs.QueryDevice{})
		r, err := uverbs.Decode[uverbs.QueryDeviceResp](resp)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := query()
	if all.AtomicCap == 0 || all.MaxQPRdAtom == 0 || all.DeviceCapFlags&uverbs.CapMemWindow == 0 {
		t.Errorf("rc: %+v", all)
	}
	name := uverbs.SetProfile{}
	uverbs.SetText(name.Profile[:], "mrc")
	a.must(uverbs.ExtSetProfile, name)
	if few := query(); few.AtomicCap != 0 || few.MaxQPRdAtom != 0 || few.MaxQPInitRdAtom != 0 || few.DeviceCapFlags&(uverbs.CapMemWindow|uverbs.CapMemMgtExt) != 0 {
		t.Errorf("mrc: %+v", few)
	}
}
