package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"roced/verbs"
)

// tally counts the cases of one row of a table.
type tally struct {
	Name         string
	Cases, Wrong int
	Bytes        int64
	Time         time.Duration
}

// report collects what the command has found.
type report struct {
	log      io.Writer
	rows     []*tally
	failures []string
	tables   []table
}

// table is one of the document's.
type table struct {
	Title, Intro string
	Head         []string
	Rows         [][]string
}

// row finds or makes a row.
func (r *report) row(name string) *tally {
	if i := slices.IndexFunc(r.rows, func(t *tally) bool { return t.Name == name }); i >= 0 {
		return r.rows[i]
	}
	r.rows = append(r.rows, &tally{Name: name})
	return r.rows[len(r.rows)-1]
}

// failed notes a failure.
func (r *report) failed(what string, err error) {
	text := what + ": " + err.Error()
	r.failures = append(r.failures, text)
	fmt.Fprintln(r.log, "FAIL", text)
}

// matrix is which cases to run.
type matrix struct {
	links []int
	mtus  []verbs.MTU
	large bool // 8 MiB in every combination, not only in IPv4 at path MTU 1024
	seed  uint64
}

// operations of each transport service.
var operations = map[verbs.QPType][]verbs.Opcode{
	verbs.RC: {verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpFetchAdd,
		verbs.OpCmpSwap, verbs.OpSendWithInv},
	verbs.UC: {verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm},
	verbs.UD: {verbs.OpSend, verbs.OpSendImm},
}

// sizes of messages of an operation.
func (m matrix) sizes(op verbs.Opcode, s settings) []int {
	if isAtomic(op) {
		return []int{8}
	}
	mtu := bytesOf(s.MTU)
	list := []int{0, 1, 3, mtu - 1, mtu}
	if s.Type == verbs.UD {
		return list
	}
	list = append(list, mtu+1, 64<<10)
	if m.large || s.MTU == verbs.MTU1024 && !s.IPv6 {
		list = append(list, maxMessage)
	}
	return list
}

func bytesOf(m verbs.MTU) int { return 128 << m }

// run runs the matrix.
func (m matrix) run(l *lab, r *report) {
	for _, link := range m.links {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
			for _, v6 := range []bool{false, true} {
				for _, mtu := range m.mtus {
					s := patient(typ, mtu, v6)
					m.cell(r, link, "we request", l.ours[link], l.rxe[link], s)
					m.cell(r, link, "we respond", l.rxe[link], l.ours[link], s)
				}
			}
		}
	}
}

// caseLimit is how long a case may take: 8 MiB take a second on a machine that
// has nothing else to do.
const caseLimit = 60 * time.Second

// cell runs all operations and sizes over one queue pair; when a case fails, the
// next ones get another.
func (m matrix) cell(r *report, link int, direction string, req, resp end, s settings) {
	var c connection
	var err error
	open := false
	for _, op := range operations[s.Type] {
		for _, size := range m.sizes(op, s) {
			m.seed++
			t := transfer{op: op, size: size, seed: mix(m.seed) >> 1}
			name := fmt.Sprintf("%v %s, %s, %s", s.Type, opNames[op], direction, linkNames[link])
			what := fmt.Sprintf("%s, IPv6 %t, path MTU %d, %d bytes, seed %d", name, s.IPv6, bytesOf(s.MTU), size, m.seed)
			if !open {
				if c, err = connect(req, resp, s); err != nil {
					r.failed(what+": connect", err)
					c.Close()
					return
				}
				open = true
			}
			row, begin := r.row(name), time.Now()
			err := t.run(c, caseLimit)
			row.Cases++
			row.Bytes += int64(size)
			row.Time += time.Since(begin)
			if err != nil {
				row.Wrong++
				r.failed(what, err)
				c.Close()
				open = false
			}
		}
	}
	if open {
		if err := c.Close(); err != nil {
			r.failed(fmt.Sprintf("%v %s: close", s.Type, direction), err)
		}
	}
}
