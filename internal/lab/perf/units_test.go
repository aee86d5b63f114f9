package perf

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int{
		"1": 1, "64": 64, "64k": 64 << 10, "64K": 64 << 10, "1m": 1 << 20, "3M": 3 << 20, "1g": 1 << 30, "1048576k": 1 << 30,
		"1073741824": 1 << 30,
		"":           0, "0": 0, "0k": 0, "-1": 0, "k": 0, "1kk": 0, "1x": 0, "1.5k": 1536, "k1": 0, "1 k": 1024, "2g": 0, "1025m": 0,
		"1073741825": 0, "99999999999999999999": 0, "9223372036854775807g": 0, "0x10": 0,
	} {
		got, err := parseSize(s)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), s) {
			t.Errorf("parseSize(%q): error %v", s, err)
		}
	}
}

// TestSizeLimits checks that every accepted size is within its limits.
func TestSizeLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9]{1,20}[kKmMgG]?`).Draw(t, "size")
		if n, err := parseSize(s); err == nil && (n < 1 || n > maxSize) {
			t.Fatalf("parseSize(%q) = %d", s, n)
		}
	})
}

func good() Params {
	return Params{Test: "write-bw", Connection: "rc", Size: 64, QPs: 1, Duration: time.Second, TxDepth: 16, RxDepth: 16,
		CQMod: 4, Timeout: 14, RetryCnt: 7}
}

func TestValidate(t *testing.T) {
	p := good()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for word, spoil := range map[string]func(p *Params){
		"no test":            func(p *Params) { p.Test = "frob" },
		"--connection":       func(p *Params) { p.Connection = "xrc" },
		"UD only has SEND":   func(p *Params) { p.Connection = "ud" },
		"UC has no read":     func(p *Params) { p.Connection, p.Test = "uc", "read-bw" },
		"UC has no atomic":   func(p *Params) { p.Connection, p.Test = "uc", "atomic-lat" },
		"--size":             func(p *Params) { p.Size = 0 },
		"--size 1073741825":  func(p *Params) { p.Size = maxSize + 1 },
		"--qps":              func(p *Params) { p.QPs = maxQPs + 1 },
		"--tx-depth":         func(p *Params) { p.TxDepth = 0 },
		"--rx-depth":         func(p *Params) { p.RxDepth = maxDepth + 1 },
		"--cq-mod":           func(p *Params) { p.CQMod = 17 },
		"--inline":           func(p *Params) { p.Inline = -1 },
		"--timeout":          func(p *Params) { p.Timeout = 32 },
		"--retry-cnt":        func(p *Params) { p.RetryCnt = 8 },
		"--mtu":              func(p *Params) { p.MTU = 1500 },
		"neither --duration": func(p *Params) { p.Duration = 0 },
		"--bidirectional":    func(p *Params) { p.Test, p.Both = "send-lat", true },
		"one direction":      func(p *Params) { p.Both, p.Verify = true, true },
		"one queue pair":     func(p *Params) { p.Test, p.QPs = "send-lat", 2 },
	} {
		p := good()
		spoil(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want an error with %q, got %v", word, err)
		}
	}
	p.Size, p.QPs = 0, 0
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "--size") || !strings.Contains(err.Error(), "--qps") {
		t.Errorf("not every fault is reported: %v", err)
	}
}

// TestValidateHostile validates parameters from a malicious client. Products of accepted parameters must not
// overflow.
func TestValidateHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Test:       rapid.SampledFrom(append(Tests, "", "x", "-bw")).Draw(t, "test"),
			Connection: rapid.SampledFrom([]string{"rc", "uc", "ud", ""}).Draw(t, "connection"),
			Size:       rapid.Int().Draw(t, "size"), QPs: rapid.IntRange(-1, 1<<20).Draw(t, "qps"),
			TxDepth: rapid.Int().Draw(t, "tx"), RxDepth: rapid.Int().Draw(t, "rx"), CQMod: rapid.Int().Draw(t, "mod"),
			Iters: rapid.Int().Draw(t, "iters"),
		}
		if p.Validate() == nil && (p.Size < 1 || p.Size > maxSize || p.QPs > maxQPs || p.CQMod > p.TxDepth || p.Iters < 1) {
			t.Fatalf("%+v is accepted", p)
		}
	})
}

// TestPattern checks that differs accepts fill's output, finds every changed byte, and rejects other rounds, queue
// pairs and slots.
func TestPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.IntRange(0, 5000)
		n := rapid.IntRange(1, 200).Draw(t, "bytes")
		round, lane, slot := id.Draw(t, "round"), id.Draw(t, "lane"), id.Draw(t, "slot")
		b := make([]byte, n)
		fill(b, round, lane, slot)
		if at := differs(b, round, lane, slot); at >= 0 {
			t.Fatalf("byte %d differs at once", at)
		}
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if got := differs(b, round, lane, slot); got != at {
			t.Fatalf("byte %d was changed, differs says %d", at, got)
		}
		b[at] = 0
		fill(b, round, lane, slot)
		if n >= 8 {
			for _, other := range [][3]int{{round + 1, lane, slot}, {round, lane + 1, slot}, {round, lane, slot + 1}} {
				if differs(b, other[0], other[1], other[2]) < 0 {
					t.Fatalf("round, queue pair and slot %v have the same pattern", other)
				}
			}
		}
	})
}

func TestPrint(t *testing.T) {
	bw := Result{Test: "send-bw", Connection: "uc", Size: 4096, QPs: 1, MTU: 4096, Messages: 1000, Received: 990, Seconds: 2,
		MessagesPerSecond: 500, Gbps: 0.016384, Verified: true, CPUPercent: 12.3}
	lat := Result{Test: "send-lat", Connection: "rc", Size: 8, Messages: 5,
		Latency: &Latency{Min: 1, Mean: 2.5, P50: 2, P99: 9.125, P999: 10, Max: 1234.5}}
	for _, c := range []struct {
		r     Result
		first bool
		want  string
	}{
		{bw, true, "" +
			"     bytes   messages       Gb/s   messages/s   CPU %\n" +
			"      4096       1000       0.02          500      12  verified  received 990\n"},
		{bw, false, "      4096       1000       0.02          500      12  verified  received 990\n"},
		{lat, true, "" +
			"     bytes   messages    min us   mean us      50 %      99 %    99.9 %    max us\n" +
			"         8          5      1.00      2.50      2.00      9.12     10.00   1234.50\n"},
	} {
		var b strings.Builder
		if err := c.r.Print(&b, false, c.first); err != nil || b.String() != c.want {
			t.Errorf("printed (%v)\n%swant\n%s", err, &b, c.want)
		}
	}
}

func TestPrintJSON(t *testing.T) {
	r := Result{Test: "send-lat", Connection: "rc", Size: 8, Messages: 5, Latency: &Latency{P50: 2}}
	var b strings.Builder
	if err := r.Print(&b, true, true); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Fatalf("%v: %q", err, &b)
	}
	var back Result
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if back.Latency == nil || *back.Latency != *r.Latency || back.Test != r.Test || back.Messages != r.Messages {
		t.Errorf("came back as %+v", back)
	}
}

func TestSummary(t *testing.T) {
	h := newHistogram()
	for i := 1; i <= 1000; i++ {
		record(h, time.Duration(i)*time.Microsecond, false)
	}
	l := summary(h)
	near := func(got, want float64) bool { return got > want*0.99 && got < want*1.01 }
	if !near(l.Min, 1) || !near(l.P50, 500) || !near(l.P99, 990) || !near(l.P999, 999) || !near(l.Max, 1000) || !near(l.Mean, 500.5) {
		t.Errorf("summary of 1 to 1000 us: %+v", l)
	}
	half := newHistogram()
	record(half, 10*time.Microsecond, true)
	if l := summary(half); !near(l.P50, 5) {
		t.Errorf("half of 10 us: %+v", l)
	}
}
