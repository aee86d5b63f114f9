package script

import (
	"fmt"
	"slices"
	"strings"
)

// parser is a recursive descent parser. Its methods panic with *Error; Parse recovers.
type parser struct {
	s      *Script
	tokens []token
	depth  int
	terms  int // operators and slices of the statement
}

// Bounds of a script: the nesting of expressions and blocks, the operators of a statement, and the words and signs of all lines.
const (
	maxDepth  = 50
	maxTerms  = 10_000
	maxTokens = 2 << 20
)

// Parse parses a script. The error is an *Error.
func Parse(path, text string) (s *Script, err error) {
	s = &Script{Path: path, Lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	p := &parser{s: s}
	defer func() {
		if e, ok := recover().(*Error); ok {
			e.Path = path
			s, err = nil, e
		}
	}()
	for i, line := range s.Lines {
		tokens, err := lex(line, i+1, maxTokens-len(p.tokens))
		if err != nil {
			panic(err)
		}
		p.tokens = append(p.tokens, tokens...)
	}
	p.tokens = append(p.tokens, token{Pos: Pos{len(s.Lines) + 1, 1}, kind: tokEnd})
	p.head()
	s.Body = p.block("")
	if s.Spec == "" {
		p.fail(Pos{1, 1}, `the script names no rule: begin with spec "IBTA 9.7.1" must`)
	}
	return s, nil
}

func (p *parser) fail(at Pos, format string, args ...any) {
	panic(&Error{Pos: at, Text: fmt.Sprintf(format, args...)})
}

func (p *parser) peek() token { return p.tokens[0] }

// second returns the token after the next one.
func (p *parser) second() token { return p.tokens[min(1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

// is reports whether the next token is this punctuation or word.
func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == tokPunct || t.kind == tokName) && t.text == text
}

// accept skips the next token if it is text.
func (p *parser) accept(text string) bool {
	if !p.is(text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) want(text string) Pos {
	if !p.is(text) {
		p.fail(p.peek().Pos, "%s instead of %s", p.peek(), text)
	}
	return p.next().Pos
}

// take returns the next token, which has to be of this kind.
func (p *parser) take(k kind, what string) token {
	if p.peek().kind != k {
		p.fail(p.peek().Pos, "%s instead of %s", p.peek(), what)
	}
	return p.next()
}

func (p *parser) skipNewlines() {
	for p.peek().kind == tokNewline {
		p.next()
	}
}

// endLine ends a statement.
func (p *parser) endLine() {
	if t := p.peek(); t.kind != tokNewline && t.kind != tokEnd && !p.is("}") {
		p.fail(t.Pos, "unexpected %s", t)
	}
}

// head parses the lines before the statements: about, spec, need.
func (p *parser) head() {
	for p.skipNewlines(); ; p.skipNewlines() {
		switch {
		case p.is("about"):
			p.next()
			p.s.About = p.take(tokText, "a sentence in quotes").text
		case p.is("spec"):
			p.next()
			p.s.Spec = p.take(tokText, "a section in quotes").text
			p.s.Must = p.is("must")
			if !p.accept("must") && !p.accept("policy") {
				p.fail(p.peek().Pos, "%s instead of must or policy", p.peek())
			}
		case p.is("need"):
			p.next()
			p.s.Need = append(p.s.Need, p.take(tokName, "a capability").text)
			for p.accept(",") {
				p.s.Need = append(p.s.Need, p.take(tokName, "a capability").text)
			}
		default:
			return
		}
		p.endLine()
	}
}

// block parses statements up to end, "}" or the end of the script.
func (p *parser) block(end string) (body []Stmt) {
	defer p.nest()()
	for p.skipNewlines(); ; p.skipNewlines() {
		if end != "" && p.accept(end) {
			return body
		}
		if t := p.peek(); t.kind == tokEnd {
			if end != "" {
				p.fail(t.Pos, "%s is missing", end)
			}
			return body
		}
		body = append(body, p.stmt())
		p.endLine()
	}
}

// nest counts the nesting.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.peek().Pos, "nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }
}

// term counts an operator or a slice. Their number bounds the depth of an expression's tree, which is evaluated by recursion.
func (p *parser) term() {
	if p.terms++; p.terms > maxTerms {
		p.fail(p.peek().Pos, "the statement has more than %d operators; assign parts to names", maxTerms)
	}
}

func (p *parser) stmt() Stmt {
	p.terms = 0
	label := ""
	if p.peek().kind == tokName && p.second().kind == tokPunct && p.second().text == ":" {
		label = p.next().text
		p.next()
	}
	t := p.peek()
	at := t.Pos
	switch {
	case p.accept("<"):
		return &Send{at, p.packet(label)}
	case p.accept(">"):
		return p.expect(at, label)
	case t.kind == tokName && strings.HasPrefix(t.text, "dut."):
		return p.call(at, label, "")
	case label != "":
		p.fail(at, "only packets and verbs have labels")
	case p.accept("ignore"):
		return &Ignore{at, p.packet("")}
	case p.accept("wait"):
		return &Pause{at, p.duration(), false}
	case p.accept("quiet"):
		return &Pause{at, p.duration(), true}
	case t.text == "print" && t.kind == tokName && p.second().kind == tokText:
		p.next()
		return &Print{at, p.next().text, p.expr(0)}
	case p.accept("for"):
		f := &For{Pos: at, Var: p.take(tokName, "a name").text}
		p.want("in")
		f.First = p.expr(0)
		p.want("..")
		f.Last = p.expr(0)
		p.want("{")
		f.Body = p.block("}")
		return f
	case p.accept("either"):
		return p.either(at)
	case t.kind == tokName && p.second().text == "=":
		p.next()
		p.next()
		if n := p.peek(); n.kind == tokName && strings.HasPrefix(n.text, "dut.") {
			return p.call(at, "", t.text)
		}
		return &Assign{at, t.text, p.expr(0)}
	}
	p.fail(at, `%s begins no statement: expected "<", ">", "dut.", a name with "=", wait, quiet, ignore, print, for or either`, t)
	return nil
}

// either parses the rest of "either { ... } or { ... }".
func (p *parser) either(at Pos) *Either {
	s := &Either{Pos: at}
	for len(s.Branches) == 0 || p.accept("or") {
		open := p.want("{")
		branch := p.block("}")
		x, ok := first(branch).(*Expect)
		if !ok || x.Packets[0].Optional {
			p.fail(open, `a branch begins with a packet of the device, "> PACKET"`)
		}
		s.Branches = append(s.Branches, branch)
	}
	if len(s.Branches) == 1 {
		p.fail(at, "either has two branches or more: either { ... } or { ... }")
	}
	return s
}

func first(body []Stmt) Stmt {
	if len(body) == 0 {
		return nil
	}
	return body[0]
}

// duration parses a duration such as 20ms or 4*(4096ns<<t).
func (p *parser) duration() Expr {
	x := p.expr(0)
	if n, ok := x.(*Number); ok {
		p.fail(n.Pos, "%d instead of a duration such as 20ms", n.Value)
	}
	return x
}

func (p *parser) call(at Pos, label, name string) *Call {
	c := &Call{Pos: at, Label: label, Name: name, Verb: strings.TrimPrefix(p.next().text, "dut.")}
	for {
		t := p.peek()
		switch {
		case t.kind == tokNewline || t.kind == tokEnd || p.is("}") || p.timed():
			c.Time = p.time()
			return c
		case t.kind == tokName && (p.second().text == "=" || p.second().text == "!="):
			c.Keys = append(c.Keys, p.key())
		default:
			c.Args = append(c.Args, p.expr(0))
		}
	}
}

// expect parses the rest of "> ...".
func (p *parser) expect(at Pos, label string) *Expect {
	e := &Expect{Pos: at}
	e.Any = p.accept("any")
	if !e.Any && !p.is("{") {
		e.Packets = []Packet{p.packet(label)}
		e.Time = p.time()
		return e
	}
	p.want("{")
	for p.skipNewlines(); !p.accept("}"); p.skipNewlines() {
		label := ""
		if p.second().text == ":" {
			label = p.take(tokName, "a label").text
			p.next()
		}
		e.Packets = append(e.Packets, p.packet(label))
		p.endLine()
	}
	if len(e.Packets) == 0 || label != "" {
		p.fail(at, "a group has at least one packet; labels belong to its packets")
	}
	e.Time = p.time()
	return e
}

// packet parses "[?|+] NAME field=value ... [until field=value ...]".
func (p *parser) packet(label string) Packet {
	k := Packet{Label: label}
	k.Optional = p.accept("?")
	k.Many = !k.Optional && p.accept("+")
	name := p.take(tokName, "the name of a packet")
	k.Pos, k.Name = name.Pos, name.text
	k.Fields = p.keys()
	if p.is("until") {
		if !k.Many {
			p.fail(p.peek().Pos, `only a "+" packet has until`)
		}
		p.next()
		k.Until = p.keys()
	}
	return k
}

// keys parses fields up to a time or the end of the packet.
func (p *parser) keys() (keys []Key) {
	for p.peek().kind == tokName && !p.timed() && !p.is("until") {
		keys = append(keys, p.key())
	}
	return keys
}

// key parses "name=value", "name!=value", "name=first..last" or "name=*".
func (p *parser) key() Key {
	t := p.take(tokName, "a field")
	k := Key{Pos: t.Pos, Name: t.text, Not: p.accept("!=")}
	if !k.Not {
		p.want("=")
	}
	if p.accept("*") {
		return k
	}
	k.Value = p.expr(0)
	if p.accept("..") {
		k.Last = p.expr(0)
	}
	return k
}

// timed reports whether a time follows.
func (p *parser) timed() bool { return p.is("within") || p.is("after") }

// time parses "[after D] [within D] [of LABEL]".
func (p *parser) time() (t Time) {
	t.Pos = p.peek().Pos
	for p.timed() {
		if p.accept("within") {
			t.Within = p.duration()
		} else {
			p.want("after")
			t.After = p.duration()
		}
	}
	if (t.Within != nil || t.After != nil) && p.accept("of") {
		t.Of = p.take(tokName, "a label").text
	}
	return t
}

// levels are the binary operators, those that bind least first.
var levels = [][]string{{"|"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}}

func (p *parser) expr(level int) Expr {
	defer p.nest()()
	if level == len(levels) {
		return p.operand()
	}
	x := p.expr(level + 1)
	for p.peek().kind == tokPunct && slices.Contains(levels[level], p.peek().text) {
		p.term()
		t := p.next()
		x = &Binary{t.Pos, t.text, x, p.expr(level + 1)}
	}
	return x
}

// operand parses a value and the slices of it.
func (p *parser) operand() Expr {
	x := p.single()
	for p.accept("[") {
		p.term()
		x = p.slice(x)
	}
	return x
}

func (p *parser) single() Expr {
	t := p.next()
	switch t.kind {
	case tokNumber:
		return &Number{t.Pos, t.number}
	case tokDuration:
		return &Duration{t.Pos, t.duration}
	case tokText:
		return &Text{t.Pos, t.text}
	case tokPunct:
		if t.text == "(" {
			x := p.expr(0)
			p.want(")")
			return x
		}
	case tokName:
		if p.accept("(") {
			return &Function{t.Pos, t.text, p.arguments()}
		}
		return &Name{t.Pos, t.text}
	}
	p.fail(t.Pos, "%s instead of a value", t)
	return nil
}

func (p *parser) arguments() (args []Expr) {
	for !p.accept(")") {
		if len(args) > 0 {
			p.want(",")
		}
		args = append(args, p.expr(0))
	}
	return args
}

func (p *parser) slice(of Expr) Expr {
	s := &Slice{Pos: of.At(), Of: of}
	if !p.is(":") {
		s.From = p.expr(0)
	}
	p.want(":")
	if !p.is("]") {
		s.To = p.expr(0)
	}
	p.want("]")
	return s
}
