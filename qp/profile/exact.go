package profile

import "maps"

// fixed names the parameter that is zero if timeouts do not double, as in papers.
const fixed = "rto_doublings"

// exactRecoveries and exactControls have the parameters with which plug-ins work as their papers say. docs/design/transports.md
// has the reasons for the defaults.
var (
	exactRecoveries = map[string]map[string]float64{
		"irn":       {fixed: 0, "partial_ack": 0},
		"melo":      {fixed: 0, "partial_timeout": 0, "go_back_n": 1},
		"mp-rdma":   {fixed: 0, "count_retransmits": 0, "bound_inflate": 0, "renew_recovery": 2},
		"eunomia":   {fixed: 0},
		"selective": {fixed: 0},
	}
	exactControls = map[string]map[string]float64{"mp-rdma": {"grow_unfilled": 1}}
)

// exact completes s, the parts of the profile of that name, with the parameters of the papers.
func (s Spec) exact(name string) Spec {
	s.Recovery = s.Recovery.with(exactRecoveries[s.Recovery.Name])
	s.Congestion = s.Congestion.with(exactControls[s.Congestion.Name])
	if name == "eunomia" && s.HoldLast == "" {
		s.HoldLast = "sender"
	}
	return s
}

// with returns a copy of p with those of params that p does not set.
func (p Part) with(params map[string]float64) Part {
	all := maps.Clone(params)
	if all == nil {
		return p
	}
	maps.Copy(all, p.Params)
	return Part{Name: p.Name, Params: all}
}
