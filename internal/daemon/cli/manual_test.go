package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/config"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/configuration.md")

// TestReference: the page of the configuration is that of the code.
func TestReference(t *testing.T) {
	const page = "../../../docs/reference/configuration.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || string(text) != reference() {
		t.Errorf("%s differs from the code (%v): run this test with -args -rewrite", page, err)
	}
}

// TestManual: the manual page has every key with its type, default and example, and its example is valid.
func TestManual(t *testing.T) {
	var out strings.Builder
	if code := Main([]string{"man", "roced.yaml"}, &out, os.Stderr); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	page := strings.ReplaceAll(out.String(), `\`, "")
	for _, k := range config.Keys() {
		if !strings.Contains(page, ".TP\n"+k.Name+"\n") || !strings.Contains(page, kind(k)+"; default: ") {
			t.Errorf("%s is missing", k.Name)
		}
	}
	for _, v := range variables() {
		if !strings.Contains(page, ".TP\n"+v[0]+"\n"+v[1]) {
			t.Errorf("%s is missing", v[0])
		}
	}
	if _, err := config.Read(strings.NewReader(example)); err != nil {
		t.Error(err)
	}
}

// TestCheck: check prints all faults of a file, with exit code 2.
func TestCheck(t *testing.T) {
	file := t.TempDir() + "/x.yaml"
	if err := os.WriteFile(file, []byte("drain: 3\nnics: [{name: a, mtu: 1, port: {type: tap}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, diag strings.Builder
	code := Main([]string{"check", "--config", file}, &out, &diag)
	want := "roced: " + file + ":1:8: drain: \"3\" is not a duration such as 5s\n" + file + ":2:23: nics.0.mtu: 1 is not between 576 and 65521\n"
	if code != exitUsage || diag.String() != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, diag.String(), want)
	}
}

// TestEffective: check prints each value with its origin, as text and as JSON.
func TestEffective(t *testing.T) {
	file := t.TempDir() + "/x.yaml"
	if err := os.WriteFile(file, []byte("drain: 3s\nnics: [{name: a, port: {type: tap}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROCED_LOG_LEVEL", "debug")
	var out, diag strings.Builder
	if code := Main([]string{"check", "-c", file, "--effective", "--set", "log.format=json"}, &out, &diag); code != 0 {
		t.Fatal(diag.String())
	}
	columns := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"drain 3s " + file + ":1 ", "log.level debug ROCED_LOG_LEVEL ", "log.format json --set log.format=json ", "nics.0.mtu 4200 default"} {
		if !strings.Contains(columns, want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	out.Reset()
	var values []config.Value
	if code := Main([]string{"check", "-c", file, "--effective", "--json"}, &out, &diag); code != 0 || json.Unmarshal([]byte(out.String()), &values) != nil {
		t.Fatal(diag.String(), out.String())
	}
	if !slices.Contains(values, config.Value{Key: "log.level", Value: "debug", Origin: "ROCED_LOG_LEVEL"}) {
		t.Errorf("%+v", values)
	}
}

// reference returns docs/reference/configuration.md.
func reference() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Configuration

For users and administrators of a daemon: all keys of its configuration. Written from the code by
%s; also the manual page roced.yaml(5).

%s

%s

Parameters beside %s and %s: [congestion control](congestion.md), [transports](../design/transports.md).
`, "`go test ./internal/daemon/cli -args -rewrite`", quoted(introduction), "  "+strings.ReplaceAll(example, "\n", "\n  "), "`algorithm`", "`name`")
	group := "-"
	for _, k := range config.Keys() {
		in := ""
		if i := strings.LastIndex(k.Name, "."); i >= 0 {
			in = k.Name[:i]
		}
		if in != group {
			group = in
			fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | reload | example | meaning |\n|---|---|---|---|---|---|\n", title(in))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | %s |\n", strings.TrimPrefix(k.Name, in+"."), kind(k), code(k.Default), yes(k.Reload), k.Example, k.Meaning)
	}
	fmt.Fprintf(&b, "\n## The environment\n\n%s\n\n| variable | key |\n|---|---|\n", quoted(environment))
	for _, v := range variables() {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", v[0], strings.TrimSuffix(v[1], "."))
	}
	return b.String()
}

func title(group string) string {
	if group == "" {
		return "The daemon"
	}
	return "`" + group + "`"
}

// code quotes a default that is a value, in contrast to words.
func code(def string) string {
	if def == "" || strings.ContainsAny(def, " `") {
		return def
	}
	return "`" + def + "`"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// quoted marks the quoted words as code.
func quoted(s string) string { return strings.ReplaceAll(s, `"`, "`") }
