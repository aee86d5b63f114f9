package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/sim/engine"
)

// Planned is a message and when it begins.
type Planned struct {
	At       engine.Time
	Src, Dst int
	Bytes    uint32
	Port     uint16 // destination port in a flow list
}

// OpenLoop sends messages at given instants, whether or not earlier ones have completed.
type OpenLoop struct {
	Verb    Verb
	Service Service
	Class   uint8 // traffic class
	// Transport as in Flow.
	Transport int
	// Next returns the next message, in order of time.
	Next func() (Planned, bool)

	r       *Runner
	timer   engine.Meeting
	planned Planned
}

// Begin implements App.
func (o *OpenLoop) Begin(_ engine.Time, r *Runner) {
	o.r = r
	o.timer.Init(r.cfg.Clock, o)
	o.advance()
}

func (o *OpenLoop) advance() {
	var ok bool
	if o.planned, ok = o.Next(); ok {
		o.timer.Set(o.planned.At)
	}
}

// Handle implements engine.Handler.
func (o *OpenLoop) Handle(engine.Time, int32) {
	p := o.planned
	o.advance()
	o.r.Send(Flow{Src: p.Src, Dst: p.Dst, Bytes: p.Bytes, Port: p.Port, Verb: o.Verb, Service: o.Service, Class: o.Class, Transport: o.Transport, App: o})
}

// Done implements App.
func (o *OpenLoop) Done(engine.Time, *Runner, *Flow) {}

// Delivered implements App.
func (o *OpenLoop) Delivered(engine.Time, *Runner, *Flow) {}

// List returns a function that yields messages in order of time.
func List(ps []Planned) func() (Planned, bool) {
	ps = slices.Clone(ps)
	slices.SortStableFunc(ps, func(a, b Planned) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return func() (Planned, bool) {
		if len(ps) == 0 {
			return Planned{}, false
		}
		p := ps[0]
		ps = ps[1:]
		return p, true
	}
}

// ReadFlows reads a flow list in the format of the ns-3 simulators of HPCC and ConWeave: the number of flows, then
// lines "src dst priority port bytes start" with start in seconds. ConWeave's lines have no port.
func ReadFlows(text string, nodes Nodes) ([]Planned, error) {
	first, rest, _ := strings.Cut(text, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || n < 0 {
		return nil, fmt.Errorf("flow list, line 1: %q is not a number of flows", first)
	}
	var out []Planned
	line := 1
	for s := range strings.Lines(rest) {
		line++
		f := strings.Fields(s)
		if len(out) == n {
			break
		}
		if len(f) == 0 {
			continue
		}
		p, err := readFlow(f, &nodes)
		if err != nil {
			return nil, fmt.Errorf("flow list, line %d: %w", line, err)
		}
		out = append(out, p)
	}
	if len(out) < n {
		return nil, fmt.Errorf("flow list: %d flows, but the first line announces %d", len(out), n)
	}
	return out, nil
}

func readFlow(f []string, nodes *Nodes) (p Planned, err error) {
	if len(f) == 5 {
		f = slices.Insert(f, 3, "0")
	}
	if len(f) != 6 {
		return p, fmt.Errorf("%d fields instead of src dst priority [port] bytes start", len(f))
	}
	var n [5]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(f[i], 10, 32); err != nil {
			return p, fmt.Errorf("field %d: %q is not a number below 2^32", i+1, f[i])
		}
	}
	src, dst, err := nodes.pair(n[0], n[1])
	if err != nil {
		return p, err
	}
	if n[3] > math.MaxUint16 {
		return p, fmt.Errorf("port %d: must be at most %d", n[3], math.MaxUint16)
	}
	if n[4] > MaxMessage {
		return p, fmt.Errorf("%d bytes are more than a message may have", n[4])
	}
	p = Planned{Src: src, Dst: dst, Bytes: uint32(n[4]), Port: uint16(n[3])}
	p.At, err = parseSeconds(f[5])
	return p, err
}

// MaxMessage is the longest message (IBTA vol.1 9.4.1).
const MaxMessage = 1 << 31

// parseSeconds reads a decimal number of seconds, exact to the picosecond.
func parseSeconds(s string) (engine.Time, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.Trim(whole+fraction, "0123456789") == ""
	fraction = fraction[:min(len(fraction), 12)]
	n, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", 12-len(fraction)), 10, 62)
	if err != nil || !digits {
		return 0, fmt.Errorf("%q is not a number of seconds", s)
	}
	return engine.Time(n), nil
}
