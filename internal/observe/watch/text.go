package watch

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"roced.io/roced/internal/observe/flow"
)

// header names the columns of the table. Some of them are:
//
//   - RETX, LOST, OOO: retransmissions, missing PSNs and the maximum out-of-order degree.
//   - NAK, RNR, CNP: negative acknowledgements, receiver not ready and congestion notifications.
//   - CE: "congestion experienced" marks.
//   - RTT: the smoothed round-trip time.
const header = "REQUESTER\tRESPONDER\tTYPE\tVERBS\tMSGS\tBYTES\tRATE\tPKTS\tRETX\tLOST\tOOO\tNAK\tRNR\tCNP\tCE\tRTT"

// WriteTable writes r as a table of at most rows flows; 0 means all.
func WriteTable(out io.Writer, r *Report, rows int) error {
	t := &r.Totals
	fmt.Fprintf(out, "%s  %s  %d packets, %d flows", r.Time.Format(time.TimeOnly), r.Source, t.Packets, len(r.Flows))
	for _, n := range []struct {
		count uint64
		what  string
	}{
		{r.Lost, "LOST"}, {t.Other, "other" + t.Others.String()}, {r.truncated(), "truncated"}, {t.Malformed, "malformed"}, {t.BadICRC, "with a bad ICRC"}, {t.Trimmed, "trimmed"}, {t.Endpoint, "of endpoints"}, {t.Evicted, "streams forgotten (see --streams)"},
	} {
		if n.count > 0 {
			fmt.Fprintf(out, ", %d %s", n.count, n.what)
		}
	}
	fmt.Fprintln(out, r.Cut)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for i := range r.Flows {
		if rows > 0 && i == rows {
			fmt.Fprintf(w, "... %d more\n", len(r.Flows)-rows)
			break
		}
		writeRow(w, &r.Flows[i])
	}
	return w.Flush()
}

// truncated counts the truncated packets of a file. Live observation truncates all packets.
func (r *Report) truncated() uint64 {
	if r.Live {
		return 0
	}
	return r.Totals.Cut
}

func writeRow(w io.Writer, f *Row) {
	q, s := &f.Requests, &f.Responses
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
		endpoint(f.Requester), endpoint(f.Responder), f.Transport, verbs(f), f.Messages, si(float64(f.Bytes), "B"),
		si(f.Rate, "b/s"), q.Packets+s.Packets, f.retransmitted(), q.Lost+s.Lost, max(q.OutOfOrder.Max, s.OutOfOrder.Max),
		s.NAKs.Total, s.RNRNaks, f.CNPs, q.CE+s.CE, rtt(&f.RTT))
}

// verbs abbreviates the verbs: "send,write,read".
func verbs(f *Row) string {
	var out []string
	for _, o := range f.Operations {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(o.Verb), "rdma_"), "_with")
		if len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ",")
}

func rtt(r *flow.RTT) string {
	if r.Samples == 0 {
		return "-"
	}
	return short(r.Smoothed)
}

// short rounds a duration to three digits.
func short(d time.Duration) string {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}

// si formats v with three digits and a decimal prefix.
func si(v float64, unit string) string {
	const prefixes = " kMGTPE"
	i := 0
	for v >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	prefix := strings.TrimSpace(prefixes[i : i+1])
	if i == 0 || v >= 99.95 {
		return fmt.Sprintf("%.0f%s%s", v, prefix, unit)
	}
	return fmt.Sprintf("%.*f%s%s", digitsFor(v), v, prefix, unit)
}

func digitsFor(v float64) int {
	if v < 9.995 {
		return 2
	}
	return 1
}

// WriteDetails writes all data of each flow.
func WriteDetails(w io.Writer, r *Report) {
	if r.Cut > 0 {
		fmt.Fprintf(w, "%s%v\n", r.Source, r.Cut)
	}
	for i := range r.Flows {
		f := &r.Flows[i]
		fmt.Fprintf(w, "%s > %s %s", endpoint(f.Requester), endpoint(f.Responder), f.Transport)
		for _, v := range []struct{ name, value string }{{"joined", string(f.Joined)}, {"service", f.Service}} {
			if v.value != "" {
				fmt.Fprintf(w, " %s %s", v.name, v.value)
			}
		}
		if f.MTU > 0 {
			fmt.Fprintf(w, " path-mtu %d", f.MTU)
		}
		fmt.Fprintf(w, "\n    psn %d..%d messages %d bytes %d rate %s %.4g msg/s lasting %s\n", f.FirstPSN, f.LastPSN,
			f.Messages, f.Bytes, si(f.Rate, "b/s"), f.MessageRate, short(f.End.Sub(f.Start)))
		writeVerbs(w, f)
		writeSequence(w, "requests", f.Requests.Packets, f.Requests.CE, &f.Requests.SequenceCounts, f.Requests.Opcodes)
		if s := &f.Responses; s.Packets > 0 {
			writeSequence(w, "responses", s.Packets, s.CE, &s.SequenceCounts, s.Opcodes)
			n := &s.NAKs
			fmt.Fprintf(w, "    acks %d atomic_acks %d rnr_naks %d naks: psn_sequence %d invalid_request %d remote_access %d remote_operational %d other %d\n",
				s.Acks, s.AtomicAcks, s.RNRNaks, n.PSNSequence, n.InvalidRequest, n.RemoteAccess, n.RemoteOp, n.InvalidRD+n.Other)
			writeReasons(w, s.Reasons)
		}
		fmt.Fprintf(w, "    cnps %d sent_cnps %d becn %d bad_icrc %d\n", f.CNPs, f.SentCNPs, f.Responses.BECN, f.BadICRC)
		if t := &f.RTT; t.Samples > 0 {
			fmt.Fprintf(w, "    rtt %s min %s p50 %s p99 %s max %s samples %d\n",
				short(t.Smoothed), short(t.Min), short(t.P50), short(t.P99), short(t.Max), t.Samples)
		}
	}
}

func writeReasons(w io.Writer, reasons []flow.Reason) {
	if len(reasons) == 0 {
		return
	}
	fmt.Fprint(w, "    nacks:")
	for _, r := range reasons {
		fmt.Fprintf(w, " %s %d", r.Name, r.Packets)
	}
	fmt.Fprintln(w)
}

func writeVerbs(w io.Writer, f *Row) {
	if len(f.Operations) == 0 {
		return
	}
	fmt.Fprint(w, "   ")
	for _, o := range f.Operations {
		fmt.Fprintf(w, " %s %d", o.Verb, o.Messages)
	}
	fmt.Fprintln(w)
}

func writeSequence(w io.Writer, name string, packets, ce uint64, c *flow.SequenceCounts, opcodes []flow.Opcode) {
	fmt.Fprintf(w, "    %s %d retransmitted %d recovered %d reordered %d duplicated %d lost %d missing %d gaps %d ce %d\n",
		name, packets, c.Retransmitted, c.Recovered, c.Reordered, c.Duplicated, c.Lost, c.Missing, c.Gaps, ce)
	if c.OutOfOrder.Max > 0 {
		fmt.Fprintf(w, "      out-of-order degree max %d:", c.OutOfOrder.Max)
		for i, n := range c.OutOfOrder.Counts {
			if n > 0 {
				fmt.Fprintf(w, " %d..%d: %d", 1<<i, 2<<i-1, n)
			}
		}
		fmt.Fprintln(w)
	}
	for _, o := range opcodes {
		fmt.Fprintf(w, "      %s %d packets %d bytes\n", o.Name, o.Packets, o.Bytes)
	}
}
