package fleet

import (
	"cmp"
	"slices"

	"roced.io/roced/otg/engine"
)

// collect returns the metrics of all engines in the order of the names.
func collect[M any](f *fleet, order []string, name func(*M) string, get func(*member) []M) (all []M) {
	for _, m := range f.members {
		all = append(all, get(m)...)
	}
	at := map[string]int{}
	for i, n := range order {
		at[n] = i
	}
	slices.SortStableFunc(all, func(a, b M) int { return at[name(&a)] - at[name(&b)] })
	return all
}

// joined joins neighbours of one name: the metrics of both ends.
func joined[M any](parts []M, name func(*M) string, join func(a, b M) M) (all []M) {
	for _, p := range parts {
		if last := len(all) - 1; last >= 0 && name(&all[last]) == name(&p) {
			all[last] = join(all[last], p)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// PortMetrics implements engine.Engine.
func (f *fleet) PortMetrics() []engine.PortMetric {
	f.mu.Lock()
	defer f.mu.Unlock()
	return collect(f, ports(&f.cfg), func(m *engine.PortMetric) string { return m.Name }, func(m *member) []engine.PortMetric {
		return m.PortMetrics()
	})
}

// PeerMetrics implements engine.Engine.
func (f *fleet) PeerMetrics() []engine.PeerMetric {
	f.mu.Lock()
	defer f.mu.Unlock()
	return collect(f, peers(&f.cfg), func(m *engine.PeerMetric) string { return m.Name }, func(m *member) []engine.PeerMetric {
		return m.PeerMetrics()
	})
}

// Neighbors implements engine.Engine.
func (f *fleet) Neighbors() []engine.Neighbor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return collect(f, nil, func(*engine.Neighbor) string { return "" }, func(m *member) []engine.Neighbor { return m.Neighbors() })
}

// FlowMetrics implements engine.Engine.
func (f *fleet) FlowMetrics() []engine.FlowMetric {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := names(f.cfg.Flows, func(x *engine.Flow) string { return x.Name })
	name := func(m *engine.FlowMetric) string { return m.Name }
	parts := collect(f, order, name, func(m *member) []engine.FlowMetric { return m.FlowMetrics() })
	return joined(parts, name, merged)
}

// merged returns the metrics of a flow from both ends. Each counter is zero at one of them.
func merged(a, b engine.FlowMetric) engine.FlowMetric {
	if a.Far {
		a, b = b, a
	}
	a.PortRx, a.DestQP = cmp.Or(b.PortRx, a.PortRx), cmp.Or(b.DestQP, a.DestQP)
	a.Remote = a.Remote || b.Remote
	if b.Remote && !b.Read {
		a.MessagesComplete = b.MessagesComplete
	}
	if b.Remote && b.Read {
		a.MessagesTx = b.MessagesTx
	}
	for _, c := range []struct{ to, from *uint64 }{
		{&a.FramesTx, &b.FramesTx}, {&a.FramesRx, &b.FramesRx}, {&a.Retransmitted, &b.Retransmitted}, {&a.SequenceErrors, &b.SequenceErrors},
		{&a.BytesTx, &b.BytesTx}, {&a.BytesRx, &b.BytesRx}, {&a.MarkedRx, &b.MarkedRx}, {&a.CNPTx, &b.CNPTx}, {&a.CNPRx, &b.CNPRx},
		{&a.ACKTx, &b.ACKTx}, {&a.ACKRx, &b.ACKRx}, {&a.NAKTx, &b.NAKTx}, {&a.NAKRx, &b.NAKRx},
	} {
		*c.to += *c.from
	}
	a.RateTx, a.RateRx = a.RateTx+b.RateTx, a.RateRx+b.RateRx
	if a.First.IsZero() {
		a.First, a.Last = b.First, b.Last
	}
	return a
}

// RawFlowMetrics implements engine.Engine.
func (f *fleet) RawFlowMetrics() []engine.RawFlowMetric {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := func(m *engine.RawFlowMetric) string { return m.Name }
	parts := collect(f, rawFlows(&f.cfg), name, func(m *member) []engine.RawFlowMetric { return m.RawFlowMetrics() })
	return joined(parts, name, mergedRaw)
}

// mergedRaw returns the metrics of a raw flow from two engines, of which one may transmit.
func mergedRaw(a, b engine.RawFlowMetric) engine.RawFlowMetric {
	if a.PortTx == "" {
		a, b = b, a
	}
	a.Counted = a.Counted || b.Counted
	if b.FramesRx == 0 {
		a.PortRx = cmp.Or(a.PortRx, b.PortRx)
		return a
	}
	a.PortRx = b.PortRx
	a.FramesRx, a.BytesRx, a.FramesRxPerSec = a.FramesRx+b.FramesRx, a.BytesRx+b.BytesRx, a.FramesRxPerSec+b.FramesRxPerSec
	if a.First.IsZero() || b.First.Before(a.First) {
		a.First = b.First
	}
	if b.Last.After(a.Last) {
		a.Last = b.Last
	}
	return a
}
