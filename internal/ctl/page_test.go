package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenPage: no argument and no variable of the opened program has the token. The file with the token is private, also
// beside an older file that is not.
func TestOpenPage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\ntr '\\0' '\\n' </proc/$$/cmdline >"+dir+"/seen\nenv >>"+dir+"/seen\ncp -p \"$1\" "+dir+"/got\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "cache", "roced", "page.html")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const url = "http://127.0.0.1:9465/#token=SECRET"
	if err := openPage(url); err != nil {
		t.Fatal(err)
	}
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil || !strings.Contains(string(seen), "page.html") || strings.Contains(string(seen), "SECRET") {
		t.Errorf("%s, %v", seen, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "got"))
	if err != nil || !strings.Contains(string(got), `content="0; url=`+url+`"`) {
		t.Errorf("%s, %v", got, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "got")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(old)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := openPage("unix:/run/roced/page"); err == nil || !strings.Contains(err.Error(), "browsers open no Unix sockets") {
		t.Error(err)
	}
	t.Setenv("PATH", "/nowhere")
	if err := openPage(url); err == nil || !strings.Contains(err.Error(), "open "+old+" in a browser") {
		t.Error(err)
	}
}
