// Package cut interrupts commands in tests when they write.
package cut

import (
	"bytes"
	"context"
)

// Output keeps what a command writes. Cancel, if not nil, is called at each write.
type Output struct {
	bytes.Buffer
	Cancel context.CancelFunc
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	if o.Cancel != nil {
		o.Cancel()
	}
	return o.Buffer.Write(b)
}
