package api

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerbsNumbers compares the numbers of verbs with those of the core. verbs does not import the core, and its
// declarations show users the numbers of the C headers. So both packages have them, and this test keeps them equal.
func TestVerbsNumbers(t *testing.T) {
	core, mrc := constants(t, "qp"), constants(t, "qp/mrc")
	for _, c := range []struct {
		verbs, core string // types
		prefix, in  string // of the names in verbs and in the core
		from        map[string]constant.Value
	}{
		{"QPType", "Type", "", "", core},
		{"QPState", "State", "QP", "", core},
		{"Access", "Access", "Access", "Access", core},
		{"Opcode", "WROpcode", "Op", "WR", core},
		{"SendFlags", "SendFlags", "Send", "Send", core},
		{"Status", "Status", "Status", "Status", core},
		{"WCOpcode", "WCOpcode", "WC", "WC", core},
		{"WCFlags", "WCFlags", "WC", "WC", core},
		{"EventType", "Event", "Event", "Event", core},
		{"AttrMask", "AttrMask", "Attr", "Attr", core},
		{"MRCMask", "Mask", "MRC", "Attr", mrc},
		{"MRCCaps", "Caps", "MRC", "", mrc},
	} {
		n := 0
		for name, v := range constants(t, "verbs") {
			own, isOurs := strings.CutPrefix(name, c.verbs+"."+c.prefix)
			if !isOurs {
				continue
			}
			n++
			if want := c.from[c.core+"."+c.in+own]; want == nil || !constant.Compare(v, token.EQL, want) {
				t.Errorf("verbs.%s%s is %v, %s.%s%s of the core is %v", c.prefix, own, v, c.core, c.in, own, want)
			}
		}
		if n == 0 {
			t.Errorf("verbs has no constants of type %s", c.verbs)
		}
	}
}

// constants returns the typed constants of a package by type and name.
func constants(t *testing.T, pkg string) map[string]constant.Value {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	c := types.Config{IgnoreFuncBodies: true, Error: func(error) {}} // imports are not needed for constants
	p, _ := c.Check(pkg, fset, files, nil)
	all := map[string]constant.Value{}
	for _, name := range p.Scope().Names() {
		if x, ok := p.Scope().Lookup(name).(*types.Const); ok {
			if typ, ok := x.Type().(*types.Named); ok {
				all[typ.Obj().Name()+"."+name] = x.Val()
			}
		}
	}
	return all
}
