package bottleneck

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/base/suggest"
)

// Options describe a bottleneck. Queue lengths are in bytes of frames, including the Ethernet header but not the FCS.
type Options struct {
	Rate     uint64  // bits a second
	Burst    uint64  // bytes that pass without delay after a pause
	Kmin     uint64  // queue length in bytes from which frames are marked with a probability
	Kmax     uint64  // queue length in bytes from which all frames are marked
	Pmax     float64 // marking probability just below Kmax
	Limit    uint64  // maximum queue length in bytes
	RoCEOnly bool    // mark and drop RoCEv2 only; other frames share the queue
	Seed     uint64  // of the random numbers of RED
}

// Bounds of options.
const (
	maxRate  = 100e9
	maxDelay = 4 * time.Second // delay of a full queue, which the program keeps in 32 bits of nanoseconds
)

// Usage lists the words that Parse accepts.
const Usage = "rate=RATE [burst=SIZE] [kmin=SIZE] [kmax=SIZE] [pmax=SHARE] [limit=SIZE] [seed=N] [roce]"

// Parse reads words such as rate=1gbit kmin=40k kmax=200k pmax=0.1. Defaults: burst 32 KiB, kmin the bytes of 100 us at
// the rate, kmax five times kmin, pmax 0.1, limit ten times kmax.
func Parse(words []string) (o Options, err error) {
	o = Options{Burst: 32 << 10, Pmax: 0.1}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "rate":
			o.Rate, err = amount(quantity.ParseRate(value))
		case "burst":
			o.Burst, err = amount(quantity.ParseBytes(value))
		case "kmin":
			o.Kmin, err = amount(quantity.ParseBytes(value))
		case "kmax":
			o.Kmax, err = amount(quantity.ParseBytes(value))
		case "limit":
			o.Limit, err = amount(quantity.ParseBytes(value))
		case "pmax":
			o.Pmax, err = strconv.ParseFloat(value, 64)
		case "seed":
			o.Seed, err = strconv.ParseUint(value, 0, 64)
		case "roce":
			o.RoCEOnly = true
		default:
			err = fmt.Errorf("unknown word%s", suggest.Hint(key, []string{"rate", "burst", "kmin", "kmax", "pmax", "limit", "seed", "roce"}))
		}
		if err != nil {
			return o, fmt.Errorf("bottleneck: %q: %w (%s)", w, err, Usage)
		}
	}
	o.Kmin = cmp.Or(o.Kmin, o.Rate/8/10000)
	o.Kmax = cmp.Or(o.Kmax, 5*o.Kmin)
	o.Limit = cmp.Or(o.Limit, 10*o.Kmax)
	return o, o.validate()
}

// amount returns a parsed size or rate, which must not be zero.
func amount(n int64, err error) (uint64, error) {
	if err == nil && n == 0 {
		err = errors.New("must not be zero")
	}
	return uint64(n), err
}

// validate returns the first error of o.
func (o *Options) validate() error {
	switch {
	case o.Rate == 0 || o.Rate > maxRate:
		return fmt.Errorf("bottleneck: needs a rate of at most 100gbit (%s)", Usage)
	case o.Kmin > o.Kmax || o.Kmax > o.Limit:
		return fmt.Errorf("bottleneck: kmin %d, kmax %d, limit %d: must be in ascending order", o.Kmin, o.Kmax, o.Limit)
	case !(o.Pmax >= 0 && o.Pmax <= 1):
		return fmt.Errorf("bottleneck: pmax %v is not a probability", o.Pmax)
	case o.nanoseconds(o.Limit) >= uint64(maxDelay) || o.nanoseconds(o.Burst) >= uint64(maxDelay):
		return fmt.Errorf("bottleneck: limit and burst must each take at most %v at this rate", maxDelay)
	}
	return nil
}

// nanoseconds returns the transmission time of n bytes.
func (o *Options) nanoseconds(n uint64) uint64 {
	return uint64(float64(n) * 8e9 / float64(o.Rate))
}

// compile converts the options to the settings of the program.
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
