package check

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/bth"
)

// Counters are the counters of hosts, by address: how much each has grown during the capture.
type Counters map[netip.Addr]map[string]uint64

// ReadCounters reads counters: a name and a number on each line, as "rdma statistic" or "grep . hw_counters/*" print them.
func ReadCounters(r io.Reader) (map[string]uint64, error) {
	m := map[string]uint64{}
	s := bufio.NewScanner(r)
	n := 1
	for ; s.Scan(); n++ {
		f := strings.FieldsFunc(s.Text(), func(c rune) bool { return strings.ContainsRune(" \t:=", c) })
		if len(f) == 0 {
			continue
		}
		v, err := strconv.ParseUint(f[len(f)-1], 10, 64)
		if len(f) < 2 || err != nil {
			return nil, fmt.Errorf("line %d: %.40q: must be a name and a number", n, s.Text())
		}
		name := f[len(f)-2]
		m[name[strings.LastIndexByte(name, '/')+1:]] = v
	}
	if s.Err() == bufio.ErrTooLong {
		return nil, fmt.Errorf("line %d: longer than %d bytes: must be a name and a number", n, bufio.MaxScanTokenSize)
	}
	return m, s.Err()
}

// counted is what the packets of a host say about a counter.
type counted struct {
	names []string // of rdma_rxe, mlx5 and others
	sent  bool     // the host sends these packets; else it receives them
	is    func(*packet) bool
}

// known are the counters that a capture can confirm.
var known = []counted{
	{[]string{"sent_pkts"}, true, func(*packet) bool { return true }},
	{[]string{"rcvd_pkts"}, false, func(*packet) bool { return true }},
	{[]string{"rcvd_seq_err", "packet_seq_err"}, false, isSequenceError},
	{[]string{"out_of_seq_request"}, true, isSequenceError},
	{[]string{"rcvd_rnr_err"}, false, isRNR},
	{[]string{"send_rnr_err"}, true, isRNR},
	{[]string{"np_cnp_sent", "cnp_sent"}, true, func(p *packet) bool { return p.opcode.IsCNP() }},
	{[]string{"rp_cnp_handled", "cnp_handled"}, false, func(p *packet) bool { return p.opcode.IsCNP() }},
	{[]string{"np_ecn_marked_roce_packets"}, false, func(p *packet) bool { return p.marked }},
}

func isSequenceError(p *packet) bool {
	return p.opcode.IsAck() && p.aeth.Syndrome == bth.SyndromePSNSeqErr
}

func isRNR(p *packet) bool { return p.opcode.IsAck() && p.aeth.Syndrome.IsRNR() }

// compare adds a check for each host with counters.
func (c *capture) compare(out *Report, counters Counters, holes int) error {
	for _, a := range slices.SortedFunc(maps.Keys(counters), netip.Addr.Compare) {
		if !slices.ContainsFunc(c.packets, func(p packet) bool { return p.stream.from == a || p.stream.to == a }) {
			return fmt.Errorf("counters of %v: the capture has no packets of this host", a)
		}
		k := Check{Name: fmt.Sprintf("counters of %v", a)}
		cases := 0
		for _, x := range known {
			for _, name := range x.names {
				if v, ok := counters[a][name]; ok {
					cases++
					k.match(name, v, c.count(a, &x, false), c.count(a, &x, true))
				}
			}
		}
		k.conclude(cases, "counters")
		if k.Verdict == Violated {
			k.Text += " differ from the capture"
		}
		if (holes > 0 || out.Cut > 0) && k.Verdict != NoCase {
			k.Verdict, k.Text = Undecidable, "the capture has holes or is cut"
		}
		out.Checks = append(out.Checks, k)
	}
	return nil
}

// count returns the frames of a host that a counter counts, with or without copies.
func (c *capture) count(a netip.Addr, x *counted, copies bool) (frames []int) {
	for i := range c.packets {
		p := &c.packets[i]
		if (x.sent && p.stream.from == a || !x.sent && p.stream.to == a) && x.is(p) && (copies || !p.copied) {
			frames = append(frames, p.frame)
		}
	}
	return frames
}

// match records a counter that differs. A host may have received the copies too, if the network made them and not the capture. The
// finding names the first frames.
func (k *Check) match(name string, value uint64, frames, all []int) {
	const most = 10
	if value < uint64(len(frames)) || value > uint64(len(all)) {
		k.Findings = append(k.Findings, Finding{frames[:min(most, len(frames))], fmt.Sprintf("%s is %d, the capture has %d", name, value, len(frames))})
	}
}
