// Package watch implements the passive view of RoCEv2 traffic. It feeds an internal/observe/flow Analyzer from a
// capture file or an interface, and prints the results.
package watch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
)

// Row is a flow with its rates.
type Row struct {
	flow.Flow
	// Rate is the goodput in bit/s, MessageRate in messages/s. Both cover the time since the previous report. In the
	// first report they cover the flow's whole lifetime.
	Rate        float64 `json:"rate_bps"`
	MessageRate float64 `json:"messages_per_s"`
}

// Report is the state at one time.
type Report struct {
	Time   time.Time   `json:"time"`
	Source string      `json:"source"` // interface or file
	Totals flow.Totals `json:"totals"`
	// Lost is the number of packets that the program was too slow to see. The flows' counters are then too low.
	Lost  uint64 `json:"lost"`
	Flows []Row  `json:"flows"`
	// Cut is the byte at which a file ends early, in its last report.
	Cut  dissect.Cut `json:"cut_at,omitempty"`
	Live bool        `json:"-"` // as in Reporter
}

// Selection selects flows and their order.
type Selection struct {
	QPN  *uint32 // only flows with this queue pair at either end
	Sort string  // one of Orders; empty: by rate
}

// orders compare flows. The greater flow comes first.
var orders = map[string]func(a, b *Row) int{
	"rate":     func(a, b *Row) int { return cmp.Compare(a.Rate, b.Rate) },
	"bytes":    func(a, b *Row) int { return cmp.Compare(a.Bytes, b.Bytes) },
	"messages": func(a, b *Row) int { return cmp.Compare(a.Messages, b.Messages) },
	"packets": func(a, b *Row) int {
		return cmp.Compare(a.Requests.Packets+a.Responses.Packets, b.Requests.Packets+b.Responses.Packets)
	},
	"retx": func(a, b *Row) int { return cmp.Compare(a.retransmitted(), b.retransmitted()) },
	"naks": func(a, b *Row) int { return cmp.Compare(a.Responses.NAKs.Total, b.Responses.NAKs.Total) },
	"rnr":  func(a, b *Row) int { return cmp.Compare(a.Responses.RNRNaks, b.Responses.RNRNaks) },
	"cnps": func(a, b *Row) int { return cmp.Compare(a.CNPs, b.CNPs) },
	"rtt":  func(a, b *Row) int { return cmp.Compare(a.RTT.Smoothed, b.RTT.Smoothed) },
	"age":  func(a, b *Row) int { return cmp.Compare(b.Serial, a.Serial) },
}

// Orders lists the names of the orders, for messages.
const Orders = "rate, bytes, messages, packets, retx, naks, rnr, cnps, rtt, age"

// Validate returns an error if s is invalid.
func (s *Selection) Validate() error {
	if _, ok := orders[s.Sort]; !ok && s.Sort != "" {
		return fmt.Errorf("cannot sort by %q; there are %s", s.Sort, Orders)
	}
	if s.QPN != nil && *s.QPN >= 1<<24 {
		return errors.New("queue pair number out of range: must be at most 0xffffff")
	}
	return nil
}

// retransmitted counts retransmissions of requests and READ responses.
func (r *Row) retransmitted() uint64 {
	return r.Requests.Retransmitted + r.Responses.Retransmitted
}

// before holds the counters of a flow in the previous report.
type before struct {
	at              time.Time
	bytes, messages uint64
}

// Reporter creates reports of an Analyzer and computes the rates between them.
type Reporter struct {
	Source string
	Live   bool // the source is no file
	Select Selection
	last   map[uint64]before
	cut    dissect.Cut
}

// Report creates a report of a at time now. lost is the number of dropped packets.
func (r *Reporter) Report(now time.Time, a *flow.Analyzer, lost uint64) *Report {
	out := &Report{Time: now, Source: r.Source, Totals: a.Totals(), Lost: lost, Flows: []Row{}, Cut: r.cut, Live: r.Live}
	state := map[uint64]before{}
	for _, f := range a.Flows() {
		row := Row{Flow: f}
		b, ok := r.last[f.Serial]
		seconds := now.Sub(b.at).Seconds()
		if !ok {
			seconds = f.End.Sub(f.Start).Seconds()
		}
		if seconds > 0 {
			row.Rate = float64(f.Bytes-b.bytes) * 8 / seconds
			row.MessageRate = float64(f.Messages-b.messages) / seconds
		}
		state[f.Serial] = before{now, f.Bytes, f.Messages}
		if r.Select.has(&f) {
			out.Flows = append(out.Flows, row)
		}
	}
	r.last = state
	order := orders[cmp.Or(r.Select.Sort, "rate")]
	slices.SortStableFunc(out.Flows, func(a, b Row) int { return order(&b, &a) })
	return out
}

func (s *Selection) has(f *flow.Flow) bool {
	is := func(e flow.Endpoint) bool { return e.QPN != nil && uint32(*e.QPN) == *s.QPN }
	return s.QPN == nil || is(f.Requester) || is(f.Responder)
}

// endpoint formats a queue pair as address and number in both notations, with "?" for an unknown number.
func endpoint(e flow.Endpoint) string {
	addr := e.Addr.String()
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	if e.QPN == nil {
		return addr + ":?"
	}
	return addr + ":" + e.QPN.Text()
}
