package script

import (
	"fmt"
	"time"
)

// Pos is a place in a script. Lines and columns count from 1.
type Pos struct {
	Line int `json:"line"`
	Col  int `json:"column"`
}

// Error is an error of a script, with its place.
type Error struct {
	Path string `json:"script"`
	Pos
	Text string `json:"text"`
}

// Error returns "path:line:column: text".
func (e *Error) Error() string { return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Col, e.Text) }

// Script is a parsed script.
type Script struct {
	Path  string
	About string // one sentence
	Spec  string // the rule that the script tests, such as "IBTA 9.7.5.1.2"
	Must  bool   // the specification demands it; otherwise it is the device's policy
	Need  []string
	Body  []Stmt
	// Lines are the lines of the text, for reports.
	Lines []string
}

// Stmt is a statement: *Assign, *Call, *Send, *Expect, *Ignore, *Pause, *Print, *For
// or *Either.
type Stmt interface{ At() Pos }

// At returns the place of the statement. Statements embed Pos.
func (p Pos) At() Pos { return p }

// Assign gives a value a name: "D = rand(1024)".
type Assign struct {
	Pos
	Name  string
	Value Expr
}

// Call is a verb on the device under test: "dut.send qp wr=1 mr[0:64]". With Name, it creates an object: "qp = dut.qp rc".
type Call struct {
	Pos
	Label string
	Name  string // of the created object
	Verb  string // without "dut."
	Args  []Expr
	Keys  []Key
	Time  Time
}

// Key is an argument or a field with its value.
type Key struct {
	Pos
	Name string
	// Value is the value, or the first one of a range. It is nil for "*", any value.
	Value Expr
	Last  Expr // last value of a range, nil for a single value
	Not   bool // every other value
}

// Packet describes a packet to send or to expect.
type Packet struct {
	Pos
	Label  string
	Name   string // of the opcode, or ANY
	Fields []Key
	// Optional: the packet may be missing. Many: one packet or several, the last of which matches Until.
	Optional, Many bool
	Until          []Key
}

// Send is "< PACKET": the tester sends a packet.
type Send struct {
	Pos
	Packet Packet
}

// Expect is "> PACKET" or "> { PACKET ; PACKET }": the device sends these packets, in this order unless Any.
type Expect struct {
	Pos
	Packets []Packet
	Any     bool
	Time    Time
}

// Ignore is "ignore PACKET": from here on, packets of this kind are neither expected nor an error.
type Ignore struct {
	Pos
	Packet Packet
}

// Pause is "wait 5ms", or "quiet 5ms": the device sends nothing meanwhile.
type Pause struct {
	Pos
	For   Expr
	Quiet bool
}

// Print is "print "text" VALUE": the report has the value.
type Print struct {
	Pos
	Text  string
	Value Expr
}

// For is "for i in 0..4 { ... }".
type For struct {
	Pos
	Var         string
	First, Last Expr
	Body        []Stmt
}

// Either is "either { ... } or { ... }". The device chooses a branch by its first packet.
type Either struct {
	Pos
	Branches [][]Stmt
}

// Blocks returns the blocks of a statement that has some.
func Blocks(s Stmt) [][]Stmt {
	switch s := s.(type) {
	case *For:
		return [][]Stmt{s.Body}
	case *Either:
		return s.Branches
	}
	return nil
}

// Time bounds when something happens, counted from the time of a label.
type Time struct {
	Within, After Expr   // nil: no bound
	Of            string // label; empty: the previous statement
	Pos           Pos
}

// Expr is an expression: *Number, *Duration, *Text, *Name, *Binary, *Function or *Slice.
type Expr interface{ At() Pos }

// Number is a constant.
type Number struct {
	Pos
	Value uint64
}

// Duration is a constant such as 20ms.
type Duration struct {
	Pos
	Value time.Duration
}

// Text is a string in quotes.
type Text struct {
	Pos
	Value string
}

// Name is a variable, or an attribute such as "qp.num".
type Name struct {
	Pos
	Name string
}

// Binary is an operation on two values: + - * / % << >> & |.
type Binary struct {
	Pos
	Op   string
	X, Y Expr
}

// Function is a function call such as "rand(1024)".
type Function struct {
	Pos
	Name string
	Args []Expr
}

// Slice is a part of memory or of bytes: "mr[0:64]".
type Slice struct {
	Pos
	Of       Expr
	From, To Expr // nil: the start, the end
}
