package fault

import "roced.io/roced/bth"

const (
	maxFlows   = 256
	psnsOfFlow = 4096 // a power of two
)

// flow is the state of a sequence of PSNs.
type flow struct {
	key        flowKey
	base       bth.PSN
	seen       []sighting // direct-mapped; nil unless a rule needs it
	prev, next int16      // in order of use
}

// sighting counts the transmissions of a PSN. tag is the PSN plus 1.
type sighting struct {
	tag   uint32
	count uint8
}

// flowTable holds the most recently used flows. It allocates all its memory except the sightings at once.
type flowTable struct {
	index map[flowKey]int16
	flows []flow
	newer int16 // most recently used, -1 for none
	older int16 // least recently used
	count bool  // record sightings
}

func (t *flowTable) reset(count bool) {
	*t = flowTable{
		index: make(map[flowKey]int16, maxFlows),
		flows: make([]flow, 0, maxFlows),
		newer: -1, older: -1, count: count,
	}
}

// observe records the frame of v in its flow and sets base and nth of v.
func (t *flowTable) observe(v *view) {
	i, ok := t.index[v.key]
	if ok {
		t.unlink(i)
	} else {
		i = t.take()
		t.flows[i].key, t.flows[i].base = v.key, v.psn
		t.index[v.key] = i
	}
	t.linkFront(i)
	f := &t.flows[i]
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
func (t *flowTable) take() int16 {
	if n := len(t.flows); n < cap(t.flows) {
		t.flows = t.flows[:n+1]
		if t.count {
			t.flows[n].seen = make([]sighting, psnsOfFlow)
		}
		return int16(n)
	}
	i := t.older
	t.unlink(i)
	delete(t.index, t.flows[i].key)
	clear(t.flows[i].seen)
	return i
}

func (t *flowTable) unlink(i int16) {
	f := &t.flows[i]
	if f.prev >= 0 {
		t.flows[f.prev].next = f.next
	} else {
		t.newer = f.next
	}
	if f.next >= 0 {
		t.flows[f.next].prev = f.prev
	} else {
		t.older = f.prev
	}
}

func (t *flowTable) linkFront(i int16) {
	f := &t.flows[i]
	f.prev, f.next = -1, t.newer
	if t.newer >= 0 {
		t.flows[t.newer].prev = i
	} else {
		t.older = i
	}
	t.newer = i
}
