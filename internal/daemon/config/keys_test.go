package config

import (
	"strings"
	"testing"

	"roced.io/roced/internal/base/strict"
)

// nested returns YAML with one key, such as nics[].mtu.
func nested(key, value string) string {
	before, rest, more := strings.Cut(key, ".")
	name, list := strings.CutSuffix(before, "[]")
	if more {
		value = nested(rest, value)
	}
	if list {
		value = "[" + value + "]"
	}
	return "{" + name + ": " + value + "}"
}

// TestKeys: every key has a meaning and an example that can be read, and every described key exists.
func TestKeys(t *testing.T) {
	keys := Keys()
	if len(keys) != len(meanings) {
		t.Errorf("%d keys, %d meanings", len(keys), len(meanings))
	}
	for _, k := range keys {
		if k.Meaning == "" || k.Example == "" {
			t.Errorf("%s: no meaning or no example", k.Name)
		}
		doc, err := strict.Parse("x", []byte(nested(k.Name, k.Example)))
		if err != nil {
			t.Fatal(err)
		}
		if faults := doc.Decode(&Config{}); faults != nil {
			t.Errorf("%s: %v", k.Name, faults)
		}
	}
}

// TestKeyDefaults: defaults are those of the code, in the units of a file.
func TestKeyDefaults(t *testing.T) {
	got := map[string]string{}
	for _, k := range Keys() {
		got[k.Name] = k.Type + ", " + k.Default
	}
	for name, want := range map[string]string{
		"drain": "duration, 5s", "limits.memory": "size, 16G", "limits.qps": "whole number, 4096", "control.mode": "octal mode, 0666",
		"nics[].poll": "duration, or busy, 50us", "nics[].congestion.cnp_dscp": "whole number, 48", "web.control": "true or false, false",
		"nics[].congestion.cnp_interval": "duration, 50us", "nics[].access.users": "list of text, all",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
