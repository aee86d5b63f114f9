package quantity

import (
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// refused is the expected value of text that is no quantity.
const refused = -1

func TestParse(t *testing.T) {
	for _, c := range []struct {
		parse func(string) (int64, error)
		of    map[string]int64
	}{
		{ParseBytes, map[string]int64{
			"0": 0, "1500": 1500, "64B": 64, "64k": 64 << 10, "64K": 64 << 10, "64KiB": 64 << 10, "64KB": 64000, "64 KiB": 64 << 10,
			"512M": 512 << 20, "16g": 16 << 30, "2T": 2 << 40, "1.5k": 1536, ".5K": 512, "1e6": 1e6, "1e3KB": 1e6, "0.6": 1,
			"4611686018427387904": Max, "4194304T": Max,
			"": refused, "k": refused, "-1": refused, "-0.1": refused, "1kk": refused, "1x": refused, "k1": refused, "0x10": refused,
			"0x1p4": refused, "1_000": refused, "1 0": refused, "4611686018427387905": refused, "4194305T": refused, "1e300G": refused,
			"1e999": refused, "NaN": refused, "Inf": refused, "infinityB": refused, "nan": refused, "1Mbps": refused, "1..5": refused,
		}},
		{ParseRate, map[string]int64{
			"100Gbps": 100e9, "10gbit": 10e9, "1.5Mb/s": 1.5e6, "7kbps": 7000, "7Kbps": 7000, "1bit": 1, "0.1Tbps": 1e11, "1e3bps": 1000,
			"100": refused, "1mbps": refused, "1M": refused, "Gbps": refused, "-1Gbps": refused, "infGbps": refused, "9e9Tbps": refused,
		}},
		{ParseTime, map[string]int64{
			"1ps": 1, "1.5us": 1.5e6, "0.001ms": 1e6, "1s": 1e12, "1000ns": 1e6, "1m30s": 90e12, "2µs": 2e6, "4.35us": 4350000, "0": 0,
			"5": refused, "-1s": refused, "1h-5m": refused, "1280h": 4608e15, "1282h": refused, "NaNs": refused, "1 m": refused,
		}},
	} {
		for text, want := range c.of {
			got, err := c.parse(text)
			if err != nil {
				got = refused
			}
			if got != want {
				t.Errorf("%q: got %d (%v), want %d", text, got, err, want)
			}
		}
	}
}

// TestErrors: an error quotes the start of the text and has an example.
func TestErrors(t *testing.T) {
	_, err := ParseBytes("lots" + strings.Repeat("!", 1000))
	if s := err.Error(); !strings.HasPrefix(s, `"lots!!!`) || len(s) > 120 || !strings.Contains(s, "such as 64KiB") {
		t.Errorf("error %q", s)
	}
}

func TestYAML(t *testing.T) {
	var v struct {
		Size Bytes
		Rate Rate
	}
	if err := yaml.Unmarshal([]byte("{size: 9MiB, rate: 100Gbps}"), &v); err != nil || v.Size != 9<<20 || v.Rate != 100e9 {
		t.Errorf("%+v, %v", v, err)
	}
	for _, text := range []string{"size: [1]", "size: {a: 1}", "size: .nan", "rate: .inf", "rate: 100"} {
		if err := yaml.Unmarshal([]byte(text), &v); err == nil || !strings.Contains(err.Error(), "expected a") {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

// FuzzParse: values are within their limits, and whole bytes read as themselves with and without a unit.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"64KiB", "1.5us", "100Gbps", "1e6", "NaN", "9223372036854775807T", "1h2m", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (int64, error){ParseBytes, ParseRate, ParseTime} {
			n, err := parse(s)
			if n < 0 || n > Max || err != nil && n != 0 {
				t.Fatalf("%q: %d, %v", s, n, err)
			}
		}
		if n, err := ParseBytes(s); err == nil {
			whole := strconv.FormatInt(n, 10)
			for _, again := range []string{whole, whole + "B", " " + whole + " B "} {
				if m, err := ParseBytes(again); err != nil || m != n {
					t.Fatalf("%q is %d, but %q is %d (%v)", s, n, again, m, err)
				}
			}
		}
	})
}
