package output

import (
	"errors"
	"io"
)

// recordsSize is the number of bytes after which records are written.
const recordsSize = 256 << 10

// Records buffers records, such as packets or lines: each call of Write is one. If the file takes only a part of them, because its disk is
// full, Records cuts the file after the last complete one. It fails from then on.
type Records struct {
	w       io.Writer
	written func(record []byte) // called for each record in the file
	pending []byte
	ends    []int // of the records in pending
	size    int64 // of the complete records in the file
	err     error
}

// NewRecords returns Records that write to w, which has nothing yet. written may be nil.
func NewRecords(w io.Writer, written func(record []byte)) *Records {
	return &Records{w: w, written: written}
}

// Write adds a record.
func (r *Records) Write(record []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.pending = append(r.pending, record...)
	r.ends = append(r.ends, len(r.pending))
	if len(r.pending) < recordsSize {
		return len(record), nil
	}
	return len(record), r.Flush()
}

// Buffered returns the number of bytes that are not written yet.
func (r *Records) Buffered() int { return len(r.pending) }

// Flush writes all records.
func (r *Records) Flush() error {
	if r.err != nil || len(r.pending) == 0 {
		return r.err
	}
	n, err := r.w.Write(r.pending)
	whole := 0
	for _, end := range r.ends {
		if end > n {
			break
		}
		if r.written != nil {
			r.written(r.pending[whole:end])
		}
		whole = end
	}
	r.size += int64(whole)
	r.pending, r.ends = r.pending[:0], r.ends[:0]
	if err == nil {
		return nil
	}
	if f, ok := r.w.(interface{ Truncate(size int64) error }); ok && whole < n {
		err = errors.Join(err, f.Truncate(r.size))
	}
	r.err = err
	return err
}
