package workload

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// CDF is a distribution of sizes, linear between its points.
type CDF struct {
	bytes []float64
	share []float64 // 0 to 1, never falling
}

// Fixed returns the distribution of a constant size.
func Fixed(bytes float64) *CDF { return &CDF{[]float64{bytes}, []float64{1}} }

// ReadCDF reads lines "bytes percent".
func ReadCDF(text string) (*CDF, error) {
	c := new(CDF)
	line := 0
	for s := range strings.Lines(text) {
		s = strings.TrimSpace(s)
		if line++; s == "" || s[0] == '#' {
			continue
		}
		var bytes, percent float64
		if n, err := fmt.Sscan(s, &bytes, &percent); n != 2 || err != nil {
			return nil, fmt.Errorf("line %d: %q is not \"bytes percent\"", line, s)
		}
		k := len(c.bytes)
		if bytes < 0 || bytes > MaxMessage || percent < 0 || percent > 100 || k > 0 && (bytes < c.bytes[k-1] || percent/100 < c.share[k-1]) {
			return nil, fmt.Errorf("line %d: %q is out of range, or less than the line before", line, s)
		}
		c.bytes, c.share = append(c.bytes, bytes), append(c.share, percent/100)
	}
	if n := len(c.share); n == 0 || c.share[n-1] != 1 {
		return nil, fmt.Errorf("the last line is not 100 percent")
	}
	return c, nil
}

// Mean is the mean size in bytes.
func (c *CDF) Mean() float64 {
	sum := c.bytes[0] * c.share[0]
	for i := 1; i < len(c.bytes); i++ {
		sum += float64((c.bytes[i] + c.bytes[i-1]) / 2 * (c.share[i] - c.share[i-1]))
	}
	return sum
}

// Draw returns a random size, at least one byte.
func (c *CDF) Draw(rng *rand.Rand) uint32 {
	u := float64(rng.Float64())
	i := 0
	for i < len(c.share)-1 && c.share[i] < u {
		i++
	}
	v := c.bytes[i]
	if i > 0 && c.share[i] > c.share[i-1] {
		v = c.bytes[i-1] + float64((v-c.bytes[i-1])*((u-c.share[i-1])/(c.share[i]-c.share[i-1])))
	}
	return uint32(max(v, 1))
}
