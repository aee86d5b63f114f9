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

// shared describes a plug-in whose memory belongs to the NIC. params are the parameters of the memory. make makes the
// memory and returns the factory of the plug-ins that use it; factories of type F.
type shared[F any] struct {
	params []string
	make   func(r *param.Reader) (F, error)
}

var sharedTrackers = map[string]shared[reorder.Factory]{
	"melo": {[]string{"pool_bits"}, func(r *param.Reader) (reorder.Factory, error) {
		pool, err := bitpool.Read(r)
		return reorder.MELOFactory(pool), err
	}},
	"eunomia": {[]string{"memory_blocks", "bitmap_cap_bits"}, func(r *param.Reader) (reorder.Factory, error) {
		m, err := reorder.ReadMemory(r)
		return m.Factory, err
	}},
}

var sharedRecoveries = map[string]shared[retrans.Factory]{
	"melo": {[]string{"pool_bits"}, func(r *param.Reader) (retrans.Factory, error) {
		pool, err := bitpool.Read(r)
		return retrans.MELOFactory(pool), err
	}},
}

// family is a kind of plug-in, all of whose members one NIC makes.
type family[T any, P ~map[string]float64, F ~func(P) (T, error)] struct {
	what, owner string // for errors
	factories   map[string]F
	shared      map[string]shared[F]
	made        map[string]F // factories with memory, by the plug-in's name and the parameters of the memory
}

// make makes the plug-in that p describes.
func (f *family[T, P, F]) make(p Part) (plugin T, err error) {
	factory, ok := f.factories[p.Name]
	if !ok {
		return plugin, fmt.Errorf("no %s %q", f.what, p.Name)
	}
	s, ok := f.shared[p.Name]
	if !ok {
		return factory(p.Params)
	}
	own, memory := P(maps.Clone(p.Params)), map[string]float64{}
	for _, name := range s.params {
		if v, ok := own[name]; ok {
			memory[name] = v
			delete(own, name)
		}
	}
	key := fmt.Sprint(p.Name, memory) // fmt prints maps in order
	if f.made[key] == nil {
		r := param.NewReader(f.owner+": "+p.Name, memory)
		if factory, err = s.make(r); err == nil {
			err = r.Err()
		}
		if err != nil {
			return plugin, err
		}
		f.made[key] = factory
	}
	return f.made[key](own)
}

// control makes congestion control, or a queue pair's part of a shared one.
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
