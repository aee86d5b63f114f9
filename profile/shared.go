package profile

import (
	"fmt"
	"maps"

	"roced/param"
	"roced/reorder"
	"roced/retrans"
)

// shared is a memory that all trackers of a NIC take from.
type shared struct {
	factory reorder.Factory
}

// memoryOf are the receivers whose memory is the NIC's: which of their parameters are
// those of the memory, and how it is made.
var memoryOf = map[string]struct {
	params []string
	make   func(p reorder.Params) (reorder.Factory, error)
}{
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
	own, common := reorder.Params(maps.Clone(p.Params)), reorder.Params{}
	for _, name := range memory.params {
		if v, ok := own[name]; ok {
			common[name] = v
			delete(own, name)
		}
	}
	key := fmt.Sprint(p.Name, common) // maps are printed in order
	s := m.shared[key]
	if s == nil {
		f, err := memory.make(common)
		if err != nil {
			return nil, err
		}
		s = &shared{factory: f}
		m.shared[key] = s
	}
	return s.factory(own)
}

// recovery makes a loss recovery.
func (m *Maker) recovery(p Part) (retrans.Recovery, error) {
	f, ok := retrans.Factories[p.Name]
	if !ok {
		return nil, fmt.Errorf("no loss recovery %q", p.Name)
	}
	return f(p.Params)
}
