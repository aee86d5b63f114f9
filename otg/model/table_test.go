package model

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// descriptor finds a message of OTG's model by its short name.
func descriptor(t *testing.T, name string) protoreflect.MessageDescriptor {
	t.Helper()
	full := otg.File_otg_proto.Package().Append(protoreflect.Name(name))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		t.Fatalf("fields.txt: %s: OTG has no such message: %v", name, err)
	}
	return d.(protoreflect.MessageDescriptor)
}

// TestTableNames: each line names a field of the model, and values of its enumeration.
func TestTableNames(t *testing.T) {
	for _, f := range fields {
		message, name, _ := strings.Cut(f.name, ".")
		fd := descriptor(t, message).Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			t.Errorf("fields.txt: %s: OTG has no such field", f.name)
			continue
		}
		if fd.Enum() == nil {
			continue
		}
		for _, v := range append(f.only, f.def) {
			if v != "" && fd.Enum().Values().ByName(protoreflect.Name(v)) == nil {
				t.Errorf("fields.txt: %s: %q is no value of %s", f.name, v, fd.Enum().FullName())
			}
		}
	}
}

// TestTableDefaults: the defaults are those of the model, whose source has them in comments.
func TestTableDefaults(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/open-traffic-generator/snappi/gosnappi").Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "otg", "otg.proto"))
	if err != nil {
		t.Fatal(err)
	}
	defaults := modelDefaults(string(b))
	if len(defaults) < 1000 {
		t.Fatalf("otg.proto: found only %d defaults", len(defaults))
	}
	for _, f := range fields {
		want, ok := defaults[f.name]
		if f.def != "" && ok && !strings.EqualFold(f.def, want) {
			t.Errorf("fields.txt: %s: default %q, the model has %q", f.name, f.def, want)
		}
		if ok && f.def == "" && !strings.HasPrefix(want, "[") {
			t.Errorf("fields.txt: %s: lacks the model's default %q", f.name, want)
		}
	}
}

// modelDefaults returns the defaults in comments of otg.proto by message and field.
func modelDefaults(source string) map[string]string {
	message := regexp.MustCompile(`^message (\w+) \{`)
	value := regexp.MustCompile(`^  // default = (?:Choice\.Enum\.|\w+\.Enum\.)?(\S+)`)
	declared := regexp.MustCompile(`^  (?:optional |repeated )?[\w.]+ (\w+) = \d+;`)
	out := map[string]string{}
	current, def := "", ""
	for line := range strings.Lines(source) {
		if m := message.FindStringSubmatch(line); m != nil {
			current, def = m[1], ""
		} else if m := value.FindStringSubmatch(line); m != nil {
			def = m[1]
		} else if m := declared.FindStringSubmatch(line); m != nil {
			if def != "" {
				out[current+"."+m[1]] = def
			}
			def = ""
		}
	}
	return out
}

// TestNothingIgnored sets each field of the supported messages that the table lacks. Check refuses each by name.
func TestNothingIgnored(t *testing.T) {
	seen, refused := map[string]bool{}, 0
	for _, f := range fields {
		message, _, _ := strings.Cut(f.name, ".")
		if seen[message] {
			continue
		}
		seen[message] = true
		d := descriptor(t, message)
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			if table[message+"."+string(fd.Name())] != nil || fd.Name() == "choice" {
				continue
			}
			m := kind.New()
			if fd.IsList() {
				list := m.Mutable(fd).List()
				if fd.Message() != nil {
					list.Append(list.NewElement())
				} else {
					list.Append(element(fd))
				}
			} else if fd.Message() != nil {
				m.Set(fd, m.NewField(fd))
			} else {
				m.Set(fd, element(fd))
			}
			found := &findings{}
			found.message(m, "")
			if !strings.Contains(strings.Join(found.errors, "\n"), string(fd.Name())) {
				t.Errorf("%s.%s: ignored; errors are %q", message, fd.Name(), found.errors)
			}
			refused++
		}
	}
	if refused < 100 {
		t.Errorf("only %d fields are refused", refused)
	}
}

// element returns a value that differs from the zero value.
func element(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	default:
		return protoreflect.ValueOfUint32(1)
	}
}
