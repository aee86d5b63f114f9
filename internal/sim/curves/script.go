package main

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// script is a parsed script.
type script struct {
	title        string
	algorithm    string
	params       ccalgo.Params
	mtu          int
	until, every time.Duration
	events       []event
}

// event is an input of a controller.
type event struct {
	at      time.Duration
	kind    string
	bytes   uint32
	window  bool // bytes is the window
	rtt     time.Duration
	ecn     bool
	timeout bool
	full    bool // the rest of the window is in flight
	report  ccalgo.Receiver
	load    float64 // of a link of 100 Gb/s, by its telemetry; 0: none
	queued  uint32  // bytes, likewise
}

// parse reads a script; errors name the line.
func parse(text string) (*script, error) {
	s := &script{mtu: 1024, params: ccalgo.Params{}}
	for i, line := range strings.Split(text, "\n") {
		w := strings.Fields(line)
		if len(w) == 0 || w[0][0] == '#' {
			continue
		}
		if err := s.line(w); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if s.until <= 0 || s.every <= 0 {
		return nil, errors.New("missing line: until TIME every TIME")
	}
	sort.SliceStable(s.events, func(i, j int) bool { return s.events[i].at < s.events[j].at })
	return s, nil
}

func (s *script) line(w []string) (err error) {
	switch {
	case w[0] == "title":
		s.title = strings.Join(w[1:], " ")
	case w[0] == "algorithm" && len(w) > 1:
		s.algorithm = w[1]
		for _, p := range w[2:] {
			name, value, _ := strings.Cut(p, "=")
			if s.params[name], err = strconv.ParseFloat(value, 64); err != nil || math.IsNaN(s.params[name]) || math.IsInf(s.params[name], 0) {
				return fmt.Errorf("%s is not a finite number", p)
			}
		}
	case w[0] == "mtu" && len(w) == 2:
		s.mtu, err = strconv.Atoi(w[1])
	case w[0] == "until" && len(w) == 4 && w[2] == "every":
		err = durations(w[1], &s.until, w[3], &s.every)
	case w[0] == "at" && len(w) > 2:
		var at time.Duration
		if at, err = time.ParseDuration(w[1]); err == nil {
			err = s.add(at, at, 1, w[2:])
		}
	case w[0] == "from" && len(w) > 6 && w[2] == "to" && w[4] == "every":
		var from, to, every time.Duration
		err = errors.Join(durations(w[1], &from, w[3], &to), durations(w[5], &every, w[1], &from))
		if err == nil {
			err = s.add(from, to, every, w[6:])
		}
	default:
		return fmt.Errorf("cannot read %q", strings.Join(w, " "))
	}
	return err
}

func durations(a string, to *time.Duration, b string, and *time.Duration) (err error) {
	if *to, err = time.ParseDuration(a); err != nil {
		return err
	}
	*and, err = time.ParseDuration(b)
	return err
}

// add appends an event, repeated between two instants.
func (s *script) add(from, to, every time.Duration, w []string) error {
	e := event{kind: w[0]}
	rest := w[1:]
	if e.kind == "send" || e.kind == "ack" || e.kind == "nack" {
		if len(rest) == 0 {
			return fmt.Errorf("%s requires bytes or a reason", e.kind)
		}
		if e.window = rest[0] == "window"; !e.window {
			n, err := strconv.ParseUint(rest[0], 0, 32)
			if err != nil {
				return err
			}
			e.bytes = uint32(n)
		}
		rest = rest[1:]
	}
	if err := e.options(rest); err != nil {
		return err
	}
	if every <= 0 {
		return errors.New("a repetition must take time")
	}
	for e.at = from; e.at <= to; e.at += every {
		s.events = append(s.events, e)
	}
	return nil
}

// options reads the words after the bytes of an event.
func (e *event) options(words []string) error {
	for _, o := range words {
		name, value, _ := strings.Cut(o, "=")
		var n uint64
		var err error
		switch e.kind + " " + name {
		case "ack rtt", "nack rtt":
			e.rtt, err = time.ParseDuration(value)
		case "ack ecn":
			e.ecn = true
		case "ack full", "send full":
			e.full = true
		case "ack report":
			e.report.Reported = true
		case "ack restore":
			e.report.Reported, e.report.Restore = true, true
		case "ack penalty":
			n, err = strconv.ParseUint(value, 10, 7)
			e.report.Reported, e.report.Penalty = true, uint8(n)
		case "ack load":
			if e.load, err = strconv.ParseFloat(value, 64); err == nil && !(e.load > 0 && e.load <= 1) {
				err = fmt.Errorf("load %v is not from 0 to 1", e.load)
			}
		case "ack queued":
			n, err = strconv.ParseUint(value, 10, 32)
			e.queued = uint32(n)
		case "loss timeout":
			e.timeout = true
		default:
			err = fmt.Errorf("%s has no option %q", e.kind, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// curve is the result of a script.
type curve struct {
	*script
	points []point
}

// point has the limits of a controller at an instant.
type point struct {
	at           time.Duration
	window, rate uint64
}

// run plays the script. Timers fire before events of the same instant.
func (s *script) run() (*curve, error) {
	ctl, err := ccalgo.New(s.algorithm, s.params)
	if err != nil {
		return nil, err
	}
	ctl.Reset(s.mtu)
	c := &curve{script: s}
	events, path := s.events, route{}
	for at := time.Duration(0); at <= s.until; at += s.every {
		for len(events) > 0 && events[0].at <= at {
			timers(ctl, events[0].at)
			if err := events[0].apply(ctl, &path); err != nil {
				return nil, err
			}
			events = events[1:]
		}
		timers(ctl, at)
		w, r := ctl.Limits()
		c.points = append(c.points, point{at, w, r})
	}
	return c, nil
}

// start is the controllers' time at the start of a script.
const start = mono.Time(1)

func timers(ctl ccalgo.Controller, until time.Duration) {
	for ctl.Deadline() <= start.Add(until) {
		ctl.OnTimeout(ctl.Deadline())
	}
}

// route is the state of receiver and link.
type route struct {
	received uint32 // bytes of all acknowledgements with a report
	at       mono.Time
	sent     float64 // bytes of the link
}

// telemetry passes the state of the link to ctl: it has had the load of e since the last call.
func (r *route) telemetry(ctl ccalgo.Controller, now mono.Time, e *event) {
	c, ok := ctl.(ccalgo.Telemetered)
	if !ok || e.load == 0 {
		return
	}
	const rate = 100e9
	r.sent += now.Sub(r.at).Seconds() * float64(e.load*rate/8)
	r.at = now
	var t ccalgo.Telemetry
	t.Add(0, ccalgo.Hop{At: now, Sent: uint64(r.sent), Rate: rate, Queued: e.queued})
	c.OnTelemetry(now, &t)
}

// apply passes e to ctl.
func (e *event) apply(ctl ccalgo.Controller, r *route) error {
	now, bytes := start.Add(e.at), e.bytes
	if e.window {
		bytes = limit(ctl)
	}
	switch e.kind {
	case "cnp":
		ctl.OnCNP(now)
	case "send":
		inFlight := bytes
		if e.full {
			inFlight = limit(ctl)
		}
		ctl.OnSent(now, bytes, inFlight)
	case "ack":
		inFlight := bytes
		if e.full {
			inFlight = limit(ctl) - bytes
		}
		if e.report.Reported {
			r.received += bytes
			e.report.Received = (r.received + 255) / 256
		}
		r.telemetry(ctl, now, e)
		ctl.OnAck(now, ccalgo.Sample{Bytes: bytes, InFlight: inFlight, RTT: e.rtt, ECN: e.ecn, Receiver: e.report})
	case "nack":
		ctl.OnAck(now, ccalgo.Sample{InFlight: limit(ctl), RTT: e.rtt, Receiver: ccalgo.Receiver{Reason: uint8(bytes)}})
		ctl.OnLoss(now, 1, false)
	case "loss":
		ctl.OnLoss(now, 1, e.timeout)
	default:
		return fmt.Errorf("no event %q", e.kind)
	}
	return nil
}

// limit returns the window in bytes.
func limit(ctl ccalgo.Controller) uint32 {
	w, _ := ctl.Limits()
	return uint32(min(w, 1<<31))
}
