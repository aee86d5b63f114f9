package ctl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Of pcapng: the type of a block with a packet, and the bounds of a block.
const (
	packetBlock = 6
	minBlock    = 12
	maxBlock    = 16 << 20
)

// recorder copies a pcapng stream of the daemon, which is little-endian, whole
// block by whole block: whenever it ends, the file is complete.
type recorder struct {
	frames, bytes uint64
	// limit is how many frames are wanted, 0 for all there are.
	limit uint64
	// seen is called after every block.
	seen func()
}

// copy copies r to w until the end, an error or the limit.
func (c *recorder) copy(w io.Writer, r io.Reader) (err error) {
	in, out := bufio.NewReaderSize(r, 256<<10), bufio.NewWriterSize(w, 256<<10)
	defer func() { err = errors.Join(err, out.Flush()) }()
	var block []byte
	for c.limit == 0 || c.frames < c.limit {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil { // whoever reads the file sees what there is
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
		c.bytes += uint64(len(block))
		if binary.LittleEndian.Uint32(block) == packetBlock {
			c.frames++
		}
		c.seen()
	}
	return nil
}

// readBlock reads a block into buf, which may grow. At the end of the stream the
// error is io.EOF, inside a block io.ErrUnexpectedEOF.
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
