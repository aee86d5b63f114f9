package engine

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Traffic implements Engine.
func (e *engine) Traffic(names []string, s TrafficState) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run == nil {
		return ErrNothing
	}
	err := missing("flow", names, func(n string) bool {
		return e.run.raws[n] != nil || slices.ContainsFunc(e.run.flows, func(f *flow) bool { return f.cfg.Name == n })
	})
	if err != nil || len(e.run.nics) == 0 {
		return err
	}
	chosen := func(n string) bool { return len(names) == 0 || slices.Contains(names, n) }
	return e.do(func(now mono.Time) error {
		for _, f := range e.run.flows {
			if chosen(f.cfg.Name) {
				f.command(now, s)
			}
		}
		for _, n := range e.run.rawOrder {
			if chosen(n) {
				e.run.raws[n].command(now, s)
			}
		}
		for _, q := range e.run.pairs {
			q.pace(now)
			if q.state == pairUp && (*sendQueue)(q).Pending() {
				q.host.core.Doorbell(now, q.q)
			}
		}
		for _, n := range e.run.nics {
			n.Wake()
		}
		return nil
	})
}

// command changes the state of a flow.
func (f *flow) command(now mono.Time, s TrafficState) {
	q := f.pair
	switch {
	case s == Prepare:
		q.accept(now)
	case s == Start && f.state != Started:
		f.restart()
		f.state = Started
		for _, x := range []*pair{q, q.remote} {
			if x != nil {
				x.up = true
			}
		}
		for _, x := range []*pair{q, q.remote} {
			if x != nil {
				x.connect(now)
			}
		}
	default:
		f.state = f.state.after(s)
	}
}

// ends returns the flow's queue pair and the remote one. One of another engine is nil.
func (f *flow) ends() (own, remote *pair) {
	if f.cfg.Far {
		return nil, f.pair
	}
	return f.pair, f.pair.remote
}

// restart resets the counters of a flow, at both ends.
func (f *flow) restart() {
	f.failed, f.completed, f.completion, f.lastErr = 0, 0, 0, ""
	own, remote := f.ends()
	var requests, responses *tally
	if own != nil {
		requests = &own.reqTx
		requests.restart(nil)
		own.restartControl()
	}
	if remote != nil {
		responses = &remote.respTx
		responses.restart(nil)
		remote.reqRx.restart(requests)
		remote.restartControl()
	}
	if own != nil {
		own.respRx.restart(responses)
	}
}

func (q *pair) restartControl() {
	q.cnpTx, q.cnpRx, q.ackTx, q.ackRx, q.nakTx, q.nakRx = 0, 0, 0, 0, 0, 0
	q.latency = latency{}
}

// pace sets the rate of the data that q sends: its share of the rate of its groups.
func (q *pair) pace(now mono.Time) {
	if q.state != pairUp {
		return
	}
	sum, limited, started := 0.0, false, false
	add := func(flows []*flow) {
		for _, f := range flows {
			started = started || f.state == Started
			if f.state == Started && f.cfg.LineRate > 0 {
				limited = true
				sum += f.wireRate(f.cfg.LineRate * float64(q.host.port.speed) / float64(f.mates()))
			}
		}
	}
	if !q.read {
		add(q.flows)
	}
	if r := q.remote; r != nil && r.read {
		add(r.flows)
	}
	for _, f := range q.incoming {
		if f.cfg.Verb == Read {
			add([]*flow{f})
		}
	}
	if !started {
		return // messages in progress keep their rate
	}
	_ = q.modify(now, qp.Attr{RateLimit: rateLimit(sum, limited)}, qp.AttrRateLimit, nil)
}

// rateLimit returns a rate in bits per second as the attribute of a queue pair, in kb/s.
func rateLimit(rate float64, limited bool) uint32 {
	if !limited {
		return 0
	}
	return uint32(min(max(rate/1000, 1), 1<<32-1))
}
