//go:build !amd64 && !arm64

// Package prefetch asks a processor for memory that will be needed soon; of this one it is not
// asked.
package prefetch

import "unsafe"

// Line does nothing.
func Line(unsafe.Pointer) {}
