package ci

import (
	"fmt"
	"strings"

	"github.com/rhysd/actionlint"
)

// evaluation evaluates an expression as GitHub does, for the syntax in our files.
type evaluation struct {
	job   *job
	scope *scope
	asked bool // the expression uses the state of the job
}

func (e *evaluation) text(expr string) any {
	node, err := actionlint.NewExprParser().Parse(actionlint.NewExprLexer(strings.TrimSpace(expr) + "}}"))
	if err != nil {
		e.job.t.Fatalf("%q: %v", expr, err)
	}
	return e.value(node)
}

func truth(v any) bool { return v != "" && v != false }

func (e *evaluation) value(n actionlint.ExprNode) any {
	switch n := n.(type) {
	case *actionlint.StringNode:
		return n.Value
	case *actionlint.NotOpNode:
		return !truth(e.value(n.Operand))
	case *actionlint.CompareOpNode:
		equal := e.value(n.Left) == e.value(n.Right)
		if n.Kind == actionlint.CompareOpNodeKindNotEq {
			return !equal
		}
		return equal
	case *actionlint.LogicalOpNode:
		left := e.value(n.Left)
		if truth(left) == (n.Kind == actionlint.LogicalOpNodeKindOr) {
			return left
		}
		return e.value(n.Right)
	case *actionlint.FuncCallNode:
		return e.call(n)
	case *actionlint.ObjectDerefNode:
		return e.variable(path(n))
	}
	e.job.t.Fatalf("%T is not imitated", n)
	return nil
}

func (e *evaluation) call(n *actionlint.FuncCallNode) any {
	switch n.Callee {
	case "always":
		e.asked = true
		return true
	case "failure":
		e.asked = true
		return e.scope.failed
	case "format":
		text := e.value(n.Args[0]).(string)
		for i, a := range n.Args[1:] {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), fmt.Sprint(e.value(a)))
		}
		return text
	}
	e.job.t.Fatalf("%s() is not imitated", n.Callee)
	return nil
}

// path returns a chain of names.
func path(n actionlint.ExprNode) []string {
	switch n := n.(type) {
	case *actionlint.VariableNode:
		return []string{n.Name}
	case *actionlint.ObjectDerefNode:
		return append(path(n.Receiver), n.Property)
	}
	return nil
}

func (e *evaluation) variable(p []string) any {
	name := strings.Join(p, ".")
	switch {
	case name == "runner.temp":
		return e.job.temp
	case p[0] == "inputs" && len(p) == 2:
		if v, ok := e.scope.inputs[p[1]]; ok {
			return v
		}
	case p[0] == "steps" && len(p) == 4 && p[2] == "outputs":
		return e.scope.outputs[p[1]][p[3]]
	case p[0] == "steps" && len(p) == 3 && p[2] == "outcome":
		return e.scope.outcomes[p[1]]
	}
	e.job.t.Fatalf("%s is not imitated", name)
	return nil
}
