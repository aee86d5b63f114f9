package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../../.."

// TestAssets: the committed assets match the sources.
func TestAssets(t *testing.T) {
	want, err := Make(filepath.Join(root, "internal/daemon/web/page"))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadDir(filepath.Join(root, Assets))
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(want) {
		t.Errorf("%d files, not %d: make web", len(have), len(want))
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(root, Assets, name))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not made of its sources: make web (%v)", name, err)
		}
	}
}

// TestNoOtherHost: no file of the page contains a host's address, except XML names.
func TestNoOtherHost(t *testing.T) {
	files, err := Make(filepath.Join(root, "internal/daemon/web/page"))
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`(?:https?:|wss?:)?//[A-Za-z0-9][A-Za-z0-9.-]*\.[a-z]{2,}[^"'\s]*`)
	for name, text := range files {
		for _, found := range address.FindAllString(string(text), -1) {
			if !strings.HasPrefix(found, "http://www.w3.org/") {
				t.Errorf("%s: %s", name, found)
			}
		}
	}
}

// TestSourcesAreReadable limits the line length of sources, as for Go.
func TestSourcesAreReadable(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "internal/daemon/web/page/src/*"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%d sources, %v", len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > 500 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
}

// TestPackages: a package that differs from the pinned one is refused, and so is a lock file that names a server.
func TestPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "internal/daemon/web/page/package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(filepath.Join(root, "internal/daemon/web/page/*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("%v, %v", archives, err)
	}
	archive, err := os.ReadFile(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(archive)
	changed[len(changed)/2]++
	named := strings.Replace(string(text), `"integrity"`, `"resolved": "a", "integrity"`, 1)
	for _, c := range []struct {
		lock    string
		archive []byte
		want    string
	}{
		{string(text), archive, ""},
		{string(text), changed, "has sha512-"},
		{named, archive, "names the server"},
	} {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"package-lock.json": []byte(c.lock), filepath.Base(archives[0]): c.archive} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Packages(dir)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
