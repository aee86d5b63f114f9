// Package check checks a capture of two NICs against rules of RoCEv2, as Lumina does (SIGCOMM 2023): where a sender resumes
// after a NAK, how many NAKs a gap causes, the order of acknowledgements, repeated READ requests, congestion notifications,
// latencies of recovery, and counters. It needs nothing but the capture.
//
// A capture with holes cannot prove anything about sequences: then the verdict is Undecidable.
package check

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// Verdict is the outcome of a check.
type Verdict string

// Verdicts.
const (
	OK          Verdict = "ok"
	Violated    Verdict = "violated"
	Undecidable Verdict = "undecidable"
	NoCase      Verdict = "no case" // nothing in the capture concerns the rule
)

// Finding is an observation with the frames that show it. Frames count from 1, as in Wireshark.
type Finding struct {
	Frames []int  `json:"frames"`
	Text   string `json:"text"`
}

// Check is the outcome of one rule on one connection or on the capture.
type Check struct {
	Name     string    `json:"check"`
	Verdict  Verdict   `json:"verdict"`
	Text     string    `json:"text,omitempty"` // a summary, or why it is undecidable
	Findings []Finding `json:"findings,omitempty"`
	Latency  *Latency  `json:"latency,omitempty"`
}

// Latency is a distribution of times in nanoseconds.
type Latency struct {
	Samples int   `json:"samples"`
	Min     int64 `json:"min_ns"`
	Median  int64 `json:"median_ns"`
	Max     int64 `json:"max_ns"`
}

// Connection has the checks of the requests of one queue pair.
type Connection struct {
	Flow   string  `json:"flow"`
	Checks []Check `json:"checks"`
}

// Report is the outcome of all checks.
type Report struct {
	Frames      int          `json:"frames"`
	Cut         dissect.Cut  `json:"cut_at,omitempty"` // the byte at which the capture ends early
	Checks      []Check      `json:"checks"`           // of the whole capture, that of its packets first
	Connections []Connection `json:"connections"`
}

// Empty reports whether the capture has no packet of RoCEv2.
func (r *Report) Empty() bool { return r.Checks[0].Verdict == NoCase }

// Violated reports whether a check found a violation.
func (r *Report) Violated() bool {
	is := func(c Check) bool { return c.Verdict == Violated }
	return slices.ContainsFunc(r.Checks, is) || slices.ContainsFunc(r.Connections, func(c Connection) bool { return slices.ContainsFunc(c.Checks, is) })
}

// packet is a RoCEv2 packet of the capture. Captures have millions of them.
type packet struct {
	frame  int
	at     int64 // nanoseconds
	stream *stream
	reth   bth.RETH
	aeth   bth.AETH
	psn    bth.PSN
	opcode bth.Opcode
	marked bool // congestion experienced
	copied bool // the network or the capture has duplicated it
	fresh  bool // a request with a new PSN
}

// stream is the packets from one host to a queue pair of another.
type stream struct {
	way
	qpn     bth.QPN // the destination
	packets []int32 // places in capture.packets
}

// capture is a capture in memory.
type capture struct {
	packets []packet
	streams map[uint64]*stream // by the number of flow.Seen
	flows   []flow.Flow
	totals  flow.Totals
	frames  int
	cut     dissect.Cut
	holes   map[int][]Finding // of the response in a frame: requests that it acknowledges although the capture lacks them
}

// Options are the inputs of Read besides the capture.
type Options struct {
	Counters   Counters // of the hosts, to compare with their packets
	IgnoreICRC bool     // the capture has no ICRCs, or wrong ones
}

// Read checks a capture.
func Read(r io.Reader, o Options) (*Report, error) {
	c, err := read(r, o)
	if err != nil {
		return nil, err
	}
	out := &Report{Frames: c.frames, Cut: c.cut, Checks: []Check{c.integrity()}}
	holes := 0
	for i := range c.flows {
		f := &c.flows[i]
		if f.Transport != "RC" || f.Requests.Packets == 0 {
			continue
		}
		n := newConnection(c, f)
		holes += len(n.holes)
		out.Connections = append(out.Connections, Connection{n.name(), n.checks()})
	}
	out.Checks = append(out.Checks, c.notifications(), c.scope())
	return out, errors.Join(c.compare(out, o.Counters, holes))
}

// read reads all packets, and lets the analyzer join them to flows.
func read(r io.Reader, o Options) (c *capture, err error) {
	c = &capture{streams: map[uint64]*stream{}, holes: map[int][]Finding{}}
	a := flow.New(flow.Options{Unseen: true, IgnoreICRC: o.IgnoreICRC})
	c.cut, err = dissect.Read(r, func(n int, f *pcapng.Frame, p *dissect.Packet) error {
		c.frames = n
		if seen, ok := p.Analyse(a, f); ok {
			c.add(f.Time, &p.Datagram, &seen)
		}
		return nil
	})
	c.flows, c.totals = a.Flows(), a.Totals()
	return c, err
}

// add keeps a packet.
func (c *capture) add(at int64, d *bth.Datagram, s *flow.Seen) {
	p := s.Packet
	to := c.streams[s.Stream]
	if to == nil {
		to = &stream{way: way{d.Src, d.Dst}, qpn: p.DestQP}
		c.streams[s.Stream] = to
	}
	to.packets = append(to.packets, int32(len(c.packets)))
	c.packets = append(c.packets, packet{c.frames, at, to, p.RETH, p.AETH, p.PSN, p.Opcode, d.Marked(), s.Copy, s.Fresh})
	for i := 0; i < len(s.Unseen); {
		n := 1
		for i+n < len(s.Unseen) && s.Unseen[i+n] == s.Unseen[i].Add(n) {
			n++
		}
		text := fmt.Sprintf("request PSN %v is acknowledged, but the capture does not have it", s.Unseen[i])
		if n > 1 {
			text = fmt.Sprintf("requests PSN %v to %v are acknowledged, but the capture does not have them", s.Unseen[i], s.Unseen[i+n-1])
		}
		c.holes[c.frames] = append(c.holes[c.frames], Finding{[]int{c.frames}, text})
		i += n
	}
}

// integrity checks that the packets can be read at all.
func (c *capture) integrity() Check {
	t := &c.totals
	k := Check{Name: "packets", Verdict: OK, Text: fmt.Sprintf("%d RoCEv2 packets, %d others%v", t.Packets, t.Other, t.Others)}
	if t.Packets == 0 {
		k.Verdict, k.Text = NoCase, fmt.Sprintf("%d other frames%s", t.Other, t.Others.Instead())
	}
	if bad := t.Malformed + t.BadICRC; bad > 0 {
		k.Verdict, k.Text = Violated, fmt.Sprintf("%d malformed packets and %d with a wrong ICRC", t.Malformed, t.BadICRC)
	} else if t.Cut > 0 {
		k.Verdict, k.Text = Undecidable, fmt.Sprintf("%d packets are truncated; their ICRC cannot be checked", t.Cut)
	} else if t.Evicted > 0 {
		k.Verdict, k.Text = Undecidable, k.Text+t.Forgotten()
	}
	return k
}
