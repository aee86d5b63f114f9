// Package gotext finds the texts in Go files that users read, and the names that they declare.
package gotext

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// Kind is the kind of a text.
type Kind int

const (
	Name  Kind = iota // an identifier that a declaration introduces
	Error             // the format of an error
	Usage             // the description of a flag
	Short             // the summary of a command
)

// Text is a text of a file.
type Text struct {
	Pos  token.Position
	Kind Kind
	Text string
}

// File returns the texts of a Go file.
func File(name string, src []byte) ([]Text, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{set: set}
	ast.Inspect(file, f.visit)
	return f.texts, nil
}

type finder struct {
	set   *token.FileSet
	texts []Text
}

func (f *finder) add(n ast.Node, kind Kind, text string) {
	f.texts = append(f.texts, Text{f.set.Position(n.Pos()), kind, text})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		f.add(n.Name, Name, n.Name.Name)
	case *ast.TypeSpec:
		f.add(n.Name, Name, n.Name.Name)
	case *ast.ValueSpec:
		f.names(n.Names)
	case *ast.Field:
		f.names(n.Names)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok {
					f.add(id, Name, id.Name)
				}
			}
		}
	case *ast.CompositeLit:
		f.composite(n)
	case *ast.CallExpr:
		f.call(n)
	}
	return true
}

// composite finds the summary of a command of package cobra.
func (f *finder) composite(n *ast.CompositeLit) {
	if s, ok := n.Type.(*ast.SelectorExpr); !ok || s.Sel.Name != "Command" {
		return
	}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Short" {
			if text, ok := literal(kv.Value); ok {
				f.add(kv.Value, Short, text)
			}
		}
	}
}

func (f *finder) names(ids []*ast.Ident) {
	for _, id := range ids {
		f.add(id, Name, id.Name)
	}
}

// defines matches the methods of flag sets that define a flag. The description is their last argument.
var defines = regexp.MustCompile(`^(Bool|Bytes\w*|Count|Duration|Float\d*|Int\d*|String|Uint\d*)?(Slice|Array|ToString)?(Var|Func)?P?$`)

// fails matches the functions that make errors. The format is their first argument with a space.
var fails = regexp.MustCompile(`^(Errorf|fail|failed|bad|refuse|At|add)$`)

func (f *finder) call(c *ast.CallExpr) {
	if len(c.Args) == 0 {
		return
	}
	name, of := "", ""
	switch fun := c.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if x, ok := fun.X.(*ast.Ident); ok {
			of = x.Name
		}
	}
	if fails.MatchString(name) || of == "errors" && name == "New" {
		for _, a := range c.Args { // before the format may be a position or a condition
			if text, ok := literal(a); ok && strings.Contains(text, " ") {
				f.add(a, Error, text)
				return
			}
		}
		return
	}
	if len(c.Args) < 3 || !defines.MatchString(name) {
		return
	}
	last := c.Args[len(c.Args)-1]
	if text, ok := literal(last); ok {
		f.add(last, Usage, text)
	}
}

// literal returns the constant part of a string expression. Other operands of + count as %s.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		a, oka := literal(e.X)
		b, okb := literal(e.Y)
		if !oka && !okb {
			return "", false
		}
		if !oka {
			a = "%s"
		}
		if !okb {
			b = "%s"
		}
		return a + b, true
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			return literal(e.Args[0])
		}
	}
	return "", false
}

// Words splits an identifier at its capitals, digits and underscores, in lower case.
func Words(name string) []string {
	var words []string
	for _, w := range word.FindAllString(name, -1) {
		words = append(words, strings.ToLower(w))
	}
	return words
}

var word = regexp.MustCompile(`[A-Z]+(?:[a-z]+)?|[a-z]+`)
