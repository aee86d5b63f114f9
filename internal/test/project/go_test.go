package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNeedsGo: a Go that cannot fetch the one of go.mod gets one sentence.
func TestNeedsGo(t *testing.T) {
	for version, old := range map[string]bool{"1.9": true, "1.19.8": true, "1.20": true, "1.21.1": false, "1.26.2": false, "2.0": false, "": true} {
		program := filepath.Join(t.TempDir(), "go")
		if version != "" {
			script := "#!/bin/sh\necho go version go" + version + " linux/amd64\n"
			if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("../../../tools/scripts/needs-go", program).CombinedOutput()
		if (err != nil) != old || old && (strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "https://go.dev/dl/")) {
			t.Errorf("Go %s: %v, %s", version, err, out)
		}
	}
}

// TestSameVersions: modules that contain this one require its versions, since they are built without a network.
func TestSameVersions(t *testing.T) {
	versions := func(file string) map[string]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^\s(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	own := versions("../../../go.mod")
	files, err := filepath.Glob("../../../examples/*/go.mod")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../../../otg/go.mod") {
		for module, v := range versions(file) {
			if want, ok := own[module]; ok && v != want && module != "roced.io/roced" {
				t.Errorf("%s: %s %s, this module has %s: go mod tidy", file, module, v, want)
			}
		}
	}
}
