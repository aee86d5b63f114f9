package profile

import (
	"fmt"
	"maps"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// memoryOf are the receivers whose memory is the NIC's: which of their parameters are
// those of the memory, and how it is made.
var memoryOf = map[string]struct {
	params []string
	make   func(p reorder.Params) (reorder.Factory, error)
}{
	"melo": {[]string{"pool_bits"}, func(p reorder.Params) (reorder.Factory, error) {
		pool, err := newPool("reorder: melo", p)
		return reorder.MELOFactory(pool), err
	}},
	"eunomia": {[]string{"memory_blocks", "bitmap_cap_bits"}, func(p reorder.Params) (reorder.Factory, error) {
		r := param.NewReader("reorder: eunomia", p)
		blocks, bits := r.Int("memory_blocks", 1024, 1, 1<<16-1), r.Int("bitmap_cap_bits", 256, 16, 255*16)
		if err := r.Err(); err != nil {
			return nil, err
		}
		m, err := reorder.NewMemory(blocks, bits)
		if err != nil {
			return nil, err
		}
		return m.Factory, nil
	}},
}

// poolOf are the recoveries whose memory is the NIC's.
var poolOf = map[string]func(p retrans.Params) (retrans.Factory, error){
	"melo": func(p retrans.Params) (retrans.Factory, error) {
		pool, err := newPool("retrans: melo", p)
		return retrans.MELOFactory(pool), err
	},
}

// newPool makes a bits pool, of 1 Kb unless the parameters say otherwise (MELO 4).
func newPool(owner string, p map[string]float64) (*bitpool.Pool, error) {
	r := param.NewReader(owner, p)
	bits := r.Int("pool_bits", 1024, 8, bitpool.MaxBits)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return bitpool.New(bits)
}

// split takes the parameters with these names out of p.
func split[P ~map[string]float64](p map[string]float64, names ...string) (own, common P) {
	own, common = P(maps.Clone(p)), P{}
	for _, name := range names {
		if v, ok := own[name]; ok {
			common[name] = v
			delete(own, name)
		}
	}
	return own, common
}

// tracker makes a receiver structure.
func (m *Maker) tracker(p Part) (reorder.Tracker, error) {
	memory, ok := memoryOf[p.Name]
	if !ok {
		f, ok := reorder.Factories[p.Name]
		if !ok {
			return nil, fmt.Errorf("no receiver structure %q", p.Name)
		}
		return f(p.Params)
	}
	own, common := split[reorder.Params](p.Params, memory.params...)
	key := fmt.Sprint(p.Name, common) // maps are printed in order
	if m.trackers[key] == nil {
		f, err := memory.make(common)
		if err != nil {
			return nil, err
		}
		m.trackers[key] = f
	}
	return m.trackers[key](own)
}

// control makes a congestion control, or a queue pair's part of one.
func (m *Maker) control(p Part) (ccalgo.Controller, error) {
	own, by, err := ccalgo.SplitSharing(p.Params)
	if err != nil || by == ccalgo.PerQueuePair {
		return control(p)
	}
	key := fmt.Sprint(p.Name, p.Params)
	if m.controls[key] == nil {
		m.controls[key] = ccalgo.NewShares(p.Name, own, by)
	}
	return m.controls[key].New()
}

// recovery makes a loss recovery.
func (m *Maker) recovery(p Part) (retrans.Recovery, error) {
	pool, ok := poolOf[p.Name]
	if !ok {
		f, ok := retrans.Factories[p.Name]
		if !ok {
			return nil, fmt.Errorf("no loss recovery %q", p.Name)
		}
		return f(p.Params)
	}
	own, common := split[retrans.Params](p.Params, "pool_bits")
	key := fmt.Sprint(p.Name, common)
	if m.recoveries[key] == nil {
		f, err := pool(common)
		if err != nil {
			return nil, err
		}
		m.recoveries[key] = f
	}
	return m.recoveries[key](own)
}
