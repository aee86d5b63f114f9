package bottleneck

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Options describe a bottleneck. Lengths of its queue are in bytes as on the wire
// behind the Ethernet preamble: from the Ethernet header on, without FCS.
type Options struct {
	Rate     uint64  // bits a second
	Burst    uint64  // bytes that pass at once after a pause
	Kmin     uint64  // bytes in the queue from which on frames are marked
	Kmax     uint64  // bytes from which on all are
	Pmax     float64 // share that is marked just below Kmax
	Limit    uint64  // bytes that the queue holds at most
	RoCEOnly bool    // mark and drop nothing but RoCEv2; the rest shares the queue
	Seed     uint64  // of the generator behind RED
}

// Bounds of what options can say.
const (
	maxRate  = 100e9
	maxDelay = 4 * time.Second // of a full queue: lengths are kept in 32 bits of nanoseconds
)

// Usage lists the words that Parse knows.
const Usage = "rate=RATE [burst=SIZE] [kmin=SIZE] [kmax=SIZE] [pmax=SHARE] [limit=SIZE] [seed=N] [roce]"

// Parse reads words such as rate=1gbit kmin=40k kmax=200k pmax=0.1. What is not given
// follows from the rate: burst 32 KiB, kmin 100 us of the rate, kmax five times that,
// pmax 0.1, limit ten times kmax.
func Parse(words []string) (o Options, err error) {
	o = Options{Burst: 32 << 10, Pmax: 0.1}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "rate":
			o.Rate, err = scaled(value, map[string]uint64{"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "bit": 1})
		case "burst":
			o.Burst, err = size(value)
		case "kmin":
			o.Kmin, err = size(value)
		case "kmax":
			o.Kmax, err = size(value)
		case "limit":
			o.Limit, err = size(value)
		case "pmax":
			o.Pmax, err = strconv.ParseFloat(value, 64)
		case "seed":
			o.Seed, err = strconv.ParseUint(value, 0, 64)
		case "roce":
			o.RoCEOnly = true
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			return o, fmt.Errorf("bottleneck: %q: %w (%s)", w, err, Usage)
		}
	}
	if o.Kmin == 0 {
		o.Kmin = o.Rate / 8 / 10000
	}
	if o.Kmax == 0 {
		o.Kmax = 5 * o.Kmin
	}
	if o.Limit == 0 {
		o.Limit = 10 * o.Kmax
	}
	return o, o.validate()
}

func size(s string) (uint64, error) {
	return scaled(s, map[string]uint64{"k": 1 << 10, "m": 1 << 20, "": 1})
}

// scaled reads a number with one of the units behind it.
func scaled(s string, units map[string]uint64) (uint64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	unit, ok := units[s[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || !ok || n == 0 {
		return 0, errors.New("not a number with a unit that fits")
	}
	return n * unit, nil
}

// validate reports what is wrong with o.
func (o *Options) validate() error {
	switch {
	case o.Rate == 0 || o.Rate > maxRate:
		return fmt.Errorf("bottleneck: a rate up to 100gbit is wanted (%s)", Usage)
	case o.Kmin > o.Kmax || o.Kmax > o.Limit:
		return fmt.Errorf("bottleneck: kmin %d, kmax %d, limit %d: want them in ascending order", o.Kmin, o.Kmax, o.Limit)
	case !(o.Pmax >= 0 && o.Pmax <= 1):
		return fmt.Errorf("bottleneck: pmax %v is not a probability", o.Pmax)
	case o.nanoseconds(o.Limit) >= uint64(maxDelay) || o.nanoseconds(o.Burst) >= uint64(maxDelay):
		return fmt.Errorf("bottleneck: limit or burst takes more than %v to pass", maxDelay)
	}
	return nil
}

// nanoseconds is how long n bytes take.
func (o *Options) nanoseconds(n uint64) uint64 {
	return uint64(float64(n) * 8e9 / float64(o.Rate))
}

// compile makes the program's form.
func (o *Options) compile() bottleneckSettings {
	s := bottleneckSettings{
		Cost:  uint64(8e9 * (1 << 20) / float64(o.Rate)),
		Burst: o.nanoseconds(o.Burst), Kmin: o.nanoseconds(o.Kmin), Kmax: o.nanoseconds(o.Kmax), Limit: o.nanoseconds(o.Limit),
		Pmax: uint64(o.Pmax * (1 << 32)),
	}
	if o.RoCEOnly {
		s.RoceOnly = 1
	}
	return s
}
