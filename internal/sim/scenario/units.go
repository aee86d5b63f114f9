package scenario

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/sim/engine"
)

// Rate is in bits per second, for example 100Gbps.
type Rate uint64

// Span is a time, for example 1.5us.
type Span engine.Time

// Size is in bytes, for example 64KiB, 1MB or a plain number.
type Size int64

var rateUnits = map[string]float64{"bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12}
var sizeUnits = map[string]float64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// quantity parses a number with one of units.
func quantity(n *yaml.Node, what, example string, units map[string]float64) (float64, error) {
	text := strings.TrimSpace(n.Value)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	v, err := strconv.ParseFloat(text[:end], 64)
	unit, known := units[strings.TrimSpace(text[end:])]
	if n.Kind != yaml.ScalarNode || err != nil || !known || v < 0 || v*unit > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q: expected a %s such as %s", n.Value, what, example)
	}
	return v * unit, nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (r *Rate) UnmarshalYAML(n *yaml.Node) error {
	v, err := quantity(n, "rate", "100Gbps", rateUnits)
	*r = Rate(v)
	return err
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := quantity(n, "size", "64KiB", sizeUnits)
	*s = Size(v)
	return err
}

var spanUnits = map[string]float64{"ps": 1, "ns": 1e3, "us": 1e6, "ms": 1e9, "s": 1e12}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	v, err := quantity(n, "time", "1.5us", spanUnits)
	*s = Span(v)
	return err
}

func (s Span) time() engine.Time       { return engine.Time(s) }
func (s Span) duration() time.Duration { return engine.Time(s).Duration() }
