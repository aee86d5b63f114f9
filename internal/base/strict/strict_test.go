package strict

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Size   int
	Params map[string]float64 `yaml:",inline"`
}

type common struct{ Name string }

type file struct {
	Common common `yaml:",inline"`
	Wait   time.Duration
	On     *bool
	List   []inner
	By     map[string]inner
	Words  []string
	Hidden int `yaml:"-"`
}

func decode(t *testing.T, text string, changes ...string) (f file, faults string) {
	t.Helper()
	d, err := Parse("f.yaml", []byte(text))
	if err != nil {
		return f, err.Error()
	}
	for _, c := range changes {
		if err := d.Change(c); err != nil {
			return f, err.Error()
		}
	}
	if all := d.Decode(&f); all != nil {
		faults = all.Error()
	}
	return f, faults
}

func TestDecode(t *testing.T) {
	f, faults := decode(t, `
name: 7
wait: 2ms
on: false
list: [{size: 1, gain: 0.5}, &a {size: 2}]
by: {x: *a, y: {}}
words: [a, 3]
`, "list.0.size=9")
	if faults != "" || f.Common.Name != "7" || f.Wait != 2*time.Millisecond || f.On == nil || *f.On || len(f.List) != 2 || f.List[0].Size != 9 ||
		f.List[0].Params["gain"] != 0.5 || f.By["x"].Size != 2 || len(f.By) != 2 || f.Words[1] != "3" {
		t.Errorf("%+v, %s", f, faults)
	}
}

// TestFaults: faults name the place of the key, or of its value, and all are reported.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ text, set, want string }{
		{"", "", "f.yaml: the file is empty"},
		{"name: x\n---\nname: y\n", "", "f.yaml:2: a second document; the file must have one"},
		{"name: x\n---\n# nothing\n---\nb: 1\n", "", "f.yaml:4: a second document; the file must have one"},
		{"name: x\n---\n...\n---\n", "", ""},
		{"name: x\n---\nb: [\n", "", "f.yaml:3: this is not YAML: did not find expected node content"},
		{"a: [\n", "", "f.yaml:1: this is not YAML: did not find expected node content"},
		{"7", "", "f.yaml:1:1: expected a mapping: {name: ..., wait: ..., on: ..., list: ..., by: ..., words: ...}"},
		{"name: a\nwat: 1s", "", "f.yaml:2:1: wat: unknown key; the keys are name, wait, on, list, by, words; did you mean \"wait\"?"},
		{"hidden: 1", "", "f.yaml:1:1: hidden: unknown key; the keys are name, wait, on, list, by, words"},
		{"list:\n  - size: x\n    gain: much\non: maybe", "", `f.yaml:2:11: list.0.size: "x" is not a whole number` + "\n" +
			`f.yaml:3:11: list.0.gain: "much" is not a number` + "\n" + `f.yaml:4:5: on: "maybe" is not true or false`},
		{"list: [{gain: .nan}, {gain: -.inf}]", "", `f.yaml:1:15: list.0.gain: ".nan" is not a finite number` + "\n" +
			`f.yaml:1:29: list.1.gain: "-.inf" is not a finite number`},
		{"wait: 3", "", `f.yaml:1:7: wait: "3" is not a duration such as 5s`},
		{"list: {}", "", "f.yaml:1:7: list: expected a list: [...]"},
		{"by: []", "", "f.yaml:1:5: by: expected a mapping: {name: ...}"},
		{"by: {a: {}, a: {}}", "", "f.yaml:1:13: by.a: duplicate key"},
		{"name: a\nname: b", "", "f.yaml:2:1: name: duplicate key"},
		{"list: [{size: 1, size: 2}]", "", "f.yaml:1:18: list.0.size: duplicate key"},
		{"list: &a [*a]", "", "f.yaml:1:11: list.0: expected a mapping: {size: ...}"},
		{"name: a", "wat=1", "--set wat=1: wat: unknown key; the keys are name, wait, on, list, by, words; did you mean \"wait\"?"},
		{"list: [{size: 1}]", "list.0.size=x", `--set list.0.size=x: list.0.size: "x" is not a whole number`},
	} {
		var changes []string
		if c.set != "" {
			changes = append(changes, c.set)
		}
		if _, faults := decode(t, c.text, changes...); faults != c.want {
			t.Errorf("%s %s\n got %s\nwant %s", c.text, c.set, faults, c.want)
		}
	}
}

// TestOverride: an override is a scalar, whatever it looks like, and its origin is the place of its faults.
func TestOverride(t *testing.T) {
	d, err := Parse("f.yaml", []byte("name: a\nlist:\n  - size: 1\nby:\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{{"name", "[::1]:80", "VAR_NAME"}, {"by.x.size", "7", "VAR_BY"}, {"wait", "soon", "VAR_WAIT"}} {
		if err := d.Override(c[0], c[1], c[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Override("name.x", "1", "VAR_X"); err == nil || err.Error() != `VAR_X: there is no "name.x"` {
		t.Error(err)
	}
	var f file
	if faults := d.Decode(&f); faults == nil || faults.Error() != `VAR_WAIT: wait: "soon" is not a duration such as 5s` {
		t.Errorf("%v", faults)
	}
	if f.Common.Name != "[::1]:80" || f.By["x"].Size != 7 {
		t.Errorf("%+v", f)
	}
	for key, want := range map[string]string{"name": "VAR_NAME", "by.x": "VAR_BY", "list.0.size": "f.yaml:3", "list": "f.yaml:3", "on": ""} {
		if got := d.Origin(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: a\nlist: [{size: 1, gain: 2}]\nby: {x: &a {}, y: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		_, faults := decode(t, text)
		if strings.Contains(faults, "reflect") {
			t.Error(faults)
		}
	})
}

// TestManyFaults: a file with thousands of errors has a hundred, and their number.
func TestManyFaults(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "unknown_key_%d: 1\n", i)
	}
	_, faults := decode(t, b.String())
	if n := strings.Count(faults, "\n") + 1; n != maxFaults+1 || !strings.HasPrefix(faults, "f.yaml:1:1: unknown_key_0: ") || !strings.HasSuffix(faults, "\nf.yaml: 2900 more errors") {
		t.Errorf("%d lines: %.100s ... %s", n, faults, faults[len(faults)-100:])
	}
}

// TestAliases: lists of aliases to lists of aliases have no billions of values.
func TestAliases(t *testing.T) {
	text := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'a'; c < 'h'; c++ {
		text += fmt.Sprintf("%c: &%c [%s*%c]\n", c+1, c+1, strings.Repeat(fmt.Sprintf("*%c, ", c), 9), c)
	}
	var v struct {
		A []string
		B [][]string
		C [][][]string
		D [][][][]string
		E [][][][][]string
		F [][][][][][]string
		G [][][][][][][]string
		H [][][][][][][][]string
	}
	d, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	faults := d.Decode(&v)
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "aliases repeat more than 100000 values") || len(v.D) != 10 || len(v.D[9][9][9]) != 10 {
		t.Errorf("%d faults: %v", len(faults), faults)
	}
}

// TestInfinite: no number is infinite, except in types whose own name says so. NaN is no number at all.
func TestInfinite(t *testing.T) {
	type bound float64
	var v struct {
		A float64
		B bound
		C float32
		D []float64
		E map[string]float64
		F *float64
	}
	for text, refused := range map[string]bool{"a: .inf": true, "b: -.inf": false, "b: .nan": true, "c: .nan": true, "d: [0, .NaN]": true, "e: {x: .inf}": true, "f: +.inf": true, "a: 1e308": false} {
		d, err := Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if faults := d.Decode(&v); refused != (len(faults) == 1 && strings.Contains(faults[0].Error(), "is not a finite number")) {
			t.Errorf("%s: %v", text, faults)
		}
	}
}
