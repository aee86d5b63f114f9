package trace

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sample is a value at an instant.
type sample struct {
	at time.Duration
	v  float64
}

// series is what one colour of a picture shows.
type series struct {
	name, colour string
	line         bool // the values hold until the next: a line in steps, not points
	points       []sample
}

// picture is one diagram of a trace.
type picture struct {
	file, title, unit string
	series            []series
}

// Draw writes the pictures of a trace into a folder, which it makes, and returns their
// files. There is none of what never happened. Long pauses take little room, unless time is to scale.
func (t *Trace) Draw(dir string, toScale bool) (files []string, err error) {
	var idle []Pause
	if !toScale {
		idle = pauses(t.instants())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range t.pictures() {
		var b bytes.Buffer
		if !p.svg(&b, t.subtitle(), t.until(), idle) {
			continue
		}
		name := filepath.Join(dir, "trace-"+p.file+".svg")
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			return files, err
		}
		files = append(files, name)
	}
	return files, nil
}

func (t *Trace) subtitle() string {
	return fmt.Sprintf("%s QP %d, %s, path MTU %d", t.Start.NIC, t.Start.QPN, t.Start.Profile, t.Start.MTU)
}

// until is the end of the time axis.
func (t *Trace) until() time.Duration {
	last := time.Microsecond
	if n := len(t.Records); n > 0 {
		last = max(last, t.at(&t.Records[n-1]))
	}
	return last
}

// instants are those of all events, from the first packet on.
func (t *Trace) instants() (at []time.Duration) {
	for i := range t.Records {
		at = append(at, t.at(&t.Records[i]))
	}
	return at
}

// at is when r was, on the time axis, which begins with the first packet: a queue pair may
// have been connected long before.
func (t *Trace) at(r *Record) time.Duration {
	return time.Duration(max(r.T-t.first, 0))
}

// pictures are all that can be drawn.
func (t *Trace) pictures() []picture {
	return []picture{
		t.sequence("sequence", "Time-sequence graph", false),
		t.sequence("sequence-responses", "Time-sequence graph of READ responses", true),
		t.values("window", "Congestion window", "KiB", "limits", func(r *Record) (float64, bool) {
			return value(r.Window, 1024)
		}),
		t.values("rate", "Rate", "Gb/s", "limits", func(r *Record) (float64, bool) { return value(r.Rate, 1e9) }),
		t.values("rtt", "Round-trip time", "us", "ack", func(r *Record) (float64, bool) {
			return float64(r.RTT) / 1000, r.RTT > 0
		}),
		t.values("degree", "Out-of-order degree at the receiver", "packets", "received", func(r *Record) (float64, bool) {
			return float64(r.Degree), true
		}),
		t.values("bytes", "Tracking state of the receiver", "bytes", "footprint", func(r *Record) (float64, bool) {
			return float64(r.Bytes), true
		}),
	}
}

func value(v *uint64, unit float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v) / unit, true
}

// values picks one value of one kind of event, of requests and of responses. What holds
// until it changes is a line.
func (t *Trace) values(file, title, unit, event string, pick func(*Record) (float64, bool)) picture {
	line := event == "limits" || event == "footprint"
	requests := series{name: strings.ToLower(title), colour: "#1f77b4", line: line}
	responses := series{name: "of responses", colour: "#bc4c00", line: line}
	for i := range t.Records {
		r := &t.Records[i]
		if r.Event != event {
			continue
		}
		s := &requests
		if r.Response {
			s = &responses
		}
		if v, ok := pick(r); ok {
			s.points = append(s.points, sample{t.at(r), v})
		}
	}
	return picture{file, title, unit, []series{requests, responses}}
}

// sequence is the time-sequence graph, as tcptrace and xplot have made it known: PSNs over
// time, counted from the first one.
func (t *Trace) sequence(file, title string, responses bool) picture {
	sent := series{name: "sent", colour: "#1f77b4"}
	again := series{name: "sent again", colour: "#d62728"}
	sack := series{name: "SACK", colour: "#8250df"}
	ack := series{name: "cumulative ACK", colour: "#1a7f37", line: true}
	timeout := series{name: "timeout", colour: "#000000"}
	var u unwrapper
	for i := range t.Records {
		r := &t.Records[i]
		if r.PSN == nil || r.Response != responses || r.Event == "received" || r.Event != "sent" && !u.begun {
			continue
		}
		at := sample{t.at(r), u.unwrap(*r.PSN)}
		switch {
		case r.Event == "timeout":
			timeout.points = append(timeout.points, at)
		case r.Event == "ack":
			ack.points = append(ack.points, at)
			if r.SACK != nil {
				sack.points = append(sack.points, sample{at.at, u.unwrap(*r.SACK)})
			}
		case r.Rtx:
			again.points = append(again.points, at)
		default:
			sent.points = append(sent.points, at)
		}
	}
	return picture{file, title, "PSN", []series{sent, ack, sack, again, timeout}}
}

// unwrapper counts PSNs, of 24 bits, on from the first one.
type unwrapper struct {
	begun bool
	last  uint32
	at    int64
}

func (u *unwrapper) unwrap(psn uint32) float64 {
	if !u.begun {
		u.begun, u.last = true, psn
	}
	u.at += int64(int32((psn-u.last)<<8) >> 8)
	u.last = psn
	return math.Max(float64(u.at), 0)
}

// svg draws a picture; it returns false if there is nothing in it.
func (p *picture) svg(b *bytes.Buffer, subtitle string, until time.Duration, idle []Pause) bool {
	most, some := 0.0, false
	for _, s := range p.series {
		for _, x := range s.points {
			most, some = math.Max(most, x.v), true
		}
	}
	if !some {
		return false
	}
	c := Chart{W: b, Title: p.title + ": " + subtitle, Unit: p.unit, Until: until, Most: most, Pauses: idle}
	c.Begin()
	for _, s := range p.series {
		if len(s.points) == 0 {
			continue
		}
		if s.line && len(s.points) > 1 { // of a single value one would see nothing
			c.Steps(s.colour, s.path(&c))
		} else {
			c.Points(s.colour, s.path(&c))
		}
		c.Key(s.colour, fmt.Sprintf("%s (%d)", s.name, len(s.points)), 140)
	}
	c.End()
	return true
}

// path yields where the points are.
func (s *series) path(c *Chart) func(func(x, y float64) bool) {
	return func(yield func(x, y float64) bool) {
		for _, p := range s.points {
			if !yield(c.X(p.at), c.Y(p.v)) {
				return
			}
		}
	}
}
