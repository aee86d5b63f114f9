package scenario

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a file as read, with the requested changes.
type document struct {
	path string
	root *yaml.Node
	set  map[*yaml.Node]string // changed values, and the text of the change
}

// place returns the location of a key's value: the file and line, or the --set option that changed it. For a
// missing key it is the location of its nearest existing parent.
func (d *document) place(key string) string {
	n, words, line := d.root, "", d.root.Line
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
			line = n.Line
		}
	}
	if words != "" {
		return "--set " + words
	}
	return d.path + ":" + strconv.Itoa(line)
}

// at returns an error about the value of a key such as "topology.k".
func (d *document) at(key, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %s", d.place(key), key, fmt.Sprintf(format, args...))
}

// decode decodes n, the value of key, into v. It reports all unknown keys and all values of the wrong type.
func (d *document) decode(n *yaml.Node, key string, v reflect.Value) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	_, own := v.Addr().Interface().(yaml.Unmarshaler)
	switch {
	case own:
	case isNull(n):
		return nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(n, key, v.Elem())
	case v.Kind() == reflect.Struct:
		return d.decodeStruct(n, key, v)
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		var errs []error
		for i, e := range n.Content {
			errs = append(errs, d.decode(e, join(key, strconv.Itoa(i)), v.Index(i)))
		}
		return errors.Join(errs...)
	case v.Kind() == reflect.Slice:
		return d.at(key, "expected a list: [...]")
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		return d.at(key, "%s", reason(n, v, err))
	}
	return nil
}

// isNull reports whether the value is missing: "key:".
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// reason explains an error of the YAML package.
func reason(n *yaml.Node, v reflect.Value, err error) string {
	var kind *yaml.TypeError
	if !errors.As(err, &kind) {
		return strings.TrimPrefix(err.Error(), "yaml: ")
	}
	what := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a word", reflect.Float64: "a number", reflect.Uint64: "a whole number, not negative", reflect.Uint32: "a whole number, not negative"}[v.Kind()]
	if what == "" {
		what = "a whole number"
	}
	if n.Kind != yaml.ScalarNode {
		return "it is " + what
	}
	return fmt.Sprintf("%q is not %s", n.Value, what)
}

func (d *document) decodeStruct(n *yaml.Node, key string, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return d.at(key, "expected a mapping: {%s: ...}", strings.Join(fieldNames(v.Type()), ": ..., "))
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		full := join(key, name)
		field, more := fieldOf(v, name)
		switch {
		case seen[name]:
			errs = append(errs, d.at(full, "duplicate key"))
		case field.IsValid():
			errs = append(errs, d.decode(n.Content[i+1], full, field))
		case more.IsValid():
			var x float64
			errs = append(errs, d.decode(n.Content[i+1], full, reflect.ValueOf(&x).Elem()))
			if more.IsNil() {
				more.Set(reflect.MakeMap(more.Type()))
			}
			more.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(x))
		default:
			errs = append(errs, d.at(full, "unknown key; the keys are %s", strings.Join(fieldNames(v.Type()), ", ")))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// fieldOf returns the field of a key, or the map for keys without a field.
func fieldOf(v reflect.Value, name string) (field, more reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported():
		case isInline(f) && f.Type.Kind() == reflect.Map:
			more = v.Field(i)
		case isInline(f):
			if field, _ := fieldOf(v.Field(i), name); field.IsValid() {
				return field, more
			}
		case fieldName(f) == name:
			return v.Field(i), more
		}
	}
	return field, more
}

func isInline(f reflect.StructField) bool { return f.Tag.Get("yaml") == ",inline" }

func fieldName(f reflect.StructField) string {
	if tag := f.Tag.Get("yaml"); tag != "" {
		return tag
	}
	return strings.ToLower(f.Name)
}

// fieldNames returns the keys of a struct.
func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case !f.IsExported() || isInline(f) && f.Type.Kind() == reflect.Map:
		case isInline(f):
			names = append(names, fieldNames(f.Type)...)
		default:
			names = append(names, fieldName(f))
		}
	}
	return names
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
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

// change sets a key: "a.b.c=value". It creates missing mappings.
func (d *document) change(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return fmt.Errorf("--set %q is not key=value", text)
	}
	n, keys := d.root, strings.Split(key, ".")
	for i, k := range keys {
		next := child(n, k)
		if next == nil {
			if isNull(n) { // "key:" without a value
				*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
			}
			if n.Kind != yaml.MappingNode {
				return fmt.Errorf("--set %s: there is no %q", text, strings.Join(keys[:i+1], "."))
			}
			next = &yaml.Node{Kind: yaml.MappingNode}
			d.set[next] = text
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k}, next)
		}
		n = next
	}
	var v yaml.Node
	if err := yaml.Unmarshal([]byte(value), &v); err != nil || len(v.Content) == 0 {
		return fmt.Errorf("--set %s: the value is not YAML", text)
	}
	*n = *v.Content[0]
	d.set[n] = text
	return nil
}
