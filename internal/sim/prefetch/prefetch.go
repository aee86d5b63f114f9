//go:build amd64 || arm64

// Package prefetch asks a processor for memory that will be needed soon. A simulated packet that is
// looked at again has left the caches, and to wait for it takes as long as all that is done with
// it.
package prefetch

import "unsafe"

// Line asks for the line of the cache that p points into. It changes nothing, whatever p is.
//
//go:noescape
func Line(p unsafe.Pointer)
