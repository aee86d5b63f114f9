// Package cpushare attributes the CPU time of a runtime/pprof profile to the parts of a program. A sample
// counts for the innermost function on its stack that belongs to a part. The part therefore includes the
// runtime functions that it calls, such as memory copies.
package cpushare

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Part is a part of a program.
type Part struct {
	Name     string
	Packages []string // import paths
}

// Share is the CPU time of a part.
type Share struct {
	Name string        `json:"part"`
	Time time.Duration `json:"cpu_ns"`
}

// ErrProfile reports data that is not a CPU profile.
var ErrProfile = errors.New("not a CPU profile")

// Read reads a profile. It returns a share for each part, in their order, and then one named rest for the
// samples outside all parts.
func Read(data []byte, parts []Part, rest string) ([]Share, error) {
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	if len(p.SampleType) < 2 { // a CPU profile has the number of samples, then nanoseconds
		return nil, fmt.Errorf("%w: a sample has %d values", ErrProfile, len(p.SampleType))
	}
	shares := make([]Share, len(parts)+1)
	index := map[string]int{}
	for i, part := range parts {
		shares[i].Name = part.Name
		for _, name := range part.Packages {
			index[name] = i
		}
	}
	shares[len(parts)].Name = rest
	for _, s := range p.Sample {
		shares[find(s, index, len(parts))].Time += time.Duration(s.Value[1])
	}
	return shares, nil
}

// find returns the index of the part that a sample counts for, or otherwise.
func find(s *profile.Sample, index map[string]int, otherwise int) int {
	for _, l := range s.Location {
		for _, line := range l.Line { // inlined functions come first
			if line.Function == nil {
				continue
			}
			if i, ok := index[packageOf(line.Function.Name)]; ok {
				return i
			}
		}
	}
	return otherwise
}

// packageOf returns the import path in a function name such as a/b.(*T[c/d.U]).F.
func packageOf(function string) string {
	if i := strings.IndexAny(function, "[("); i >= 0 {
		function = function[:i]
	}
	slash := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[slash:], ".")
	return function[:slash] + name
}
