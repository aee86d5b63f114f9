package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/base/strict"
)

// Value is the value of a key, as in a file.
type Value struct {
	Key    string `json:"key"` // such as nics.0.mtu
	Value  string `json:"value"`
	Origin string `json:"origin"` // file:line, an environment variable, --set KEY=VALUE, or "default"

	known string // key in the table, such as nics[].mtu; that of its part for a parameter
}

const defaultOrigin = "default"

// set reports whether a source has set the value.
func (v Value) set() bool { return v.Origin != "" && v.Origin != defaultOrigin }

// Effective returns all values that a source has set or that have a default.
func (c *Config) Effective() []Value {
	w := walker{doc: c.doc}
	w.structure("", "", reflect.ValueOf(*c))
	return w.values
}

// walker collects the values of a configuration.
type walker struct {
	doc    *strict.Document
	values []Value
}

func (w *walker) structure(key, known string, v reflect.Value) {
	first := ""
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := strict.Name(f)
		switch {
		case name != "":
			if first == "" {
				first = known + name
			}
			w.value(key+name, known+name, v.Field(i))
		case f.Type.Kind() == reflect.Map && f.IsExported(): // parameters
			for _, param := range sortedKeys(v.Field(i)) {
				w.value(key+param.String(), first, v.Field(i).MapIndex(param))
			}
		}
	}
}

func (w *walker) value(key, known string, v reflect.Value) {
	switch t := v.Type(); {
	case t.Kind() == reflect.Struct:
		w.structure(key+".", known+".", v)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			w.structure(fmt.Sprintf("%s.%d.", key, i), known+"[].", v.Index(i))
		}
	case t.Kind() == reflect.Map:
		name := "ID"
		if strings.HasSuffix(known, ".transports") {
			name = "PROFILE"
		}
		for _, k := range sortedKeys(v) {
			w.structure(key+"."+k.String()+".", known+"."+name+".", v.MapIndex(k))
		}
	default:
		w.leaf(key, known, v)
	}
}

// leaf adds a value, unless it is unset and has no default.
func (w *walker) leaf(key, known string, v reflect.Value) {
	origin := w.doc.Origin(key)
	if origin == "" && v.IsZero() && v.Kind() != reflect.Bool {
		return
	}
	if origin == "" {
		origin = defaultOrigin
	}
	w.values = append(w.values, Value{Key: key, Value: text(v), Origin: origin, known: known})
}

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
}

// text formats a value as in a file.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case Mode:
		return fmt.Sprintf("%04o", os.FileMode(x))
	case []string:
		if len(x) == 0 {
			return ""
		}
		return "[" + strings.Join(x, ", ") + "]"
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case time.Duration, Poll:
		return strings.ReplaceAll(fmt.Sprint(x), "µ", "u")
	}
	return fmt.Sprint(v.Interface())
}
