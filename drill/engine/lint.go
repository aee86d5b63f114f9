package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/suggest"
)

// Lint returns the errors of a script that do not depend on a device, in the order of their lines.
func Lint(s *script.Script) []*script.Error {
	l := &linter{script: s, names: map[string]bool{}, labels: map[string]bool{}}
	for _, name := range sortedKeys(variables) {
		l.names[name] = true
	}
	for _, need := range s.Need {
		l.known(script.Pos{Line: needLine(s), Col: 1}, "capability", need, sortedKeys(capabilities))
	}
	l.body(s.Body)
	slices.SortStableFunc(l.errs, func(a, b *script.Error) int { return a.Line - b.Line })
	return l.errs
}

// needLine returns the line of the first "need".
func needLine(s *script.Script) int {
	return 1 + max(0, slices.IndexFunc(s.Lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "need") }))
}

// linter checks a script statement by statement. names and labels are those that earlier statements define.
type linter struct {
	script        *script.Script
	names, labels map[string]bool
	errs          []*script.Error
}

func (l *linter) fail(at script.Pos, format string, args ...any) {
	l.errs = append(l.errs, &script.Error{Path: l.script.Path, Pos: at, Text: fmt.Sprintf(format, args...)})
}

// known reports a name that a list lacks.
func (l *linter) known(at script.Pos, kind, name string, list []string) bool {
	if slices.Contains(list, name) {
		return true
	}
	hint := suggest.Hint(name, list)
	for _, k := range list {
		if hint == "" && (strings.HasSuffix(k, "."+name) || len(k) > 2 && strings.HasSuffix(name, k)) {
			hint = fmt.Sprintf("; did you mean %q?", k)
		}
	}
	l.fail(at, "there is no %s %s%s", kind, name, hint)
	return false
}

func (l *linter) body(body []script.Stmt) {
	for _, s := range body {
		l.stmt(s)
	}
}

func (l *linter) stmt(s script.Stmt) {
	switch s := s.(type) {
	case *script.Assign:
		l.expr(s.Value)
		l.names[s.Name] = true
	case *script.Send:
		l.packet(&s.Packet, true)
	case *script.Ignore:
		l.packet(&s.Packet, false)
	case *script.Expect:
		for i := range s.Packets {
			l.packet(&s.Packets[i], false)
		}
		if len(s.Packets) == 1 && s.Packets[0].Optional && (s.Time.Within != nil || s.Time.After != nil) {
			l.fail(s.Time.Pos, "an optional packet has no time: it may come at any time from here on")
		}
		l.time(s.Time)
	case *script.Call:
		l.call(s)
		l.time(s.Time)
	case *script.Pause:
		l.expr(s.For)
	case *script.Print:
		l.expr(s.Value)
	case *script.For:
		l.expr(s.First)
		l.expr(s.Last)
		l.names[s.Var] = true
		l.body(s.Body)
	case *script.Either:
		l.either(s)
	}
}

// either checks the branches. Later statements may use the names and labels that all of them define.
func (l *linter) either(s *script.Either) {
	names, labels := l.names, l.labels
	for i, branch := range s.Branches {
		before := *l
		l.names, l.labels = maps.Clone(names), maps.Clone(labels)
		l.body(branch)
		if i > 0 {
			maps.DeleteFunc(l.names, func(k string, _ bool) bool { return !before.names[k] })
			maps.DeleteFunc(l.labels, func(k string, _ bool) bool { return !before.labels[k] })
		}
	}
}

func (l *linter) time(t script.Time) {
	l.expr(t.Within)
	l.expr(t.After)
	if t.Of != "" && !l.labels[t.Of] {
		l.fail(t.Pos, "there is no label %s before this line%s", t.Of, suggest.Hint(t.Of, sortedKeys(l.labels)))
	}
}

// packet checks the names of a packet. A packet to send has one value for each field.
func (l *linter) packet(k *script.Packet, send bool) {
	op, ok := frame.Opcode(k.Name)
	if !ok && (send || k.Name != anyPacket) {
		l.known(k.Pos, "packet", k.Name, append(frame.Opcodes(), anyPacket))
	}
	if send && k.Name == anyPacket {
		l.fail(k.Pos, "%s is not a packet to send", k.Name)
	}
	for _, list := range [][]script.Key{k.Fields, k.Until} {
		for i := range list {
			f := &list[i]
			l.once(list, i)
			if send && (f.Value == nil || f.Last != nil || f.Not) {
				l.fail(f.Pos, "a packet to send has one value for %s", f.Name)
			}
			l.value(f)
			if slices.Contains(pseudoFields, f.Name) {
				continue
			}
			bits := frame.Bits(f.Name)
			if bits == 0 {
				l.known(f.Pos, "field", f.Name, frame.Names())
				continue
			}
			if ok && !frame.Has(op, f.Name) {
				l.fail(f.Pos, "%s has no field %s", k.Name, f.Name)
			}
			l.fit(f, "field", bits)
		}
	}
	if k.Label != "" {
		l.labels[k.Label] = true
	}
}

// fit reports a number that has more bits than its field or key.
func (l *linter) fit(k *script.Key, place string, bits int) {
	if n, is := k.Value.(*script.Number); is {
		l.try(func(e *Engine) { e.fit(k.Pos, place, k.Name, numberOf(n.Value), bits) })
	}
}

// once reports a name that a list has twice.
func (l *linter) once(list []script.Key, i int) {
	if slices.ContainsFunc(list[:i], func(k script.Key) bool { return k.Name == list[i].Name && k.Not == list[i].Not && !k.Not }) {
		l.fail(list[i].Pos, "%s has two values", list[i].Name)
	}
}

// value checks the names in the value of a field.
func (l *linter) value(f *script.Key) {
	n, word := f.Value.(*script.Name)
	if word && (f.Name == "icrc" && n.Name == "bad" || f.Name == "vlan" && n.Name == "none") {
		return
	}
	l.expr(f.Value)
	l.expr(f.Last)
}

// call checks a verb with its arguments and keys.
func (l *linter) call(c *script.Call) {
	defer l.define(c)
	v, ok := verbs[c.Verb]
	if !ok {
		l.known(c.Pos, "verb", "dut."+c.Verb, verbNames())
		return
	}
	args := c.Args
	switch {
	case v.creates && c.Name == "":
		l.fail(c.Pos, "dut.%s creates an object: write NAME = dut.%s", c.Verb, c.Verb)
	case !v.creates && c.Name != "":
		l.fail(c.Pos, "dut.%s creates no object", c.Verb)
	}
	if v.object && len(args) == 0 {
		l.fail(c.Pos, "dut.%s needs an object", c.Verb)
	} else if v.object {
		l.object(args[0])
		args = args[1:]
	}
	if v.word != "" && len(args) == 0 {
		l.fail(c.Pos, "dut.%s: the %s is missing", c.Verb, v.word)
	} else if v.word != "" {
		if n, ok := args[0].(*script.Name); ok && words[c.Verb] != nil {
			l.known(n.Pos, v.word, n.Name, words[c.Verb])
		}
		args = args[1:]
	}
	for _, a := range args {
		l.expr(a)
	}
	for i, k := range c.Keys {
		l.once(c.Keys, i)
		kind, ok := v.keys[k.Name]
		n, word := k.Value.(*script.Name)
		switch {
		case k.Name == failsKey && !v.local:
			l.expr(k.Value)
		case !ok:
			l.fail(k.Pos, "dut.%s has no key %s%s; it has %s", c.Verb, k.Name, suggest.Hint(k.Name, sortedKeys(v.keys)), strings.Join(sortedKeys(v.keys), ", "))
		case kind == keyWord && word && k.Name == "access":
			if bad := strings.Trim(n.Name, "lwrabfz"); bad != "" && n.Name != "none" {
				l.fail(k.Pos, "access=%s: must be none or letters of l, w, r, a, b, f and z", n.Name)
			}
		case kind == keyWord && word && words[k.Name] != nil:
			l.known(k.Pos, k.Name, n.Name, words[k.Name])
		case kind == keyObject:
			l.object(k.Value)
		case kind != keyWord:
			l.expr(k.Value)
			l.expr(k.Last)
			l.fit(&c.Keys[i], "key", width(k.Name))
		}
	}
}

// define makes the names of a call known: its object with attributes, and its label.
func (l *linter) define(c *script.Call) {
	if c.Label != "" {
		l.labels[c.Label] = true
	}
	if c.Name == "" {
		return
	}
	l.names[c.Name] = true
	for _, a := range attributes[c.Verb] {
		l.names[c.Name+"."+a] = true
	}
}

func (l *linter) object(x script.Expr) {
	if n, ok := x.(*script.Name); ok && !l.names[n.Name] {
		l.fail(n.Pos, "there is no object %s before this line%s", n.Name, suggest.Hint(n.Name, sortedKeys(l.names)))
	}
}

// expr checks the names in an expression, and evaluates what does not depend on a run.
func (l *linter) expr(x script.Expr) {
	if l.constant(x) {
		l.evaluate(x)
	}
}

// constant checks the names in an expression. It reports whether the value is the same in all runs; else it evaluates the parts
// whose value is.
func (l *linter) constant(x script.Expr) bool {
	switch x := x.(type) {
	case *script.Number, *script.Duration, *script.Text:
		return true
	case *script.Name:
		l.name(x)
	case *script.Binary:
		return l.constants(x.X, x.Y)
	case *script.Slice:
		l.expr(x.Of)
		l.expr(x.From)
		l.expr(x.To)
	case *script.Function:
		f, ok := functions[x.Name]
		if l.known(x.Pos, "function", x.Name, sortedKeys(functions)) && ok && len(x.Args) != f.args {
			l.fail(x.Pos, "%s has %d arguments, not %d", x.Name, f.args, len(x.Args))
			return false
		}
		if !l.constants(x.Args...) || !ok || x.Name == "cm" {
			return false
		}
		if x.Name != "rand" && x.Name != "count" && x.Name != "fill" {
			return true
		}
		l.try(func(e *Engine) { // without the bytes
			for i := range x.Args {
				if v := e.argument(x, f, i); i == 0 && v.num > maxBytes {
					l.fail(x.Pos, "%s: %v is not a number of bytes up to %d", x.Name, v, maxBytes)
				}
			}
		})
	}
	return false
}

// constants is constant of several parts.
func (l *linter) constants(list ...script.Expr) bool {
	var fixed []script.Expr
	for _, x := range list {
		if l.constant(x) {
			fixed = append(fixed, x)
		}
	}
	if len(fixed) < len(list) {
		for _, x := range fixed {
			l.evaluate(x)
		}
	}
	return len(fixed) == len(list)
}

// evaluate reports the error of a constant.
func (l *linter) evaluate(x script.Expr) { l.try(func(e *Engine) { e.eval(x) }) }

// try reports the error of an evaluation.
func (l *linter) try(f func(e *Engine)) {
	defer func() {
		if r := recover(); r != nil {
			l.errs = append(l.errs, r.(*script.Error))
		}
	}()
	f(&Engine{script: l.script})
}

func (l *linter) name(x *script.Name) {
	if l.names[x.Name] || hasKey(frame.Syndromes, x.Name) || hasKey(frame.Messages, x.Name) {
		return
	}
	label, field, ok := strings.Cut(x.Name, ".")
	switch {
	case ok && l.labels[label] && (field == "payload" || field == "time"):
	case ok && l.labels[label]:
		l.known(x.Pos, "field", field, frame.Names())
	default:
		l.fail(x.Pos, "%s is not defined before this line%s", x.Name, suggest.Hint(x.Name, sortedKeys(l.names)))
	}
}

func hasKey[V any](m map[string]V, k string) bool {
	_, ok := m[k]
	return ok
}

func verbNames() []string {
	var names []string
	for _, v := range sortedKeys(verbs) {
		names = append(names, "dut."+v)
	}
	return names
}
