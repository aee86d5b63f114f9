package watch_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/observe/watch"
	"roced.io/roced/plugin/mono"
)

var update = flag.Bool("update", false, "write the golden files")

const captureDir = "../../../bth/testdata/"

// noon is the time of the reports.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// read analyses a file.
func read(tb testing.TB, file []byte) (a *flow.Analyzer, err error) {
	tb.Helper()
	a = flow.New(flow.Options{})
	err = watch.Replay(tb.Context(), bytes.NewReader(file), &watch.Reporter{}, a, 0, func(*watch.Report) error { return nil })
	return a, err
}

func readCapture(tb testing.TB, name string) *flow.Analyzer {
	tb.Helper()
	file, err := os.ReadFile(captureDir + name + ".pcap")
	if err != nil {
		tb.Fatal(err)
	}
	a, err := read(tb, file)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func report(a *flow.Analyzer, s watch.Selection) *watch.Report {
	r := watch.Reporter{Source: "x.pcap", Select: s}
	return r.Report(noon, a, 0)
}

// TestText compares tables and details with golden files.
func TestText(t *testing.T) {
	for _, name := range []string{"cm_rping", "loss2_write", "rc_mixed", "rc_nak", "rc_rnr", "ud_send", "v6_rc", "ecn_write"} {
		r := report(readCapture(t, name), watch.Selection{Sort: "age"})
		var got bytes.Buffer
		if err := watch.WriteTable(&got, r, 0); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&got)
		watch.WriteDetails(&got, r)
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}
}

// TestTableIsBounded checks that the table shows only as many flows as there are lines.
func TestTableIsBounded(t *testing.T) {
	r := report(readCapture(t, "rc_nak"), watch.Selection{})
	r.Lost, r.Totals.Malformed, r.Totals.BadICRC, r.Totals.Evicted = 1, 2, 3, 4
	var out strings.Builder
	if err := watch.WriteTable(&out, r, 3); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 7 || lines[5] != fmt.Sprintf("... %d more", len(r.Flows)-3) {
		t.Errorf("%q", lines)
	}
	if want := "1 LOST, 2 malformed, 3 with a bad ICRC, 4 streams forgotten (see --streams)"; !strings.Contains(out.String(), want) {
		t.Errorf("%s lacks %q", &out, want)
	}
}

// TestLinkTypes reads the same packets with all link types, as pcapng.
func TestLinkTypes(t *testing.T) {
	original, err := os.ReadFile(captureDir + "rc_mixed.pcap")
	if err != nil {
		t.Fatal(err)
	}
	want, err := read(t, original)
	if err != nil {
		t.Fatal(err)
	}
	for link, header := range map[pcapng.LinkType][]byte{
		pcapng.LinkRaw: {}, pcapng.LinkIPv4: {}, pcapng.LinkEthernet: {12: 0x81, 13: 0, 16: 8, 17: 0},
		pcapng.LinkSLL: {14: 8, 15: 0}, pcapng.LinkSLL2: {0: 8, 19: 0},
	} {
		var file bytes.Buffer
		w, err := pcapng.NewWriter(&file, "test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.AddInterface(pcapng.Interface{Link: link}); err != nil {
			t.Fatal(err)
		}
		rd, err := pcapng.NewReader(bytes.NewReader(original))
		if err != nil {
			t.Fatal(err)
		}
		for f := (pcapng.Frame{}); rd.Next(&f) == nil; {
			if err := w.WritePacket(pcapng.PacketInfo{Time: f.Time}, header, f.Data[14:]); err != nil {
				t.Fatal(err)
			}
		}
		got, err := read(t, file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Flows(), got.Flows(), cmp.Comparer(func(a, b flow.Endpoint) bool {
			return a.Addr == b.Addr && *a.QPN == *b.QPN
		})); d != "" {
			t.Errorf("link type %d (-want +got)\n%s", link, d)
		}
	}
}

// TestBadFiles reads invalid and truncated files.
func TestBadFiles(t *testing.T) {
	file, err := os.ReadFile(captureDir + "rc_mixed.pcap")
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(t, file[:len(file)-3])
	if err != nil || a.Totals().Packets != 44 {
		t.Errorf("truncated file: %v, %d packets", err, a.Totals().Packets)
	}
	if _, err := read(t, []byte("no capture at all")); !errors.Is(err, pcapng.ErrFormat) {
		t.Errorf("no capture: %v", err)
	}
	file[20] = 147 // link type
	if a, err := read(t, file); err != nil || a.Totals().Others["link type 147"] != a.Totals().Other || a.Totals().Packets != 0 {
		t.Errorf("unknown link type: %v %+v", err, a.Totals())
	}
}

// TestReplay checks the reports at intervals of capture time, and the final one.
func TestReplay(t *testing.T) {
	file, err := os.ReadFile(captureDir + "rc_rnr.pcap")
	if err != nil {
		t.Fatal(err)
	}
	var at []time.Duration
	var first time.Time
	bytesSoFar, sum := uint64(0), 0.0
	show := func(r *watch.Report) error {
		f := r.Flows[0]
		if first.IsZero() {
			first = time.Unix(0, int64(f.Start))
			sum += float64(f.Bytes) * 8
		} else {
			sum += f.Rate * (r.Time.Sub(first) - at[len(at)-1]).Seconds()
		}
		at = append(at, r.Time.Sub(first))
		if f.Bytes < bytesSoFar {
			t.Errorf("%d bytes after %d", f.Bytes, bytesSoFar)
		}
		bytesSoFar = f.Bytes
		return nil
	}
	a := flow.New(flow.Options{})
	if err := watch.Replay(t.Context(), bytes.NewReader(file), &watch.Reporter{}, a, 20*time.Millisecond, show); err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	if d := cmp.Diff([]time.Duration{20 * ms, 40 * ms, 60 * ms, 78953 * time.Microsecond}, at); d != "" {
		t.Errorf("reports (-want +got)\n%s", d)
	}
	if math.Abs(sum-float64(bytesSoFar)*8) > 1e-3 {
		t.Errorf("the rates add up to %v bits, there were %d bytes", sum, bytesSoFar)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a, n := flow.New(flow.Options{}), 0
	count := func(*watch.Report) error { n++; return nil }
	if err := watch.Replay(ctx, bytes.NewReader(file), &watch.Reporter{}, a, 0, count); err != nil || a.Totals().Packets != 0 || n != 1 {
		t.Errorf("interrupted: %v, %+v, %d reports", err, a.Totals(), n)
	}
	full := errors.New("full")
	fail := func(*watch.Report) error { return full }
	if err := watch.Replay(t.Context(), bytes.NewReader(file), &watch.Reporter{}, a, ms, fail); !errors.Is(err, full) {
		t.Error(err)
	}
}

// TestSort checks every order of flows.
func TestSort(t *testing.T) {
	a := readCapture(t, "v6_rc")
	value := map[string]func(r watch.Row) float64{
		"rate":     func(r watch.Row) float64 { return r.Rate },
		"bytes":    func(r watch.Row) float64 { return float64(r.Bytes) },
		"messages": func(r watch.Row) float64 { return float64(r.Messages) },
		"packets":  func(r watch.Row) float64 { return float64(r.Requests.Packets + r.Responses.Packets) },
		"retx":     func(r watch.Row) float64 { return float64(r.Requests.Retransmitted) },
		"naks":     func(r watch.Row) float64 { return float64(r.Responses.NAKs.Total) },
		"rnr":      func(r watch.Row) float64 { return float64(r.Responses.RNRNaks) },
		"cnps":     func(r watch.Row) float64 { return float64(r.CNPs) },
		"rtt":      func(r watch.Row) float64 { return float64(r.RTT.Smoothed) },
		"age":      func(r watch.Row) float64 { return -float64(r.Serial) },
	}
	for name := range strings.SplitSeq(watch.Orders, ", ") {
		s := watch.Selection{Sort: name}
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		flows := report(a, s).Flows
		if len(flows) != 4 {
			t.Fatalf("%d flows", len(flows))
		}
		for i := range flows[1:] {
			if value[name](flows[i]) < value[name](flows[i+1]) {
				t.Errorf("by %s: %v before %v", name, value[name](flows[i]), value[name](flows[i+1]))
			}
		}
	}
	bad := watch.Selection{Sort: "beauty"}
	if err := bad.Validate(); err == nil {
		t.Error("sorted by beauty")
	}
}

// TestSelect selects the flows of a queue pair at either end.
func TestSelect(t *testing.T) {
	a := readCapture(t, "v6_rc")
	qpn := uint32(26)
	if flows := report(a, watch.Selection{QPN: &qpn}).Flows; len(flows) != 2 {
		t.Errorf("%d flows of a queue pair that is one end of two", len(flows))
	}
	qpn = 1000
	if flows := report(a, watch.Selection{QPN: &qpn}).Flows; flows == nil || len(flows) != 0 {
		t.Errorf("flows of a queue pair that is not there: %+v", flows)
	}
}

// TestReasons: the details of a queue pair name the reasons of its NACKs.
func TestReasons(t *testing.T) {
	f := flow.Flow{Responses: flow.Responses{Packets: 4, Reasons: []flow.Reason{{Name: "TRIMMED", Packets: 3}, {Name: "NO_BITMAP", Packets: 1}}}}
	var b strings.Builder
	watch.WriteDetails(&b, &watch.Report{Flows: []watch.Row{{Flow: f}}})
	if want := "    nacks: TRIMMED 3 NO_BITMAP 1\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, &b)
	}
}

// tap is an interface that repeats a capture, one piece each 100 ms, with an ARP frame each.
type tap struct {
	packets [][]byte
	next    time.Time
	passed  int
	lost    uint64
	err     error
}

func newTap(t *testing.T) *tap {
	t.Helper()
	file, err := os.Open(captureDir + "rc_write.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rd, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{next: time.Now()}
	for f := (pcapng.Frame{}); rd.Next(&f) == nil; {
		p.packets = append(p.packets, bytes.Clone(f.Data[14:]))
	}
	return p
}

func (p *tap) Read(deadline time.Time, f func(now mono.Time, ip []byte)) error {
	time.Sleep(time.Until(deadline))
	for ; !p.next.After(deadline) && p.passed < len(p.packets); p.next = p.next.Add(100 * time.Millisecond) {
		f(mono.Time(p.next.UnixNano()), p.packets[p.passed])
		p.passed++
	}
	return nil
}

func (p *tap) Lost() (uint64, error) { return p.lost, nil }
func (p *tap) Check() error          { return p.err }
func (p *tap) Others() (map[string]uint64, error) {
	return map[string]uint64{"ARP": uint64(p.passed)}, nil
}

// TestFollow follows an interface. Reports must come in time, with the rates of their interval. The last one, after
// an interrupt, must hold all packets.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTap(t)
		p.lost = 7
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start, before := time.Now(), uint64(0)
		var at []time.Duration
		err := watch.Follow(ctx, watch.Live(p), &watch.Reporter{}, flow.New(flow.Options{}), time.Second, 0, func(r *watch.Report) error {
			at = append(at, time.Since(start).Round(100*time.Millisecond))
			if len(r.Flows) != 1 || r.Lost != 7 || r.Totals.Others["ARP"] != uint64(p.passed) || r.Totals.Other != uint64(p.passed) {
				t.Fatalf("%+v", r)
			}
			if f := r.Flows[0]; len(at) == 2 {
				if want := float64(f.Bytes-before) * 8; f.Rate != want || f.Rate == 0 {
					t.Errorf("rate %v, want %v", f.Rate, want)
				}
			}
			before = r.Flows[0].Bytes
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 2500 * time.Millisecond}, at); d != "" {
			t.Errorf("reports (-want +got)\n%s", d)
		}
		if want := 26; p.passed != want {
			t.Errorf("%d packets, want %d", p.passed, want)
		}
	})
}

// TestFollowEnds checks the end after a number of reports, and after errors.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		count := func(*watch.Report) error { n++; return nil }
		p := newTap(t)
		follow := func(show func(*watch.Report) error) error {
			return watch.Follow(t.Context(), watch.Live(p), &watch.Reporter{}, flow.New(flow.Options{}), time.Second, 3, show)
		}
		if err := follow(count); err != nil || n != 3 {
			t.Errorf("%d reports, %v", n, err)
		}
		p.err = errors.New("is gone")
		if err := follow(count); err != p.err || n != 4 {
			t.Errorf("%d reports, %v", n, err)
		}
		full := errors.New("full")
		if err := follow(func(*watch.Report) error { return full }); err != full {
			t.Error(err)
		}
	})
}
