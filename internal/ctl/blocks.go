package ctl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/pcapng"
)

// Limits on the length of a block of pcapng.
const (
	minBlock = 12
	maxBlock = 16 << 20
)

// recorder copies a pcapng stream of the daemon, block by block. The stream is little-endian. The output file is
// complete whenever the copy ends, also on a full disk.
type recorder struct {
	frames, bytes uint64 // in the file
	// limit is the number of frames to copy; 0 means no limit.
	limit uint64
	// seen is called after every block.
	seen func()
}

// copy copies r to w until the end, an error or the limit.
func (c *recorder) copy(w io.Writer, r io.Reader) (err error) {
	in, out := bufio.NewReaderSize(r, 256<<10), output.NewRecords(w, c.count)
	defer func() { err = errors.Join(err, out.Flush()) }()
	var block []byte
	for taken := uint64(0); c.limit == 0 || taken < c.limit; c.seen() {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil { // makes the blocks visible to readers of the file
				return err
			}
		}
		block, err = readBlock(in, block)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(block); err != nil {
			return err
		}
		if pcapng.IsPacket(block) {
			taken++
		}
	}
	return nil
}

// count counts a block in the file.
func (c *recorder) count(block []byte) {
	c.bytes += uint64(len(block))
	if pcapng.IsPacket(block) {
		c.frames++
	}
}

// readBlock reads a block into buf and grows buf if needed. It returns io.EOF at the end of the stream, and
// io.ErrUnexpectedEOF inside a block.
func readBlock(r *bufio.Reader, buf []byte) ([]byte, error) {
	head, err := r.Peek(8)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return buf, err
	}
	n := int(binary.LittleEndian.Uint32(head[4:]))
	if n < minBlock || n > maxBlock || n%4 != 0 {
		return buf, fmt.Errorf("the daemon sent a malformed block of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err = io.ReadFull(r, buf[:n])
	return buf[:n], err
}
