package verbs

import (
	"testing"

	"roced.io/roced/internal/base/abi/uverbs"
)

// TestNumbers compares numbers of this package with those of the kernel's interface. TestVerbsNumbers of internal/test/api
// compares them with the core's.
func TestNumbers(t *testing.T) {
	for what, n := range map[string][2]uint32{
		"MTU": {uint32(MTU4096), 5}, "window": {uint32(MWType2), 2}, "rereg": {uint32(ReregAccess), 1 << 2}, "port": {uint32(PortActive), uverbs.PortActive},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", what, n[0], n[1])
		}
	}
}
