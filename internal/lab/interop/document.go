package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"roced.io/roced/verbs"
)

// choices are the departures of rxe from the specification, and what we do.
//
//go:embed choices.md
var choices string

// save writes the document, including failures. An empty path writes nothing.
func (r *report) save(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.document(f), f.Close())
}

// document writes everything in Markdown.
func (r *report) document(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Interoperation with Linux's Soft-RoCE\n\nFor users of Soft-RoCE and other RoCEv2 devices: what works together, and how it was tested.\n\nMade by `%s`, which runs a stock Debian kernel with rdma_rxe under QEMU's\n"+
		"emulation (no KVM), joins it to a daemon of ours, and checks every byte on both sides. Speeds of several runs, on several\n"+
		"networks and ports, and their causes are in [interop-speed.md](interop-speed.md). Seed %d.\n\n", r.command, r.seed)
	for _, v := range r.versions {
		fmt.Fprintf(&b, "* %s\n", v)
	}
	fmt.Fprintf(&b, "\n**%s**\n", r.summary())
	for _, f := range r.failures {
		fmt.Fprintf(&b, "\n    %s\n", strings.ReplaceAll(f, "\n", "\n    "))
	}
	for _, t := range append([]table{r.matrix()}, r.tables...) {
		t.write(&b)
	}
	b.WriteString("\n" + choices)
	_, err := io.WriteString(w, b.String())
	return err
}

// summary returns the result in one line.
func (r *report) summary() string {
	cases, lost, bytes := 0, 0, int64(0)
	for _, t := range r.tallies {
		cases, lost, bytes = cases+t.Cases, lost+t.Lost, bytes+t.Bytes
	}
	rows := 0
	for _, t := range r.tables {
		rows += len(t.Rows)
	}
	return fmt.Sprintf("%d cases of the matrix with %d MB, %d repeated because UC or UD lost them; %d rows of other tables; %d failures.",
		cases, bytes/1e6, lost, rows, len(r.failures))
}

// matrix is the table of all tallies: a row for each service and operation, a column for each link and role.
func (r *report) matrix() table {
	t := table{Title: "Matrix", Intro: "Cases that passed, of all; each is a combination of IPv4 or IPv6, path MTU 256, 1024 or\n" +
		"4096, and a size: 0, 1, 3, MTU-1, MTU, MTU+1, 64 KiB, 8 MiB (datagrams: up to the MTU, atomics: 8).",
		Head: []string{"service", "operation"}}
	var columns []kind
	for link := range links {
		for _, weRespond := range []bool{false, true} {
			k := kind{Link: link, WeRespond: weRespond}
			if r.uses(k) {
				columns = append(columns, k)
				t.Head = append(t.Head, linkNames[link]+": "+role(weRespond))
			}
		}
	}
	for _, typ := range services {
		for _, op := range operations[typ] {
			t.Rows = append(t.Rows, r.matrixRow(typ, op, columns))
		}
	}
	return t
}

// uses reports whether there is a case in the column of a kind.
func (r *report) uses(column kind) bool {
	for _, t := range r.tallies {
		if t.Link == column.Link && t.WeRespond == column.WeRespond {
			return true
		}
	}
	return false
}

func (r *report) matrixRow(typ verbs.QPType, op verbs.Opcode, columns []kind) []string {
	row := []string{typ.String(), opNames[op]}
	for _, k := range columns {
		k.Type, k.Op = typ, op
		t := r.of(k)
		row = append(row, fmt.Sprintf("%d of %d", t.Cases-t.Wrong, t.Cases))
	}
	return row
}

// write writes a table. Numbers are right-aligned.
func (t table) write(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n", t.Title)
	if t.Intro != "" {
		fmt.Fprintf(w, "%s\n\n", t.Intro)
	}
	fmt.Fprintf(w, "| %s |\n|", strings.Join(t.Head, " | "))
	for i := range t.Head {
		fmt.Fprint(w, map[bool]string{true: "--:|", false: "---|"}[t.numeric(i)])
	}
	fmt.Fprintln(w)
	for _, row := range t.Rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// numeric reports whether a column begins with digits in all rows.
func (t table) numeric(column int) bool {
	for _, row := range t.Rows {
		if c := row[column]; c == "" || c[0] < '0' || c[0] > '9' {
			return false
		}
	}
	return true
}
