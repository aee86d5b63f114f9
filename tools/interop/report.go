package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"roced.io/roced/verbs"
)

// kind is what cases of the matrix have in common that are counted together.
type kind struct {
	Type      verbs.QPType
	Op        verbs.Opcode
	Link      int
	WeRespond bool
}

// String names a kind in messages.
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
	Lost         int // attempts without reliable service that lost their message, and were repeated
	Bytes        int64
	Time         time.Duration
}

// table is one of the document's.
type table struct {
	Title, Intro string
	Head         []string
	Rows         [][]string
}

// report collects what the command has found.
type report struct {
	log      io.Writer
	command  string   // that has made it
	versions []string // of what was tested against
	seed     uint64
	tallies  []*tally
	tables   []table
	failures []string
}

// of finds or makes the tally of a kind.
func (r *report) of(k kind) *tally {
	if i := slices.IndexFunc(r.tallies, func(t *tally) bool { return t.kind == k }); i >= 0 {
		return r.tallies[i]
	}
	r.tallies = append(r.tallies, &tally{kind: k})
	return r.tallies[len(r.tallies)-1]
}

// failed notes a failure.
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
