package flow

import (
	"testing"
	"unsafe"
)

// TestMemory checks the memory size in the comment of DefaultStreams.
func TestMemory(t *testing.T) {
	if n := unsafe.Sizeof(stream{}) * DefaultStreams; n < 10e6 || n > 20e6 {
		t.Errorf("the default number of streams takes %d bytes", n)
	}
}
