package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Package is a package of npm.
type Package struct {
	Version string
	Module  string            // the file that an import of the package alone resolves to
	Files   map[string][]byte // by path in the package
}

// lock has the fields that are read from package-lock.json.
type lock struct {
	Packages map[string]struct {
		Version   string `json:"version"`
		Integrity string `json:"integrity"`
		Resolved  string `json:"resolved"`
	} `json:"packages"`
}

// Packages reads the packages that package-lock.json in a folder pins, by name. Each lies next to that file as
// published, NAME-VERSION.tgz, and must have the pinned hash.
func Packages(web string) (map[string]Package, error) {
	text, err := os.ReadFile(filepath.Join(web, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var l lock
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("package-lock.json: %w", err)
	}
	out := map[string]Package{}
	for key, e := range l.Packages {
		if key == "" {
			continue // the page itself
		}
		name := strings.TrimPrefix(key, "node_modules/")
		if e.Resolved != "" {
			return nil, fmt.Errorf("package-lock.json: %s names the server that it came from: npm install --omit-lockfile-registry-resolved", name)
		}
		file := name + "-" + e.Version + ".tgz"
		archive, err := os.ReadFile(filepath.Join(web, file))
		if err != nil {
			return nil, err
		}
		sum := sha512.Sum512(archive)
		if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != e.Integrity {
			return nil, fmt.Errorf("%s has %s, not the %s of package-lock.json", file, got, e.Integrity)
		}
		p := Package{Version: e.Version}
		if p.Files, err = unpack(archive); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var about struct {
			Module string `json:"module"`
		}
		if err := json.Unmarshal(p.Files["package.json"], &about); err != nil {
			return nil, fmt.Errorf("%s: package.json: %w", file, err)
		}
		p.Module = path.Clean(about.Module)
		out[name] = p
	}
	return out, nil
}

// unpack returns the files of an npm archive. All of them are in a folder "package".
func unpack(archive []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, err
		case h.Typeflag != tar.TypeReg:
			continue
		}
		if files[strings.TrimPrefix(h.Name, "package/")], err = io.ReadAll(t); err != nil {
			return nil, err
		}
	}
}
