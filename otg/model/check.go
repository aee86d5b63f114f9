package model

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// findings collects the errors and warnings of a request.
type findings struct {
	errors, warnings []string
}

// maxErrors limits the errors of a request.
const maxErrors = 1000

func (f *findings) errorf(format string, args ...any) {
	switch len(f.errors) {
	case maxErrors:
	case maxErrors - 1:
		f.errors = append(f.errors, "more errors: correct those above first")
	default:
		f.errors = append(f.errors, fmt.Sprintf(format, args...))
	}
}

func (f *findings) warnf(format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf(format, args...))
}

// check checks a message and all messages below it against the table, and sets defaults. path is the message's name in errors; empty
// for a root.
func (f *findings) check(m proto.Message, path string) { f.message(m.ProtoReflect(), path) }

func (f *findings) message(m protoreflect.Message, path string) {
	if len(m.GetUnknown()) > 0 {
		f.errorf("%sfields that %s of this version lacks; use version %s of the model", prefix(path), m.Descriptor().Name(), Version)
	}
	chosen := f.choose(m, path)
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		fd := all.Get(i)
		at := prefixed(path, string(fd.Name()))
		row := table[string(m.Descriptor().Name())+"."+string(fd.Name())]
		if row == nil {
			if m.Has(fd) && fd.Name() != "choice" {
				f.errorf("%s: roceotg does not support this field; remove it", at)
			}
			continue
		}
		if isVariant(m, fd) && string(fd.Name()) != chosen {
			if m.Has(fd) {
				f.errorf("%s: is set, but choice is %q; remove one of them", at, chosen)
				m.Clear(fd) // the translation does not choose
			}
			continue
		}
		f.complete(m, fd, row, at)
		if m.Has(fd) {
			f.value(m, fd, row, at)
		}
	}
}

// complete sets the default of a field that is absent.
func (f *findings) complete(m protoreflect.Message, fd protoreflect.FieldDescriptor, row *field, at string) {
	switch {
	case m.Has(fd) || fd.Name() == "choice":
	case row.required:
		f.errorf("%s: is missing; set it", at)
	case row.create:
		m.Set(fd, m.NewField(fd))
	case row.def != "" && !fd.IsList():
		m.Set(fd, scalar(fd, row.def))
	}
}

// value checks a field that is set, and the messages in it.
func (f *findings) value(m protoreflect.Message, fd protoreflect.FieldDescriptor, row *field, at string) {
	switch {
	case fd.IsList() && fd.Message() != nil:
		list := m.Get(fd).List()
		for i := range list.Len() {
			f.message(list.Get(i).Message(), fmt.Sprintf("%s[%d]", at, i))
		}
	case fd.IsList():
		list := m.Get(fd).List()
		for i := range list.Len() {
			f.scalar(fd, list.Get(i), row, fmt.Sprintf("%s[%d]", at, i))
		}
	case fd.Message() != nil:
		f.message(m.Get(fd).Message(), at)
	default:
		if f.scalar(fd, m.Get(fd), row, at) {
			break
		}
		m.Clear(fd) // the translation looks for more errors, and needs values in their ranges
		if row.def != "" {
			m.Set(fd, scalar(fd, row.def))
		}
	}
}

// scalar checks a value, and reports whether it is permitted.
func (f *findings) scalar(fd protoreflect.FieldDescriptor, v protoreflect.Value, row *field, at string) bool {
	text := textOf(fd, v)
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case text == "unspecified" || fd.Enum() != nil && fd.Enum().Values().ByNumber(v.Enum()) == nil:
		f.errorf("%s: %s: is not a value of the model; set another one", at, text)
	case row.required && text == "":
		f.errorf("%s: is empty; set it", at)
	case !row.permits(text):
		f.errorf("%s: %s: roceotg supports only %s", at, text, strings.Join(row.only, ", "))
	case row.low != row.high && err == nil && !(n >= row.low && n <= row.high):
		f.errorf("%s: %s: must be %s to %s", at, text, short(row.low), short(row.high))
	default:
		if row.unused && text != row.def {
			f.warnf("%s: %s has no effect: %s", at, text, row.reading)
		}
		return true
	}
	return false
}

// choose returns the variant of a message with a choice, and sets an absent choice: to the only variant that is set, or
// to the default.
func (f *findings) choose(m protoreflect.Message, path string) string {
	fd := m.Descriptor().Fields().ByName("choice")
	if fd == nil || fd.Enum() == nil {
		return ""
	}
	row := table[string(m.Descriptor().Name())+".choice"]
	if m.Has(fd) {
		chosen := textOf(fd, m.Get(fd))
		if v := m.Descriptor().Fields().ByName(protoreflect.Name(chosen)); v != nil && (row == nil || row.permits(chosen)) &&
			table[string(m.Descriptor().Name())+"."+chosen] == nil {
			f.errorf("%schoice: roceotg does not support %q", prefix(path), chosen)
		}
		return chosen
	}
	var set []string
	m.Range(func(v protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if isVariant(m, v) {
			set = append(set, string(v.Name()))
		}
		return true
	})
	chosen := ""
	if len(set) == 1 {
		chosen = set[0]
	} else if row != nil {
		chosen = row.def
	}
	if chosen != "" {
		m.Set(fd, scalar(fd, chosen))
	} else if row != nil && row.required {
		f.errorf("%schoice: is missing; set it", prefix(path))
	}
	return chosen
}

// isVariant reports whether a field is one of those that the message's choice selects.
func isVariant(m protoreflect.Message, fd protoreflect.FieldDescriptor) bool {
	choice := m.Descriptor().Fields().ByName("choice")
	return choice != nil && choice.Enum() != nil && choice.Enum().Values().ByName(fd.Name()) != nil
}

// scalar converts a default of the table.
func scalar(fd protoreflect.FieldDescriptor, text string) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().ByName(protoreflect.Name(text)).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(text == "true")
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number(text)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number(text)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(number(text)))
	}
	panic("fields.txt: " + string(fd.FullName()) + " has a default of a kind that no field has")
}

// textOf returns a value as the table and JSON write it.
func textOf(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if fd.Kind() == protoreflect.EnumKind {
		if e := fd.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
		return strconv.Itoa(int(v.Enum()))
	}
	return v.String()
}

func prefixed(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + "."
}

func short(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
