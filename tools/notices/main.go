// Command notices writes THIRD_PARTY_NOTICES: the licences of all third-party code in the programs of cmd/, of this module or
// of another one. Many of these licences require it. A test compares the file with the programs' dependencies.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"roced.io/roced/internal/daemon/web/bundle"
)

func main() {
	out := flag.String("out", "THIRD_PARTY_NOTICES", "file to write")
	dir := flag.String("dir", ".", "folder of the module")
	flag.Parse()
	text, err := notices(*dir)
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// architectures are the architectures of the packages.
var architectures = []string{"amd64", "arm64"}

const head = `roced is under the Apache License 2.0 (LICENSE), its programs in eBPF under the GPL 2.0 or the
BSD 2-clause licence (bpf/LICENSE.*). The programs roced, rocectl, roceperf and rocesim contain
what is listed here, under these licences. Written by "go run ./tools/notices".
`

// page is the folder of the live page in this module, whose packages the programs contain.
const page = "internal/daemon/web/page"

const rule = "\n--------------------------------------------------------------------------------\n"

// notices returns the text for the module in a folder.
func notices(dir string) ([]byte, error) {
	files := map[string]string{} // licence file by module or package
	for _, arch := range architectures {
		if err := collect(dir, arch, files); err != nil {
			return nil, err
		}
	}
	of := map[string][]string{} // modules and packages by text
	for name, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		of[clean(text)] = append(of[clean(text)], name)
	}
	packages := map[string]bundle.Package{}
	if _, err := os.Stat(filepath.Join(dir, page)); err == nil {
		if packages, err = bundle.Packages(filepath.Join(dir, page)); err != nil {
			return nil, err
		}
	}
	for name, p := range packages {
		text, ok := p.Files["LICENSE"]
		if !ok {
			return nil, fmt.Errorf("%s has no licence", name)
		}
		of[clean(text)] = append(of[clean(text)], name+" "+p.Version+", in the live page")
	}
	var sections []string
	for text, names := range of {
		slices.Sort(names)
		sections = append(sections, strings.Join(names, "\n")+"\n\n"+text+"\n")
	}
	slices.Sort(sections)
	return []byte(head + rule + strings.Join(sections, rule)), nil
}

// clean normalizes a text, so that formatting differences do not count.
func clean(text []byte) string {
	return strings.Trim(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
}

// dependency has the fields that are read from go list.
type dependency struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// collect finds the licences of the packages in the programs for an architecture.
func collect(dir, arch string, files map[string]string) error {
	c := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/...")
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%v: %w", c.Args, err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p dependency
		err := d.Decode(&p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case p.Standard:
			files["Go's standard library"] = filepath.Join(strings.TrimSpace(string(root)), "LICENSE")
		case p.Module != nil && !p.Module.Main:
			if err := p.licences(files); err != nil {
				return err
			}
		}
	}
}

var isLicence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// licences finds the licences of a package, in its folder and in the folders above up to the module's.
func (p *dependency) licences(files map[string]string) error {
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		all, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		found := false
		for _, f := range all {
			if f.Type().IsRegular() && isLicence.MatchString(f.Name()) && filepath.Ext(f.Name()) != ".go" {
				rel, err := filepath.Rel(p.Module.Dir, filepath.Join(dir, f.Name()))
				if err != nil {
					return err
				}
				files[p.Module.Path+" "+p.Module.Version+": "+rel] = filepath.Join(dir, f.Name())
				found = true
			}
		}
		if dir == p.Module.Dir {
			if !found {
				return fmt.Errorf("%s has no licence", p.Module.Path)
			}
			return nil
		}
	}
}
