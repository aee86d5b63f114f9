package papers

import (
	"maps"
	"slices"

	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
)

// ofConnections are the quantities that need the payload of each connection.
var ofConnections = []string{"placed", "received"}

// placed is the payload that a connection has placed at a host.
type placed struct {
	host  int
	bytes uint64
}

// placedBy returns the payload of all connections to the number's servers, in the order in which they opened.
func (p *probe) placedBy(n *scenario.Number) (all []placed) {
	for i := range p.conns {
		if c := &p.conns[i]; within(n.Servers, c.q.Host()) {
			all = append(all, placed{c.q.Host(), c.sum()})
		}
	}
	return all
}

// rates returns the rates between two snapshots in Gb/s: of each connection that placed any payload, or of each host.
func rates(n *scenario.Number, begin, end []placed, seconds float64) (rates []float64) {
	bytes := map[int]uint64{}
	for i, x := range end {
		if i < len(begin) {
			x.bytes -= begin[i].bytes
		}
		key := i
		if n.Of == "received" {
			key = x.host
		}
		bytes[key] += x.bytes
	}
	for _, key := range slices.Sorted(maps.Keys(bytes)) {
		if bytes[key] > 0 || n.Of == "received" {
			rates = append(rates, float64(bytes[key])*8/seconds/1e9)
		}
	}
	return rates
}

// collectives returns the time, or with "bus" the bus bandwidth, of each collective operation.
func collectives(r *result.Result, n *scenario.Number) (values []float64) {
	for i := range r.Collectives {
		c := &r.Collectives[i]
		if n.Of == "bus" {
			values = append(values, c.Bus/1e9)
			continue
		}
		values = append(values, c.Took.Seconds()*1e6)
	}
	return values
}
