package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"roced.io/roced/internal/base/strict"
)

// Key describes a key of the configuration.
type Key struct {
	Name    string // such as nics[].mtu
	Type    string
	Unit    string // empty: none
	Default string // empty: none
	Example string // a value in YAML
	Meaning string
	Reload  bool // a reload of the running daemon can change it
}

// reloadable are the keys that a reload changes, or the first parts of their names.
var reloadable = []string{"drain", "log.", "control.", "metrics.", "web.", "limits.", "nics[].faults", "nics[].access.", "nics[].congestion.algorithm",
	"nics[].transports.PROFILE.congestion.", "nics[].transports.PROFILE.cc_profiles."}

// reloads reports whether a reload can change a key of the table.
func reloads(key string) bool {
	return slices.ContainsFunc(reloadable, func(k string) bool { return key == k || strings.HasSuffix(k, ".") && strings.HasPrefix(key, k) })
}

// Keys describes all keys except those that only contain other keys.
func Keys() []Key {
	c := &Config{Drain: defaultDrain, NICs: []NIC{{Port: Port{Type: "tap", Planes: []Plane{{}}}, Access: Access{}, VLANs: []VLAN{{}}, Transports: map[string]Transport{"PROFILE": {
		EVProfiles: map[string]Part{"ID": {}}, CCProfiles: map[string]Part{"ID": {}}}},
		Share: Share{Users: []UserShare{{Weight: 1}}}}}}
	c.setDefaults()
	return keysOf("", reflect.ValueOf(*c))
}

// Scalars returns the keys with one value outside of NICs. The environment and --set can set them.
var Scalars = sync.OnceValue(func() (keys []string) {
	for _, k := range Keys() {
		if !strings.Contains(k.Name, "[]") && !strings.HasPrefix(k.Type, "list") {
			keys = append(keys, k.Name)
		}
	}
	return keys
})

// keysOf describes the keys of a struct: those with a value first, then those with keys of their own.
func keysOf(prefix string, v reflect.Value) (all []Key) {
	var deeper []Key
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := strict.Name(f)
		if name == "" {
			continue
		}
		name, field := prefix+name, v.Field(i)
		switch {
		case f.Type.Kind() == reflect.Struct:
			deeper = append(deeper, keysOf(name+".", field)...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			deeper = append(deeper, keysOf(name+"[].", field.Index(0))...)
		case f.Type.Kind() == reflect.Map:
			for _, key := range field.MapKeys() {
				deeper = append(deeper, keysOf(name+"."+key.String()+".", field.MapIndex(key))...)
			}
		default:
			all = append(all, describe(name, field))
		}
	}
	return append(all, deeper...)
}

// describe describes the key with that name and default value.
func describe(name string, value reflect.Value) Key {
	k := Key{Name: name, Reload: reloads(name), Type: typeName(value.Type()), Default: format(value)}
	m := meanings[name]
	k.Unit, k.Example, k.Meaning = m.unit, m.example, m.meaning
	if m.def != "" {
		k.Default = m.def
	}
	return k
}

// typeName returns the words for a type.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Poll]():
		return "duration, or busy"
	case reflect.TypeFor[Bytes]():
		return "size"
	case reflect.TypeFor[Mode]():
		return "octal mode"
	case reflect.TypeFor[MAC]():
		return "Ethernet address"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "number"
	}
	return "whole number"
}

// format formats a default as in a file; the zero value is empty.
func format(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.IsZero() && v.Kind() != reflect.Bool || v.Kind() == reflect.Slice {
		return ""
	}
	return text(v)
}
