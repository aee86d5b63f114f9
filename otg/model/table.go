// Package model checks configurations and requests of Open Traffic Generator's model, and translates them into the
// engine's structures and back.
//
// One table, fields.txt, has all fields that roceotg accepts, with defaults and ranges. Check walks all fields that a
// message sets: a field that the table lacks is an error, so that nothing is ignored silently.
package model

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is one line of the table.
type field struct {
	name     string // message and field, as in "Rocev2Flow.message_size"
	required bool
	create   bool
	mapped   bool
	unused   bool
	def      string // default as text; empty without one
	low      float64
	high     float64  // low == high: no range
	only     []string // permitted values; empty: all
	reading  string
}

//go:embed fields.txt
var source string

var fields, table = parse(source)

// parse returns the lines of the table in order, and by name. It panics on errors, since the table is part of the program.
func parse(text string) (list []*field, byName map[string]*field) {
	byName = map[string]*field{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		head, reading, ok := strings.Cut(strings.TrimSpace(line), " : ")
		words := strings.Fields(head)
		if !ok || len(words) == 0 {
			panic(fmt.Sprintf("fields.txt: %q has no reading", line))
		}
		f := &field{name: words[0], reading: reading}
		for _, w := range words[1:] {
			f.attribute(w)
		}
		if byName[f.name] != nil {
			panic("fields.txt: " + f.name + " twice")
		}
		list, byName[f.name] = append(list, f), f
	}
	return list, byName
}

// attribute applies one attribute of a line.
func (f *field) attribute(word string) {
	low, high, isRange := strings.Cut(word, "..")
	switch {
	case word == "required":
		f.required = true
	case word == "create":
		f.create = true
	case word == "mapped":
		f.mapped = true
	case word == "unused":
		f.unused = true
	case strings.HasPrefix(word, "="):
		f.def = word[1:]
	case strings.HasPrefix(word, "{"):
		f.only = strings.Split(strings.Trim(word, "{}"), ",")
	case isRange:
		f.low, f.high = number(low), number(high)
	default:
		panic("fields.txt: " + f.name + ": unknown attribute " + word)
	}
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("fields.txt: " + err.Error())
	}
	return v
}

// permits reports whether the value of the field, as text, is one of the permitted ones.
func (f *field) permits(value string) bool { return len(f.only) == 0 || slices.Contains(f.only, value) }
