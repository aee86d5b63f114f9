package model

import (
	"strings"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"

	"roced.io/roced/otg/engine"
)

// most is the largest message of RoCEv2 in bytes.
const most = 1 << 31

var verbs = map[string]engine.Verb{"write": engine.Write, "write_with_immediate": engine.WriteImm, "send": engine.Send,
	"send_with_immediate": engine.SendImm, "read": engine.Read}

var units = map[string]uint64{"bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}

// flows translates the flows of one transmitting port.
func (t *translator) flows(p *otg.Rocev2TxPorts, group int, at string) {
	if _, ok := t.port(p.GetPortName(), at+".port_name"); !ok {
		return
	}
	rate := p.GetTransmitType().GetTargetLineRate()
	for i, f := range rate.GetFlows() {
		in := item(at+".transmit_type.target_line_rate.flows", i)
		t.name(f.GetName(), "flow", in)
		flow := engine.Flow{Name: f.GetName(), Port: p.GetPortName(), QueuePair: f.GetTxEndpoint(),
			Verb:     verbs[f.GetRocev2Verb().GetChoice().String()],
			LineRate: float64(rate.GetValue()) / 100, Group: group}
		immediate := f.GetRocev2Verb().GetWriteWithImmediate().GetImmediateData() + f.GetRocev2Verb().GetSendWithImmediate().GetImmediateData()
		flow.Immediate = uint32(t.hex(immediate, 32, in+".rocev2_verb.immediate_data"))
		size := uint64(f.GetMessageSize()) * units[f.GetMessageSizeUnit().String()]
		if size > most {
			t.errorf("%s.message_size: %d %s: exceeds 2 GiB, the largest message of RoCEv2", in, f.GetMessageSize(), f.GetMessageSizeUnit())
		}
		flow.Size = uint32(size)
		if t.endpoints(f, flow, in) {
			t.share(&flow, in)
			t.out.Flows = append(t.out.Flows, flow)
		}
	}
}

// share follows the flows of a queue pair, whose frames have common counters.
func (t *translator) share(flow *engine.Flow, at string) {
	i, ok := t.flowOf[flow.QueuePair]
	t.flowOf[flow.QueuePair] = len(t.out.Flows)
	switch {
	case !ok:
	case (t.out.Flows[i].Verb == engine.Read) != (flow.Verb == engine.Read):
		t.errorf("%s.tx_endpoint: queue pair %q: flow %q moves data in the other direction; use another queue pair", at, flow.QueuePair, t.out.Flows[i].Name)
	default:
		t.warnf("%s.tx_endpoint: queue pair %q: also has flow %q; both start with the same counters, and count all its frames", at, flow.QueuePair, t.out.Flows[i].Name)
	}
}

// endpoints checks and connects the queue pairs of a flow. It reports whether the flow can transmit.
func (t *translator) endpoints(f *otg.Rocev2Flow, flow engine.Flow, at string) bool {
	tx, ok := t.pairs[flow.QueuePair]
	if !ok {
		t.errorf("%s.tx_endpoint: queue pair %q: is not configured; configured are %s", at, flow.QueuePair, listOf(t.pairs))
		return false
	}
	if tx.port != flow.Port {
		t.errorf("%s.tx_endpoint: queue pair %q: is on port %q, not on %q; move the flow to tx_ports of its port", at, flow.QueuePair,
			tx.port, flow.Port)
	}
	peer := &t.out.Peers[tx.peer]
	q := &peer.QueuePairs[tx.index]
	if peer.Destination.IsUnspecified() {
		t.warnf("%s: queue pair %q only accepts connections, since its peer's destination is %s: the flow transmits nothing", at, q.Name,
			peer.Destination)
		return false
	}
	if f.GetRxEndpoint() == "" {
		return true
	}
	if _, isPort := t.ports[f.GetRxEndpoint()]; isPort {
		for _, a := range t.addrs {
			if a.port == f.GetRxEndpoint() && a.ip == peer.Destination {
				return true
			}
		}
		t.errorf("%s.rx_endpoint: port %q: has no address %s, the destination of peer %q", at, f.GetRxEndpoint(), peer.Destination, peer.Name)
		return false
	}
	rx, ok := t.pairs[f.GetRxEndpoint()]
	if !ok {
		t.errorf("%s.rx_endpoint: %q: is neither a queue pair nor a port", at, f.GetRxEndpoint())
		return false
	}
	return t.pairUp(tx, rx, at)
}

// pairUp connects two queue pairs to each other.
func (t *translator) pairUp(tx, rx pair, at string) bool {
	from, to := &t.out.Peers[tx.peer], &t.out.Peers[rx.peer]
	a, b := &from.QueuePairs[tx.index], &to.QueuePairs[rx.index]
	if from.Destination != t.addrs[to.Address].ip {
		t.errorf("%s.rx_endpoint: queue pair %q: its address is %s, but peer %q has the destination %s", at, b.Name, t.addrs[to.Address].ip,
			from.Name, from.Destination)
		return false
	}
	for _, end := range []struct{ q, other *engine.QueuePair }{{a, b}, {b, a}} {
		if end.q.Remote != "" && end.q.Remote != end.other.Name && t.fixed[end.q.Name] {
			t.errorf("%s.rx_endpoint: queue pair %q: is connected to %q by another flow; an RC queue pair has one peer", at, end.q.Name,
				end.q.Remote)
			return false
		}
	}
	for _, old := range []*engine.QueuePair{a, b} { // partners by order find another one, or none
		if p, ok := t.pairs[old.Remote]; ok {
			partner := &t.out.Peers[p.peer].QueuePairs[p.index]
			partner.Remote, partner.Active = "", !t.out.Peers[p.peer].Destination.IsUnspecified()
		}
	}
	a.Remote, b.Remote = b.Name, a.Name
	b.Active = b.Active && to.Destination == t.addrs[from.Address].ip && rx.peer < tx.peer
	a.Active = !b.Active
	t.fixed[a.Name], t.fixed[b.Name] = true, true
	return true
}

// separators are what digits of a pattern may have between them.
var separators = strings.NewReplacer(" ", "", ":", "")
