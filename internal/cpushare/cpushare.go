// Package cpushare says how much of a program's CPU time went to which of its parts, by a profile that
// runtime/pprof has written. A sample counts for the innermost of its functions that belongs to a
// part: what a part has the runtime do, copying say, is the part's.
package cpushare

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Part is a part of a program.
type Part struct {
	Name     string
	Packages []string // import paths
}

// Share is how much time went to a part.
type Share struct {
	Name string        `json:"part"`
	Time time.Duration `json:"cpu_ns"`
}

// ErrProfile says that a profile cannot be read.
var ErrProfile = errors.New("not a CPU profile")

// Read reads a profile. Shares are in the order of parts; the last one, named rest, is of no part.
func Read(profile []byte, parts []Part, rest string) ([]Share, error) {
	z, err := gzip.NewReader(bytes.NewReader(profile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	p := parsed{locations: map[uint64][]uint64{}, functions: map[uint64]uint64{}}
	if err := fields(raw, p.top); err != nil {
		return nil, err
	}
	shares := make([]Share, len(parts)+1)
	of := map[string]int{}
	for i, part := range parts {
		shares[i].Name = part.Name
		for _, name := range part.Packages {
			of[name] = i
		}
	}
	shares[len(parts)].Name = rest
	for _, s := range p.samples {
		if len(s.values) < 2 { // how often, and nanoseconds
			return nil, fmt.Errorf("%w: a sample has %d values", ErrProfile, len(s.values))
		}
		shares[p.part(s.stack, of, len(parts))].Time += time.Duration(s.values[1])
	}
	return shares, nil
}

// parsed is what is needed of a profile (github.com/google/pprof/proto/profile.proto, whose names these
// are).
type parsed struct {
	samples   []sample
	locations map[uint64][]uint64 // functions, those inlined first
	functions map[uint64]uint64   // their names
	strings   []string
}

type sample struct{ stack, values []uint64 }

// part returns which part has a stack, or otherwise.
func (p *parsed) part(stack []uint64, of map[string]int, otherwise int) int {
	for _, l := range stack {
		for _, f := range p.locations[l] {
			if name := p.functions[f]; name < uint64(len(p.strings)) {
				if i, ok := of[packageOf(p.strings[name])]; ok {
					return i
				}
			}
		}
	}
	return otherwise
}

// packageOf returns the import path in the name of a function, such as a/b.(*T[c/d.U]).F.
func packageOf(function string) string {
	if i := strings.IndexAny(function, "[("); i >= 0 {
		function = function[:i]
	}
	slash := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[slash:], ".")
	return function[:slash] + name
}

// Numbers of fields.
const (
	profileSample, profileLocation, profileFunction, profileStrings = 2, 4, 5, 6
	sampleLocation, sampleValue                                     = 1, 2
	locationID, locationLine, lineFunction                          = 1, 4, 1
	functionID, functionName                                        = 1, 2
)

// top takes a field of a profile.
func (p *parsed) top(field int, _ uint64, b []byte) error {
	switch field {
	case profileSample:
		var s sample
		err := fields(b, func(field int, v uint64, b []byte) error {
			switch field {
			case sampleLocation:
				s.stack = numbers(s.stack, v, b)
			case sampleValue:
				s.values = numbers(s.values, v, b)
			}
			return nil
		})
		p.samples = append(p.samples, s)
		return err
	case profileLocation:
		return p.location(b)
	case profileFunction:
		var id, name uint64
		err := fields(b, func(field int, v uint64, _ []byte) error {
			switch field {
			case functionID:
				id = v
			case functionName:
				name = v
			}
			return nil
		})
		p.functions[id] = name
		return err
	case profileStrings:
		p.strings = append(p.strings, string(b))
	}
	return nil
}

func (p *parsed) location(b []byte) error {
	var id uint64
	var functions []uint64
	err := fields(b, func(field int, v uint64, b []byte) error {
		switch field {
		case locationID:
			id = v
		case locationLine:
			return fields(b, func(field int, v uint64, _ []byte) error {
				if field == lineFunction {
					functions = append(functions, v)
				}
				return nil
			})
		}
		return nil
	})
	p.locations[id] = functions
	return err
}

// fields calls f for each field of a message of protocol buffers: with its number, and its value or its
// bytes.
func fields(b []byte, f func(field int, v uint64, b []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("%w: cut off", ErrProfile)
		}
		v, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return fmt.Errorf("%w: cut off", ErrProfile)
		}
		b = b[n+m:]
		var body []byte
		switch tag & 7 {
		case 0:
		case 2:
			if v > uint64(len(b)) {
				return fmt.Errorf("%w: cut off", ErrProfile)
			}
			body, b = b[:v], b[v:]
		default:
			return fmt.Errorf("%w: a field of type %d", ErrProfile, tag&7)
		}
		if err := f(int(tag>>3), v, body); err != nil {
			return err
		}
	}
	return nil
}

// numbers appends a repeated number: one of them, or several packed.
func numbers(to []uint64, v uint64, packed []byte) []uint64 {
	if packed == nil {
		return append(to, v)
	}
	for len(packed) > 0 {
		v, n := binary.Uvarint(packed)
		if n <= 0 {
			return to
		}
		to, packed = append(to, v), packed[n:]
	}
	return to
}
