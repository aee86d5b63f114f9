package verbs

import (
	"sync/atomic"

	"roced.io/roced/internal/base/abi/uverbs"
)

// MWType is the type of a memory window (ibv_mw_type).
type MWType uint8

// Types of memory windows.
const (
	MWType1 MWType = 1 // keyed by the region, bound by BindMW
	MWType2 MWType = 2 // belongs to the queue pair through which it was bound
)

// MW is a memory window (ibv_mw): a part of a region with its own key. Work requests
// open and close it.
type MW struct {
	pd     *PD
	handle uint32
	rkey   atomic.Uint32
}

// AllocMW creates a closed memory window.
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	r, err := ask[uverbs.AllocMWResp](p.ctx, "alloc_mw", uverbs.CmdAllocMW, uverbs.AllocMW{PDHandle: p.handle, MWType: uint8(typ)})
	if err != nil {
		return nil, err
	}
	m := &MW{pd: p, handle: r.MWHandle}
	m.rkey.Store(r.RKey)
	return m, nil
}

// RKey returns the key of the window. After QP.BindMW it is the new key.
func (m *MW) RKey() uint32 { return m.rkey.Load() }

// Dealloc destroys the window, open or closed.
func (m *MW) Dealloc() error {
	return m.pd.ctx.run("dealloc_mw", uverbs.CmdDeallocMW, uverbs.DeallocMW{MWHandle: m.handle})
}
