package output

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var errFull = errors.New("full")

// disk is a file on a disk with limited room.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(b []byte) (int, error) {
	n, _ := d.Buffer.Write(b[:min(len(b), d.room)])
	if d.room -= n; n < len(b) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) Truncate(size int64) error {
	d.Buffer.Truncate(int(size))
	return nil
}

// TestFullDisk: a file on a full disk ends with a complete record, and each record is reported that it has.
func TestFullDisk(t *testing.T) {
	records := []string{"one ", "three ", strings.Repeat("x", recordsSize), "last"}
	whole := strings.Join(records, "")
	for _, room := range []int{0, 3, 4, 9, 10, recordsSize, recordsSize + 10, recordsSize + 13, recordsSize + 14} {
		d, got := &disk{room: room}, ""
		r := NewRecords(d, func(record []byte) { got += string(record) })
		var err error
		for _, record := range records {
			_, e := r.Write([]byte(record))
			err = errors.Join(err, e)
		}
		err = errors.Join(err, r.Flush())
		want := ""
		for _, record := range records {
			if len(want)+len(record) > room {
				break
			}
			want += record
		}
		if d.String() != want || got != want || (err == nil) != (want == whole) || r.Buffered() != 0 {
			t.Errorf("room for %d: %d bytes, %d reported, want %d; %v", room, d.Len(), len(got), len(want), err)
		}
		if _, e := r.Write([]byte("more")); err != nil && !errors.Is(e, errFull) {
			t.Errorf("a write after the full disk: %v", e)
		}
	}
}
