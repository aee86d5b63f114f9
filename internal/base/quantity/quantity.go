// Package quantity reads sizes, rates and times of command lines and files. A quantity is a decimal number, not negative,
// and a unit:
//
//	size  bytes: none or B; powers of 1024: K M G T, k m g t, KiB MiB GiB TiB; powers of 1000: KB MB GB TB
//	rate  bits per second: bps kbps Kbps Mbps Gbps Tbps, b/s kb/s ..., bit kbit Kbit mbit Mbit gbit Gbit tbit Tbit
//	time  ps ns us ms s, or a duration of Go such as 1m30s
package quantity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Max is the greatest value of any quantity.
const Max = 1 << 62

// Bytes is a size in bytes, in YAML such as 64KiB.
type Bytes int64

// Rate is in bits per second, in YAML such as 100Gbps.
type Rate uint64

// UnmarshalYAML reads a size.
func (b *Bytes) UnmarshalYAML(decode func(any) error) error { return Decode(b, decode, ParseBytes) }

// UnmarshalYAML reads a rate.
func (r *Rate) UnmarshalYAML(decode func(any) error) error { return Decode(r, decode, ParseRate) }

// Decode implements UnmarshalYAML for a type with its parser.
func Decode[T ~int64 | ~uint64](to *T, decode func(any) error, parse func(string) (int64, error)) error {
	var text string
	if err := decode(&text); err != nil {
		text = "" // not a scalar
	}
	v, err := parse(text)
	*to = T(v)
	return err
}

var (
	bytes = map[string]int64{"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
	rates = map[string]int64{"bps": 1, "kbps": 1e3, "Kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12,
		"b/s": 1, "kb/s": 1e3, "Kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12,
		"bit": 1, "kbit": 1e3, "Kbit": 1e3, "mbit": 1e6, "Mbit": 1e6, "gbit": 1e9, "Gbit": 1e9, "tbit": 1e12, "Tbit": 1e12}
	times = map[string]int64{"ps": 1, "ns": 1e3, "us": 1e6, "ms": 1e9, "s": 1e12}
)

// ParseBytes reads a size in bytes.
func ParseBytes(s string) (int64, error) {
	n, ok := parse(s, bytes)
	if !ok {
		return 0, fmt.Errorf("%.40q: expected a size such as 64KiB, 512M or 1MB", s)
	}
	return n, nil
}

// ParseRate reads a rate in bits per second.
func ParseRate(s string) (int64, error) {
	n, ok := parse(s, rates)
	if !ok {
		return 0, fmt.Errorf("%.40q: expected a rate such as 100Gbps or 10gbit", s)
	}
	return n, nil
}

// ParseTime reads a time in picoseconds.
func ParseTime(s string) (int64, error) {
	if n, ok := parse(s, times); ok {
		return n, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > Max/1000 {
		return 0, fmt.Errorf("%.40q: expected a time such as 1.5us", s)
	}
	return int64(d) * 1000, nil
}

// parse reads a number and one of the units, rounded to a whole number of the smallest unit.
func parse(s string, units map[string]int64) (n int64, ok bool) {
	s = strings.TrimSpace(s)
	end := strings.LastIndexAny(s, "0123456789.") + 1
	number := s[:end]
	unit, ok := units[strings.TrimSpace(s[end:])]
	if !ok || strings.Trim(number, "0123456789.eE+-") != "" || strings.HasPrefix(number, "-") {
		return 0, false
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return n * unit, n <= Max/unit
	}
	v, err := strconv.ParseFloat(number, 64)
	if v *= float64(unit); err != nil || !(v <= Max) {
		return 0, false
	}
	return int64(math.Round(v)), true
}
