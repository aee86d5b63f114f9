//go:build amd64 || arm64

// Package prefetch requests memory that the processor will need soon. A simulated packet has usually left the
// caches when it is used again, and a cache miss takes as long as all processing of the packet.
package prefetch

import "unsafe"

// Line asks for the line of the cache that p points into. It changes nothing, whatever p is.
//
// Line prefetches the cache line that p points into. It has no effect on memory; p may be any pointer.
//
//go:noescape
func Line(p unsafe.Pointer)
