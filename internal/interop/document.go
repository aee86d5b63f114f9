package main

import (
	"fmt"
	"os"
	"strings"
)

// write writes the document.
func (r *report) write(path string) error {
	var b strings.Builder
	for _, t := range r.rows {
		fmt.Fprintln(&b, t)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
