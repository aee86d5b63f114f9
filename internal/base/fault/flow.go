package fault

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/list"
)

const (
	maxFlows   = 256
	psnsOfFlow = 4096 // a power of two
)

// flow is the state of a sequence of PSNs.
type flow struct {
	key  flowKey
	base bth.PSN
	seen []sighting // direct-mapped; nil unless a rule needs it
	use  list.Node[*flow]
}

// sighting counts the transmissions of a PSN. tag is the PSN plus 1.
type sighting struct {
	tag   uint32
	count uint8
}

// flowTable holds the most recently used flows. It allocates all its memory except the sightings at once.
type flowTable struct {
	index map[flowKey]*flow
	flows []flow
	order list.List[*flow] // in order of use, the most recent last
	count bool             // record sightings
}

func (t *flowTable) reset(count bool) {
	*t = flowTable{index: make(map[flowKey]*flow, maxFlows), flows: make([]flow, maxFlows), count: count}
}

// observe records the frame of v in its flow and sets base and nth of v.
func (t *flowTable) observe(v *view) {
	f := t.index[v.key]
	if f != nil {
		f.use.Remove()
	} else {
		f = t.take()
		f.key, f.base = v.key, v.psn
		t.index[v.key] = f
	}
	t.order.PushBack(&f.use)
	v.base = f.base
	if !t.count {
		return
	}
	s := &f.seen[v.psn.Uint32()%psnsOfFlow]
	if tag := v.psn.Uint32() + 1; s.tag != tag {
		*s = sighting{tag: tag}
	}
	s.count += uint8(min(1, maxNth+1-int(s.count))) // saturates at maxNth+1
	v.nth = int(s.count)
}

// take returns an unused flow: a new one, or the least recently used one.
func (t *flowTable) take() *flow {
	if n := len(t.index); n < maxFlows {
		f := &t.flows[n]
		f.use.Item = f
		if t.count {
			f.seen = make([]sighting, psnsOfFlow)
		}
		return f
	}
	f := t.order.First().Item
	f.use.Remove()
	delete(t.index, f.key)
	clear(f.seen)
	return f
}
