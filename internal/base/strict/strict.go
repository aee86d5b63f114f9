// Package strict decodes YAML files into structs. Unknown and duplicate keys and values of the wrong type are errors, which
// are reported all at once with file, line, column and key. Names of fields are those of the tag yaml, or in lower case.
package strict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/base/suggest"
)

// Document is a file as read, with the requested changes.
type Document struct {
	path string
	root *yaml.Node
	set  map[*yaml.Node]string // changed values, and the origin of the change
}

// Fault is an error about a key of a file.
type Fault struct {
	Key          string // such as "topology.k"; empty: the whole file
	Line, Column int    // 0 if a change set the key
	Err          error
	place        string
}

// Error returns place, key and error.
func (f *Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("%s: %v", f.place, f.Err)
	}
	return fmt.Sprintf("%s: %s: %v", f.place, f.Key, f.Err)
}

// Unwrap returns the error without place and key.
func (f *Fault) Unwrap() error { return f.Err }

// Faults are all faults of a file.
type Faults []*Fault

// Error returns a line for each fault.
func (all Faults) Error() string {
	var lines []string
	for _, f := range all {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

// syntax matches an error of the YAML parser.
var syntax = regexp.MustCompile(`^(?:line (\d+): )?(.*)$`)

// Parse parses a file of one YAML document. path is its name in errors.
func Parse(path string, text []byte) (*Document, error) {
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&doc)
	for err == nil && null(&second) { // separators without content are harmless
		err = d.Decode(&second)
	}
	if err != nil && err != io.EOF {
		m := syntax.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
		if m[1] != "" {
			path += ":" + m[1]
		}
		return nil, fmt.Errorf("%s: this is not YAML: %s", path, m[2])
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: the file is empty", path)
	}
	if !null(&second) {
		return nil, fmt.Errorf("%s:%d: a second document; the file must have one", path, second.Line)
	}
	return &Document{path: path, root: doc.Content[0], set: map[*yaml.Node]string{}}, nil
}

// null reports whether a YAML document has no content.
func null(doc *yaml.Node) bool { return len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" }

// Change sets a key: "a.b.c=value", where the value is YAML. It creates missing mappings. Errors about the key name the
// option --set.
func (d *Document) Change(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return fmt.Errorf("--set %q is not key=value", text)
	}
	var v yaml.Node
	if err := yaml.Unmarshal([]byte(value), &v); err != nil || len(v.Content) == 0 {
		return fmt.Errorf("--set %s: the value is not YAML", text)
	}
	return d.put(key, v.Content[0], "--set "+text)
}

// Override sets a key to a scalar value. It creates missing mappings. origin, such as the name of a variable, is the place of
// the key in errors.
func (d *Document) Override(key, value, origin string) error {
	return d.put(key, &yaml.Node{Kind: yaml.ScalarNode, Value: value}, origin)
}

func (d *Document) put(key string, value *yaml.Node, origin string) error {
	n, keys := d.root, strings.Split(key, ".")
	for i, k := range keys {
		next := child(n, k)
		if next == nil {
			if isNull(n) { // "key:" without a value
				*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
			}
			if n.Kind != yaml.MappingNode {
				return fmt.Errorf("%s: there is no %q", origin, strings.Join(keys[:i+1], "."))
			}
			next = &yaml.Node{Kind: yaml.MappingNode}
			d.set[next] = origin
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k}, next)
		}
		n = next
	}
	*n = *value
	d.set[n] = origin
	return nil
}

// Origin returns the place of a key: file and line, or the origin of a change; "" for a missing key.
func (d *Document) Origin(key string) string {
	n, origin := d.root, d.set[d.root]
	for k := range strings.SplitSeq(key, ".") {
		if n = child(n, k); n == nil {
			return ""
		}
		if changed, ok := d.set[n]; ok {
			origin = changed
		}
	}
	if origin == "" {
		origin = fmt.Sprintf("%s:%d", d.path, n.Line)
	}
	return origin
}

// Decode decodes the file into the struct that v points to. It returns all unknown keys and all values of the wrong type, up
// to maxFaults.
func (d *Document) Decode(v any) Faults {
	x := decoder{Document: d}
	x.decode(d.root, "", reflect.ValueOf(v).Elem())
	if x.more > 0 {
		x.faults = append(x.faults, &Fault{Err: fmt.Errorf("%d more errors", x.more), place: d.path})
	}
	return x.faults
}

const (
	maxFaults = 100
	// maxAliased limits the values that aliases repeat: with lists of aliases to lists, a short file has billions.
	maxAliased = 100_000
)

// Only rejects keys of the mapping at key besides the allowed ones. kind names the owner of the keys.
func (d *Document) Only(key, kind string, allowed []string) error {
	n := d.root
	for k := range strings.SplitSeq(key, ".") {
		if n = child(n, k); n == nil {
			return nil
		}
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
next:
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		for _, a := range allowed {
			if a == name {
				continue next
			}
		}
		return d.At(join(key, name), "%s has no such key, only %s", kind, strings.Join(allowed, ", "))
	}
	return nil
}

// At returns an error about the value of a key such as "topology.k". For a missing key it names the place of its nearest
// existing parent.
func (d *Document) At(key, format string, args ...any) error { return d.Fault(key, format, args...) }

// Fault is like At.
func (d *Document) Fault(key, format string, args ...any) *Fault {
	n, words, at := d.root, d.set[d.root], d.root
	for k := range strings.SplitSeq(key, ".") {
		next := child(n, k)
		if next == nil {
			break
		}
		n = next
		if w, ok := d.set[n]; ok {
			words = w
		}
		if n.Line > 0 {
			at = n
		}
	}
	f := &Fault{Key: key, Err: fmt.Errorf(format, args...)}
	if f.place = words; words == "" {
		f.move(d.path, at)
	}
	return f
}

// move sets the place of a fault to a node.
func (f *Fault) move(path string, n *yaml.Node) {
	f.Line, f.Column, f.place = n.Line, n.Column, fmt.Sprintf("%s:%d:%d", path, n.Line, n.Column)
}

// child returns a value of a mapping or an element of a list.
func child(n *yaml.Node, key string) *yaml.Node {
	switch n.Kind {
	case yaml.AliasNode:
		return child(n.Alias, key)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

// decoder decodes a document and collects its faults.
type decoder struct {
	*Document
	faults  Faults
	more    int    // faults beyond maxFaults
	at      string // origin of the change of the value that is being decoded; empty: it is from the file
	aliases int    // that contain this value
	aliased int    // values inside of aliases
}

// add adds a fault at n.
func (d *decoder) add(n *yaml.Node, key, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.more++
		return
	}
	f := &Fault{Key: key, Err: fmt.Errorf(format, args...), place: d.at}
	if d.at == "" {
		f.move(d.path, n)
	}
	d.faults = append(d.faults, f)
}

// addKey adds a fault of the i-th key of a mapping.
func (d *decoder) addKey(n *yaml.Node, i int, key, format string, args ...any) {
	defer d.enter(n.Content[i+1])()
	d.add(n.Content[i], key, format, args...)
}

// enter notes the origin of n if a change set it. The returned function leaves n.
func (d *decoder) enter(n *yaml.Node) func() {
	before := d.at
	d.at = cmp.Or(d.set[n], before)
	return func() { d.at = before }
}

// decode decodes n, the value of key, into v.
func (d *decoder) decode(n *yaml.Node, key string, v reflect.Value) {
	defer d.enter(n)()
	if n.Kind == yaml.AliasNode {
		d.aliases++
		defer func() { d.aliases-- }()
		use := *n.Alias // with the place of the alias
		use.Line, use.Column, n = n.Line, n.Column, &use
	}
	if d.aliases > 0 {
		switch d.aliased++; {
		case d.aliased == maxAliased:
			d.add(n, key, "aliases repeat more than %d values", maxAliased)
			return
		case d.aliased > maxAliased:
			return
		}
	}
	_, own := v.Addr().Interface().(yaml.Unmarshaler)
	switch {
	case own:
		d.scalar(n, key, v)
	case isNull(n):
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, key, v.Elem())
	case v.Kind() == reflect.Struct:
		d.decodeStruct(n, key, v)
	case v.Kind() == reflect.Map:
		d.decodeMap(n, key, v)
	case v.Kind() == reflect.Slice:
		d.decodeSlice(n, key, v)
	case v.Type() == reflect.TypeFor[time.Duration]():
		t, err := time.ParseDuration(n.Value)
		if err != nil {
			d.add(n, key, "%q is not a duration such as 5s", n.Value)
		}
		v.SetInt(int64(t))
	default:
		d.scalar(n, key, v)
	}
}

// scalar decodes a number, a word or a value with a parser of its own. Numbers are finite, except those of types that say so:
// named ones, in which infinity stands for no bound.
func (d *decoder) scalar(n *yaml.Node, key string, v reflect.Value) {
	if err := n.Decode(v.Addr().Interface()); err != nil {
		d.add(n, key, "%w", reason(n, v, err))
	}
	if v.CanFloat() && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) && v.Type() == reflect.TypeFor[float64]()) {
		d.add(n, key, "%q is not a finite number", n.Value)
	}
}

// isNull reports whether the value is missing: "key:".
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// reason explains an error of the YAML package.
func reason(n *yaml.Node, v reflect.Value, err error) error {
	var kind *yaml.TypeError
	if !errors.As(err, &kind) {
		return err
	}
	what := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a word", reflect.Float64: "a number", reflect.Uint64: "a whole number, not negative", reflect.Uint32: "a whole number, not negative"}[v.Kind()]
	if what == "" {
		what = "a whole number"
	}
	if n.Kind != yaml.ScalarNode {
		return errors.New("it is " + what)
	}
	return fmt.Errorf("%q is not %s", n.Value, what)
}

func (d *decoder) decodeSlice(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(n, key, "expected a list: [...]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		d.decode(e, join(key, strconv.Itoa(i)), v.Index(i))
	}
}

func (d *decoder) decodeMap(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.add(n, key, "expected a mapping: {name: ...}")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, reflect.New(v.Type().Elem()).Elem()
		if v.MapIndex(reflect.ValueOf(name)).IsValid() {
			d.addKey(n, i, join(key, name), "duplicate key")
			continue
		}
		d.decode(n.Content[i+1], join(key, name), value)
		v.SetMapIndex(reflect.ValueOf(name), value)
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.add(n, key, "expected a mapping: {%s: ...}", strings.Join(names(v.Type()), ": ..., "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		full := join(key, name)
		field, more := fieldOf(v, name)
		switch {
		case seen[name]:
			d.addKey(n, i, full, "duplicate key")
		case field.IsValid():
			d.decode(n.Content[i+1], full, field)
		case more.IsValid():
			var x float64
			d.decode(n.Content[i+1], full, reflect.ValueOf(&x).Elem())
			if more.IsNil() {
				more.Set(reflect.MakeMap(more.Type()))
			}
			more.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(x))
		default:
			d.addKey(n, i, full, "unknown key; the keys are %s%s", strings.Join(names(v.Type()), ", "), suggest.Hint(name, names(v.Type())))
		}
		seen[name] = true
	}
}

// fieldOf returns the field of a key, or the map for keys without a field.
func fieldOf(v reflect.Value, name string) (field, more reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case isHidden(f):
		case isInline(f) && f.Type.Kind() == reflect.Map:
			more = v.Field(i)
		case isInline(f):
			if field, _ := fieldOf(v.Field(i), name); field.IsValid() {
				return field, more
			}
		case Name(f) == name:
			return v.Field(i), more
		}
	}
	return field, more
}

func isHidden(f reflect.StructField) bool { return !f.IsExported() || f.Tag.Get("yaml") == "-" }

func isInline(f reflect.StructField) bool { return f.Tag.Get("yaml") == ",inline" }

// Name returns the key of a field, "" if it has none.
func Name(f reflect.StructField) string {
	switch tag := f.Tag.Get("yaml"); {
	case isHidden(f), isInline(f):
		return ""
	case tag != "":
		return tag
	}
	return strings.ToLower(f.Name)
}

// names returns the keys of a struct.
func names(t reflect.Type) (all []string) {
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case isHidden(f) || isInline(f) && f.Type.Kind() == reflect.Map:
		case isInline(f):
			all = append(all, names(f.Type)...)
		default:
			all = append(all, Name(f))
		}
	}
	return all
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
