package ccalgo

import (
	"fmt"
	"slices"
)

// check reports the first parameter that algorithm does not have or that is
// negative or not a number.
func (p Params) check(algorithm string, known ...string) error {
	for name, v := range p {
		if !slices.Contains(known, name) {
			return fmt.Errorf("ccalgo: %s has no parameter %q", algorithm, name)
		}
		if !(v >= 0) {
			return fmt.Errorf("ccalgo: %s: %s is %v", algorithm, name, v)
		}
	}
	return nil
}

// limit returns a parameter that bounds something; absent, zero and anything
// too large for 64 bits mean Unlimited.
func (p Params) limit(name string) uint64 {
	v := p[name]
	if v < 1 || v >= 1<<63 {
		return Unlimited
	}
	return uint64(v)
}
