package check

import (
	"fmt"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flow"
)

// connection is the requests of a queue pair and their responses, in the order of the capture.
type connection struct {
	flow    *flow.Flow
	packets []sided
	mtu     int
	holes   []Finding // requests that were acknowledged, but are not in the capture
	lost    uint64    // requests whose first transmission did not reach the capture
	// The packets from searched on have no repeated request before repeated.
	searched, repeated int
}

// sided is a packet with its side.
type sided struct {
	*packet
	request bool
}

// newConnection selects the packets of a flow, in the order of the capture.
func newConnection(c *capture, f *flow.Flow) *connection {
	n := &connection{flow: f, mtu: f.MTU, lost: f.Requests.Recovered}
	requests, responses := c.places(f.Requests.Stream), c.places(f.Responses.Stream)
	for len(requests)+len(responses) > 0 {
		request := len(responses) == 0 || len(requests) > 0 && requests[0] < responses[0]
		next := &requests
		if !request {
			next = &responses
		}
		p := &c.packets[(*next)[0]]
		*next = (*next)[1:]
		if p.copied || p.opcode.Transport() != bth.TransportRC || p.opcode.IsExt() || p.opcode.IsRequest() != request || p.opcode.IsResponse() == request {
			continue
		}
		n.packets = append(n.packets, sided{p, request})
		if !request {
			n.holes = append(n.holes, c.holes[p.frame]...)
		}
	}
	return n
}

// places returns the places of a stream's packets.
func (c *capture) places(number uint64) []int32 {
	if s := c.streams[number]; s != nil {
		return s.packets
	}
	return nil
}

func (n *connection) name() string {
	end := func(e flow.Endpoint) string {
		if e.QPN == nil {
			return e.Addr.String()
		}
		return fmt.Sprintf("%v/%#x", e.Addr, uint32(*e.QPN))
	}
	return fmt.Sprintf("%s -> %s", end(n.flow.Requester), end(n.flow.Responder))
}

// psns returns how many PSNs a request uses: those of its responses, if it is a READ.
func (n *connection) psns(p *sided) int {
	if !p.opcode.IsReadRequest() {
		return 1
	}
	mtu := n.mtu
	if mtu == 0 {
		mtu = 4096 // the least number of PSNs: no violation is invented
	}
	return flow.Packets(p.reth.Length, mtu)
}

// checks runs all checks of the connection.
func (n *connection) checks() []Check {
	k := Check{Name: "capture", Verdict: OK, Text: fmt.Sprintf("no holes; %d requests were lost before the capture", n.lost), Findings: n.holes}
	if len(n.holes) > 0 {
		k.Verdict, k.Text = Undecidable, fmt.Sprintf("%d holes", len(n.holes))
	}
	list := []Check{k, n.resume(), n.oneNAK(), n.monotone(), n.reads()}
	for i := range list[1:] {
		if c := &list[i+1]; len(n.holes) > 0 && c.Verdict != NoCase {
			c.Verdict, c.Text = Undecidable, "the capture has holes"
		}
	}
	return append(list, n.nakGeneration(), n.nakReaction(), n.timeouts())
}

// conclude sets verdict and text from the number of cases and the findings.
func (k *Check) conclude(cases int, what string) Check {
	switch {
	case len(k.Findings) > 0:
		k.Verdict, k.Text = Violated, fmt.Sprintf("%d of %d %s", len(k.Findings), cases, what)
	case cases == 0:
		k.Verdict = NoCase
	default:
		k.Verdict, k.Text = OK, fmt.Sprintf("%d %s", cases, what)
	}
	return *k
}

// repeats reports whether a packet is a request whose PSN is not new.
func (p *sided) repeats() bool { return p.request && !p.fresh }

// isSequenceNAK reports whether a packet is a NAK for a PSN sequence error.
func (p *sided) isSequenceNAK() bool {
	return !p.request && p.opcode.IsAck() && p.aeth.Syndrome == bth.SyndromePSNSeqErr
}

// resume checks that the requester goes on at the PSN of a NAK (IBTA 9.7.5.2.8).
func (n *connection) resume() Check {
	k := Check{Name: "resumes at the NAK"}
	cases := 0
	for i := range n.packets {
		nak := &n.packets[i]
		if !nak.isSequenceNAK() {
			continue
		}
		if r := n.retransmission(i); r != nil {
			cases++
			if r.psn != nak.psn {
				k.Findings = append(k.Findings, Finding{[]int{nak.frame, r.frame}, fmt.Sprintf("after the NAK of PSN %v the requester resumes at PSN %v", nak.psn, r.psn)})
			}
		}
	}
	k.conclude(cases, "retransmissions after a NAK")
	if k.Verdict == Violated && n.lost > 0 {
		k.Verdict, k.Text = Undecidable, fmt.Sprintf("%s, but packets were lost before the capture, perhaps the retransmission too", k.Text)
	}
	return k
}

// retransmission returns the first repeated request after packet i. Calls with growing i read each packet once.
func (n *connection) retransmission(i int) *sided {
	if i < n.searched || i >= n.repeated {
		n.searched, n.repeated = i, i+1
		for n.repeated < len(n.packets) && !n.packets[n.repeated].repeats() {
			n.repeated++
		}
	}
	if n.repeated == len(n.packets) {
		return nil
	}
	return &n.packets[n.repeated]
}

// oneNAK checks that a gap causes one NAK only: no other follows before the missing request (IBTA 9.7.5.2.8).
func (n *connection) oneNAK() Check {
	k := Check{Name: "one NAK outstanding"}
	cases := 0
	var open *sided
	for i := range n.packets {
		p := &n.packets[i]
		switch {
		case p.request && open != nil && !p.psn.After(open.psn) && open.psn.Before(p.psn.Add(n.psns(p))):
			open = nil
		case p.isSequenceNAK():
			cases++
			if open != nil {
				k.Findings = append(k.Findings, Finding{[]int{open.frame, p.frame}, fmt.Sprintf("NAK of PSN %v while that of PSN %v is outstanding", p.psn, open.psn)})
			}
			open = p
		}
	}
	return k.conclude(cases, "NAKs")
}

// monotone checks that acknowledgements do not go back (IBTA 9.7.5.1.2), in PSN and in MSN.
func (n *connection) monotone() Check {
	k := Check{Name: "acknowledgements in order"}
	cases := 0
	var last *sided
	for i := range n.packets {
		p := &n.packets[i]
		if p.request || p.opcode != bth.OpAcknowledge || !p.aeth.Syndrome.IsACK() {
			continue
		}
		cases++
		switch {
		case last == nil:
		case p.psn.Before(last.psn):
			k.Findings = append(k.Findings, Finding{[]int{last.frame, p.frame}, fmt.Sprintf("ACK of PSN %v after that of PSN %v", p.psn, last.psn)})
			continue
		case bth.MakePSN(uint32(p.aeth.MSN)).Before(bth.MakePSN(uint32(last.aeth.MSN))):
			k.Findings = append(k.Findings, Finding{[]int{last.frame, p.frame}, fmt.Sprintf("MSN %d after %d", p.aeth.MSN, last.aeth.MSN)})
		}
		last = p
	}
	return k.conclude(cases, "ACKs")
}

// mostReads is more READ requests than a queue pair may have outstanding: max_rd_atomic has 8 bits.
const mostReads = 1024

// reads checks that a repeated READ request asks for the rest of the first one: address and length advance with the PSN (IBTA
// 9.7.5.1.3).
func (n *connection) reads() Check {
	k := Check{Name: "ranges of repeated READs"}
	cases := 0
	var first []*sided
	for i := range n.packets {
		p := &n.packets[i]
		if !p.request || !p.opcode.IsReadRequest() {
			continue
		}
		recent := first[max(0, len(first)-mostReads):]
		j := -1
		if !p.fresh {
			j = slices.IndexFunc(recent, func(f *sided) bool { return !p.psn.Before(f.psn) && p.psn.Before(f.psn.Add(n.psns(f))) })
		}
		if j < 0 {
			first = append(first, p)
			continue
		}
		f := recent[j]
		cases++
		off := uint64(p.psn.Diff(f.psn)) * uint64(max(n.mtu, 1))
		if n.mtu == 0 && off > 0 {
			continue
		}
		if p.reth.VA != f.reth.VA+off || uint64(p.reth.Length)+off != uint64(f.reth.Length) || p.reth.RKey != f.reth.RKey {
			k.Findings = append(k.Findings, Finding{[]int{f.frame, p.frame}, fmt.Sprintf("READ of PSN %v has address +%d and %d bytes, expected +%d and %d", p.psn,
				p.reth.VA-f.reth.VA, p.reth.Length, off, uint64(f.reth.Length)-off)})
		}
	}
	return k.conclude(cases, "repeated READ requests")
}

// backwards returns an undecidable check: the time of the second frame is before that of the first.
func backwards(name string, frames []int) Check {
	return Check{Name: name, Verdict: Undecidable, Text: fmt.Sprintf("times decrease at frame %d", frames[1])}
}

// measure sums up times. Findings name the frames of the slowest one.
func measure(name string, times []time.Duration, frames [][]int, what string) Check {
	k := Check{Name: name, Verdict: NoCase}
	if len(times) == 0 {
		return k
	}
	if i := slices.IndexFunc(times, func(t time.Duration) bool { return t < 0 }); i >= 0 {
		return backwards(name, frames[i])
	}
	sorted := slices.Sorted(slices.Values(times))
	slow := slices.Index(times, sorted[len(sorted)-1])
	k.Verdict = OK
	k.Latency = &Latency{len(times), int64(sorted[0]), int64(sorted[len(sorted)/2]), int64(times[slow])}
	k.Text = fmt.Sprintf("%d %s: %v to %v, median %v", len(times), what, sorted[0], times[slow], sorted[len(sorted)/2])
	k.Findings = []Finding{{frames[slow], fmt.Sprintf("the slowest: %v", times[slow])}}
	return k
}

// nakGeneration measures the time from the first request behind a gap to the NAK.
func (n *connection) nakGeneration() Check {
	var times []time.Duration
	var frames [][]int
	for i := range n.packets {
		nak := &n.packets[i]
		if !nak.isSequenceNAK() {
			continue
		}
		var gap *sided
		for j := i - 1; j >= 0; j-- {
			p := &n.packets[j]
			if p.request && p.psn.After(nak.psn) {
				gap = p
			} else if p.request || p.isSequenceNAK() {
				break
			}
		}
		if gap != nil {
			times, frames = append(times, time.Duration(nak.at-gap.at)), append(frames, []int{gap.frame, nak.frame})
		}
	}
	return measure("NAK generation", times, frames, "NAKs after the request behind the gap")
}

// nakReaction measures the time from a NAK to the retransmission.
func (n *connection) nakReaction() Check {
	var times []time.Duration
	var frames [][]int
	for i := range n.packets {
		nak := &n.packets[i]
		if !nak.isSequenceNAK() {
			continue
		}
		if r := n.retransmission(i); r != nil && r.psn == nak.psn {
			times, frames = append(times, time.Duration(r.at-nak.at)), append(frames, []int{nak.frame, r.frame})
		}
	}
	return measure("NAK reaction", times, frames, "retransmissions after their NAK")
}

// timeouts measures the time from a request to its retransmission without a NAK in between: the timeout.
func (n *connection) timeouts() Check {
	var times []time.Duration
	var frames [][]int
	sent := map[bth.PSN]*sided{}
	answered := true // since the last timeout
	for i := range n.packets {
		p := &n.packets[i]
		if !p.request {
			answered = answered || p.opcode.IsAck() && !p.aeth.Syndrome.IsACK()
			continue
		}
		if before := sent[p.psn]; before != nil && !answered && !n.packets[i-1].repeats() {
			times, frames = append(times, time.Duration(p.at-before.at)), append(frames, []int{before.frame, p.frame})
		}
		sent[p.psn] = p
		answered = answered && !p.fresh
	}
	return measure("retransmission without NAK", times, frames, "retransmissions after the request")
}
