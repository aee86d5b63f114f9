package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"roced.io/roced/verbs"
)

// kind is the key of a tally: the common properties of cases that are counted together.
type kind struct {
	Type      verbs.QPType
	Op        verbs.Opcode
	Link      int
	WeRespond bool
}

// String returns the kind's name for messages.
func (k kind) String() string {
	return fmt.Sprintf("%v %s, %s, %s", k.Type, opNames[k.Op], role(k.WeRespond), linkNames[k.Link])
}

func role(weRespond bool) string {
	if weRespond {
		return "we respond"
	}
	return "we request"
}

// tally counts the cases of a kind.
type tally struct {
	kind
	Cases, Wrong int
	Lost         int // attempts without reliable service that lost their message and were repeated
	Bytes        int64
	Time         time.Duration
}

// table is a table of the document.
type table struct {
	Title, Intro string
	Head         []string
	Rows         [][]string
}

// report collects the results of the command.
type report struct {
	log      io.Writer
	command  string   // that wrote the report
	versions []string // of the peer's software
	seed     uint64
	tallies  []*tally
	tables   []table
	failures []string
}

// of returns the tally of a kind, and creates it if necessary.
func (r *report) of(k kind) *tally {
	if i := slices.IndexFunc(r.tallies, func(t *tally) bool { return t.kind == k }); i >= 0 {
		return r.tallies[i]
	}
	r.tallies = append(r.tallies, &tally{kind: k})
	return r.tallies[len(r.tallies)-1]
}

// failed records a failure.
func (r *report) failed(what string, err error) {
	text := what + ": " + err.Error()
	r.failures = append(r.failures, text)
	fmt.Fprintln(r.log, "FAIL", text)
}

// row adds a row to the last table, and prints it.
func (r *report) row(cells ...string) {
	t := &r.tables[len(r.tables)-1]
	t.Rows = append(t.Rows, cells)
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(r.log, " | ")
		}
		fmt.Fprint(r.log, c)
	}
	fmt.Fprintln(r.log)
}

// begin starts a table.
func (r *report) begin(t table) {
	r.tables = append(r.tables, t)
	fmt.Fprintln(r.log, "##", t.Title)
}
