package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"roced.io/roced/internal/base/chart"
)

// sample is a value at an instant.
type sample struct {
	at time.Duration
	v  float64
}

// series is the data of one colour.
type series struct {
	name, colour string
	line         bool // values hold until the next one: draw steps, not points
	points       []sample
}

// picture is one diagram of a trace.
type picture struct {
	file, title, unit string
	series            []series
}

// Draw writes the pictures of a trace into a folder, which it creates, and returns their files. It leaves out
// pictures without data. Unless time is to scale, long pauses take little room.
func (t *Trace) Draw(dir string, toScale bool) (files []string, err error) {
	var idle []chart.Pause
	if !toScale {
		idle = pauses(t.instants())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range t.pictures() {
		svg := p.svg(t.subtitle(), chart.Time(t.until(), idle))
		if svg == nil {
			continue
		}
		name := filepath.Join(dir, "trace-"+p.file+".svg")
		if err := os.WriteFile(name, svg, 0o644); err != nil {
			return files, err
		}
		files = append(files, name)
	}
	return files, nil
}

func (t *Trace) subtitle() string {
	return fmt.Sprintf("%s QP %d, %s, path MTU %d", t.Start.NIC, t.Start.QPN, t.Start.Profile, t.Start.MTU)
}

// until returns the end of the time axis.
func (t *Trace) until() time.Duration {
	last := time.Microsecond
	if n := len(t.Records); n > 0 {
		last = max(last, t.at(&t.Records[n-1]))
	}
	return last
}

// instants returns the times of all events since the first packet.
func (t *Trace) instants() (at []time.Duration) {
	for i := range t.Records {
		at = append(at, t.at(&t.Records[i]))
	}
	return at
}

// at returns the time of r since the first packet: the queue pair may have been connected long before.
func (t *Trace) at(r *Record) time.Duration {
	return time.Duration(max(r.T-t.first, 0))
}

// pictures returns all diagrams; some may be empty.
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

// values returns a picture of one value in one kind of event, for requests and for responses. It draws a line through
// values that hold until they change.
func (t *Trace) values(file, title, unit, event string, pick func(*Record) (float64, bool)) picture {
	line := event == "limits" || event == "footprint"
	requests := series{name: strings.ToLower(title), colour: chart.Blue, line: line}
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

// sequence is the time-sequence graph of tcptrace and xplot: PSNs over time, counted from the first one.
func (t *Trace) sequence(file, title string, responses bool) picture {
	sent := series{name: "sent", colour: chart.Blue}
	rtx := series{name: "retransmitted", colour: chart.Red}
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
			rtx.points = append(rtx.points, at)
		default:
			sent.points = append(sent.points, at)
		}
	}
	return picture{file, title, "PSN", []series{sent, ack, sack, rtx, timeout}}
}

// unwrapper extends PSNs of 24 bits, counted from the first one.
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
	return max(float64(u.at), 0)
}

// svg draws a picture; it returns nil if there is no data.
func (p *picture) svg(subtitle string, x chart.Axis) []byte {
	most, some := 0.0, false
	for _, s := range p.series {
		for _, v := range s.points {
			most, some = max(most, v.v), true
		}
	}
	if !some {
		return nil
	}
	c := chart.New(p.title+": "+subtitle, p.unit, x, chart.Linear(most, 8))
	for _, s := range p.series {
		if len(s.points) == 0 {
			continue
		}
		if s.line && len(s.points) > 1 { // steps of a single value are invisible
			c.Steps(s.colour, s.path)
		} else {
			c.Points(s.colour, s.path)
		}
		c.Legend(s.colour, fmt.Sprintf("%s (%d)", s.name, len(s.points)))
	}
	return c.SVG()
}

// path yields the points.
func (s *series) path(yield func(x, y float64) bool) {
	for _, p := range s.points {
		if !yield(float64(p.at), p.v) {
			return
		}
	}
}
