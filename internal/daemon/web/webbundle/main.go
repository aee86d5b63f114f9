// Command webbundle builds the files of the live page, internal/daemon/web/assets. Its input is the sources in
// internal/daemon/web/page/src and the packages that internal/daemon/web/page/package-lock.json pins. The packages lie
// in internal/daemon/web/page/ as npm publishes them, so that the build fetches nothing. A test compares the committed
// files with the output.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"roced.io/roced/internal/daemon/web/bundle"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "webbundle:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := bundle.Make(filepath.Join(root, "internal/daemon/web/page"))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, bundle.Assets)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
