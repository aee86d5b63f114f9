package examples

import "testing"

// TestLocal: an external module tests RDMA code on NICs of its own, under a fault rule.
func TestLocal(t *testing.T) {
	in(t, "../../../examples/local", "vet", "./...")
	in(t, "../../../examples/local", "test", "-count=1", "./...")
}
