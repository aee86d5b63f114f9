package flow_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

var update = flag.Bool("update", false, "write the golden files")

const captureDir = "../../../bth/testdata/"

// analyse feeds a capture file to an Analyzer; snap > 0 truncates the frames.
func analyse(tb testing.TB, path string, snap int) *flow.Analyzer {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	rd, err := pcapng.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	a := flow.New(flow.Options{})
	var f pcapng.Frame
	for {
		err := rd.Next(&f)
		if err == io.EOF {
			return a
		}
		if err != nil {
			tb.Fatal(err)
		}
		off, _, err := f.Link.Network(f.Data, new([]uint16))
		if err != nil {
			tb.Fatal(err)
		}
		ip := f.Data[off:]
		if snap > 0 {
			ip = ip[:min(snap, len(ip))]
		}
		a.Packet(mono.Time(f.Time), ip)
	}
}

// describe formats the results of a capture for the golden file.
func describe(a *flow.Analyzer) string {
	var w strings.Builder
	t := a.Totals()
	fmt.Fprintf(&w, "total packets %d other %d malformed %d icrc %d cm %+v\n", t.Packets, t.Other, t.Malformed, t.BadICRC, t.CM)
	for _, f := range a.Flows() {
		fmt.Fprintf(&w, "%s %s -> %s joined %q service %q mtu %d psn %d..%d messages %d bytes %d\n", f.Transport,
			endpoint(f.Requester), endpoint(f.Responder), f.Joined, f.Service, f.MTU, f.FirstPSN, f.LastPSN, f.Messages, f.Bytes)
		fmt.Fprintf(&w, "  verbs %v\n", f.Operations)
		r, s := f.Requests, f.Responses
		fmt.Fprintf(&w, "  req %d/%d ce %d %s\n", r.Packets, r.Bytes, r.CE, sequence(r.SequenceCounts))
		fmt.Fprintf(&w, "  rsp %d/%d ce %d ack %d atomic %d read %d rnr %d nak %+v becn %d %s\n", s.Packets, s.Bytes, s.CE,
			s.Acks, s.AtomicAcks, s.ReadPkts, s.RNRNaks, s.NAKs, s.BECN, sequence(s.SequenceCounts))
		fmt.Fprintf(&w, "  cnp %d/%d rtt %d min %v max %v p50 %v\n", f.CNPs, f.SentCNPs, f.RTT.Samples, f.RTT.Min, f.RTT.Max, f.RTT.P50)
	}
	return w.String()
}

func endpoint(e flow.Endpoint) string {
	if e.QPN == nil {
		return e.Addr.String() + "/?"
	}
	return fmt.Sprintf("%v/%d", e.Addr, *e.QPN)
}

func sequence(c flow.SequenceCounts) string {
	return fmt.Sprintf("retx %d recov %d reord %d dup %d gaps %d lost %d missing %d restarts %d ooo %d%v", c.Retransmitted,
		c.Recovered, c.Reordered, c.Duplicated, c.Gaps, c.Lost, c.Missing, c.Restarts, c.OutOfOrder.Max, c.OutOfOrder.Counts)
}

// TestCaptures analyses captures of Linux's rdma_rxe.
func TestCaptures(t *testing.T) {
	paths, err := filepath.Glob(captureDir + "*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatalf("captures: %v, %v", paths, err)
	}
	var got strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&got, "== %s\n%s", filepath.Base(path), describe(analyse(t, path, 0)))
	}
	const golden = "testdata/captures.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
