package main

import (
	"slices"
	"testing"
)

// TestJoint: one program has the mutations of all functions that can be called in place of the original ones.
func TestJoint(t *testing.T) {
	const test = "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != 6 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestPasses(t *testing.T) {}\n"
	files := map[string]string{
		"go.mod": "module m\n\ngo 1.24\n",
		"a/f.go": "package a\n\nconst one = 1\n\ntype s[T any] struct{ n T }\n\nfunc (p *s[T]) set(v ...T) { p.n = v[0] }\n\nfunc blank(_ int) int { return 2 }\n\n" +
			"func generic[T any](v T) T {\n\treturn v\n}\n\nfunc F() (n int) {\n\tvar p s[int]\n\tp.set(generic(3), 4)\n\treturn p.n + blank(0) + one\n}\n",
		"a/f_test.go": test,
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestFails(t *testing.T) { t.Fatal() }\n",
	}
	root, names := write(t, files)
	tree, err := readTree(root, names)
	if err != nil {
		t.Fatal(err)
	}
	copied, _ := write(t, files)
	j := joint{dir: copied}
	list, err := parseList("a/mutants.txt", `# X: rule
func s.set: TestPasses TestF
- func (p *s[T]) set(v ...T) { p.n = v[0] }
+ func (p *s[T]) set(v ...T) { p.n = v[1] }
func F: TestF
- var p s[int]
+ n, p := 5, s[int]{}
+ if n > 0 {
+ 	return
+ }
func F: TestF
- return p.n + blank(0) + one
+ return p.n + one + blank(0)
func F: TestPasses
- var p s[int]
+ var p = s[int]{1}
func generic: TestF
- return v
+ panic(v)
func blank: TestF
- func blank(_ int) int { return 2 }
+ func blank(_ int) int { return 3 }
const one: TestF
- const one = 1
+ const one = 2
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.build(tree, list); err != nil {
		t.Fatal(err)
	}
	var killed []bool
	for i := range list {
		killed = append(killed, j.kills(tree, &list[i], i))
	}
	if want := []bool{true, true, false, false, false, true, false}; !slices.Equal(killed, want) {
		t.Errorf("killed in one program: %v, want %v", killed, want)
	}
	if want := []bool{true, true, true, true, false, true, false}; !slices.Equal(j.mutated, want) {
		t.Errorf("mutations of one program: %v, want %v", j.mutated, want)
	}
	list = parse(t, "# X: rule\nfunc F: b.TestFails\n- var p s[int]\n+ return\n")
	wants(t, j.build(tree, list), "b fails without a mutation")
}
