package ctl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Constants of pcapng: the type of a packet block, and the limits on a block's length.
const (
	packetBlock = 6
	minBlock    = 12
	maxBlock    = 16 << 20
)

// recorder copies a pcapng stream of the daemon, block by block. The stream is little-endian. The output file is
// complete whenever the copy ends, also on a full disk.
type recorder struct {
	frames, bytes uint64
	// limit is the number of frames to copy; 0 means no limit.
	limit uint64
	// seen is called after every block.
	seen func()

	pending []byte // blocks that are not written yet
}

// writeSize is the number of bytes after which blocks are written.
const writeSize = 256 << 10

// copy copies r to w until the end, an error or the limit.
func (c *recorder) copy(w io.Writer, r io.Reader) (err error) {
	in := bufio.NewReaderSize(r, writeSize)
	defer func() { err = errors.Join(err, c.flush(w)) }()
	var block []byte
	for c.limit == 0 || c.frames < c.limit {
		if in.Buffered() == 0 || len(c.pending) > writeSize {
			if err := c.flush(w); err != nil { // makes the blocks visible to readers of the file
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
		c.pending = append(c.pending, block...)
		c.add(block, 1)
		c.seen()
	}
	return nil
}

// add adds the blocks in b to the counters, or subtracts them, if sign is -1.
func (c *recorder) add(b []byte, sign int) {
	c.bytes += uint64(sign * len(b))
	for len(b) > 0 {
		if binary.LittleEndian.Uint32(b) == packetBlock {
			c.frames += uint64(sign)
		}
		b = b[blockLen(b):]
	}
}

func blockLen(b []byte) int { return int(binary.LittleEndian.Uint32(b[4:])) }

// flush writes the pending blocks. If only a part of them fits, the output ends with the last complete one.
func (c *recorder) flush(w io.Writer) error {
	if len(c.pending) == 0 {
		return nil
	}
	n, err := w.Write(c.pending)
	if err != nil {
		whole := 0
		for whole+8 <= n && whole+blockLen(c.pending[whole:]) <= n {
			whole += blockLen(c.pending[whole:])
		}
		c.add(c.pending[whole:], -1)
		if f, ok := w.(interface{ Truncate(size int64) error }); ok && whole < n {
			err = errors.Join(err, f.Truncate(int64(c.bytes)))
		}
	}
	c.pending = c.pending[:0]
	return err
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
		return buf, fmt.Errorf("the daemon sends a block of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err = io.ReadFull(r, buf[:n])
	return buf[:n], err
}
