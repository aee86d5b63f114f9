package pcapng

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// maxBlock is the maximum block size that a Reader accepts: that of Wireshark. Comments and other options can exceed a frame.
const maxBlock = 16 << 20

// Frame is a captured frame.
type Frame struct {
	Data      []byte // valid until the next call of Next
	Length    int    // original length in bytes
	Time      int64  // nanoseconds since the Unix epoch
	Link      LinkType
	Interface int
	Direction Direction
	Comment   string // several comments are joined with "; "
	Lost      uint64 // packets of the interface that the capture lost before this one
}

// Reader reads the frames of a pcap or pcapng file. It skips pcapng blocks without a frame.
type Reader struct {
	r       *bufio.Reader
	order   binary.ByteOrder
	next    func(*Frame) error
	buf     []byte
	offset  int64 // offset of the next byte
	start   int64 // offset of the current block
	packets int

	classicLink  LinkType
	classicScale int64 // nanoseconds per unit of the second timestamp word

	ifs []ifDesc
}

type ifDesc struct {
	link     LinkType
	snap     int
	units    uint64 // timestamp units per second
	tsOffset int64  // seconds to add
}

// NewReader reads the file header of r and detects the format, pcap or pcapng. It decompresses a gzip file; offsets in errors are
// then those of the content.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{r: bufio.NewReaderSize(r, 64<<10), order: binary.LittleEndian}
	magic, err := rd.r.Peek(4)
	if len(magic) > 1 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(rd.r)
		if err != nil {
			return nil, fmt.Errorf("pcapng: gzip file: %w", err)
		}
		rd.r = bufio.NewReaderSize(z, 64<<10)
		magic, err = rd.r.Peek(4)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("pcapng: gzip file: %w", err)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(magic) < 4 {
		return nil, fmt.Errorf("pcapng: file of %d bytes: %w", len(magic), ErrFormat)
	}
	if binary.LittleEndian.Uint32(magic) == blockSection {
		rd.next = rd.nextBlock
		return rd, nil
	}
	rd.next = rd.nextRecord
	return rd, rd.readClassicHeader()
}

// Next reads the next frame into f. It returns io.EOF at the end of the file, and a *FileError for a damaged file.
func (r *Reader) Next(f *Frame) error {
	for {
		r.start = r.offset
		*f = Frame{}
		err := r.next(f)
		if err == nil && f.Data == nil {
			continue // a block without a frame
		}
		if err == nil {
			r.packets++
			return nil
		}
		if err == io.EOF && r.offset == r.start {
			return io.EOF
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = ErrTruncated
		}
		return &FileError{Packet: r.packets + 1, Offset: r.start, Err: err}
	}
}

// read returns the next n bytes, valid until the next read.
func (r *Reader) read(n int) ([]byte, error) {
	if cap(r.buf) < n {
		r.buf = make([]byte, pad4(n)*2)
	}
	b := r.buf[:n]
	m, err := io.ReadFull(r.r, b)
	r.offset += int64(m)
	return b, err
}

func (r *Reader) skip(n int64) error {
	m, err := io.CopyN(io.Discard, r.r, n)
	r.offset += m
	return err
}

// nextBlock reads one block of pcapng (3.1).
func (r *Reader) nextBlock(f *Frame) error {
	h, err := r.read(8)
	if err != nil {
		return err
	}
	kind, length := r.order.Uint32(h), r.order.Uint32(h[4:])
	if kind == blockSection {
		return r.readSection([4]byte(h[4:]))
	}
	if length < 12 || length%4 != 0 {
		return fmt.Errorf("block of length %d: %w", length, ErrFormat)
	}
	if kind != blockInterface && kind != blockEnhanced && kind != blockSimple && kind != blockPacket {
		return r.skip(int64(length) - 8)
	}
	b, err := r.readBody(length)
	if err != nil {
		return err
	}
	switch kind {
	case blockInterface:
		return r.readInterface(b)
	case blockEnhanced:
		return r.readEnhanced(f, b)
	case blockPacket:
		return r.readPacket(f, b)
	}
	return r.readSimple(f, b)
}

// readBody reads the rest of a block after its first 8 bytes. It returns the body without the second length field,
// which must equal the first.
func (r *Reader) readBody(length uint32) ([]byte, error) {
	if length > maxBlock {
		return nil, fmt.Errorf("block of length %d: %w", length, ErrFormat)
	}
	n := int(length) - 12
	b, err := r.read(n + 4)
	if err != nil {
		return nil, err
	}
	if again := r.order.Uint32(b[n:]); again != length {
		return nil, fmt.Errorf("block lengths %d and %d: %w", length, again, ErrFormat)
	}
	return b[:n], nil
}

// readSection reads a section header (4.1) from its byte-order magic on. The section sets the byte order and starts a
// new numbering of interfaces.
func (r *Reader) readSection(rawLength [4]byte) error {
	magic, err := r.read(4)
	if err != nil {
		return err
	}
	switch {
	case binary.LittleEndian.Uint32(magic) == byteOrderMagic:
		r.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic) == byteOrderMagic:
		r.order = binary.BigEndian
	default:
		return fmt.Errorf("byte-order magic %x: %w", magic, ErrFormat)
	}
	length := r.order.Uint32(rawLength[:])
	if length < 28 || length%4 != 0 {
		return fmt.Errorf("section header of length %d: %w", length, ErrFormat)
	}
	r.ifs = r.ifs[:0]
	return r.skip(int64(length) - 12)
}

// readInterface reads an interface description (4.2).
func (r *Reader) readInterface(b []byte) error {
	if len(b) < 8 {
		return ErrFormat
	}
	d := ifDesc{link: LinkType(r.order.Uint16(b)), snap: int(r.order.Uint32(b[4:])), units: 1e6}
	err := r.options(b[8:], func(code uint16, v []byte) {
		switch {
		case code == optTSResol && len(v) == 1:
			d.units = unitsPerSecond(v[0])
		case code == optTSOffset && len(v) == 8:
			d.tsOffset = int64(r.order.Uint64(v))
		}
	})
	if d.units == 0 {
		return fmt.Errorf("timestamp resolution: %w", ErrFormat)
	}
	r.ifs = append(r.ifs, d)
	return err
}

// unitsPerSecond decodes if_tsresol: a negative power of 10, or of 2 if the top bit is set. It returns 0 if the
// result exceeds 64 bits.
func unitsPerSecond(v byte) uint64 {
	n := v & 0x7f
	if v&0x80 != 0 {
		return 1 << n // 0 from 64 on
	}
	if n > 19 {
		return 0
	}
	u := uint64(1)
	for range n {
		u *= 10
	}
	return u
}

// nanoseconds converts a timestamp of the interface. It returns 0 if the result exceeds 64 bits.
func (d ifDesc) nanoseconds(ts uint64) int64 {
	hi, lo := bits.Mul64(ts, 1e9)
	if hi >= d.units {
		return 0
	}
	ns, _ := bits.Div64(hi, lo, d.units)
	return int64(ns) + d.tsOffset*1e9
}

// readEnhanced reads an enhanced packet block (4.3).
func (r *Reader) readEnhanced(f *Frame, b []byte) error {
	if len(b) < 20 {
		return ErrFormat
	}
	return r.readFrame(f, b, r.order.Uint32(b))
}

// readPacket reads an obsolete packet block (appendix A). It differs from an enhanced one in the width of the interface's number, which
// the number of lost packets follows.
func (r *Reader) readPacket(f *Frame, b []byte) error {
	if len(b) < 20 {
		return ErrFormat
	}
	return r.readFrame(f, b, uint32(r.order.Uint16(b)))
}

// readFrame reads a packet block of interface i from its timestamp on.
func (r *Reader) readFrame(f *Frame, b []byte, i uint32) error {
	n := int(r.order.Uint32(b[12:]))
	if i >= uint32(len(r.ifs)) {
		return fmt.Errorf("packet of interface %d, there are %d: %w", i, len(r.ifs), ErrFormat)
	}
	if n > len(b)-20 {
		return fmt.Errorf("captured length %d in a block of %d bytes: %w", n, len(b)+12, ErrFormat)
	}
	d := r.ifs[i]
	ts := uint64(r.order.Uint32(b[4:]))<<32 | uint64(r.order.Uint32(b[8:]))
	f.Data, f.Length = b[20:20+n:20+n], int(r.order.Uint32(b[16:]))
	f.Time, f.Link, f.Interface = d.nanoseconds(ts), d.link, int(i)
	var comment []byte
	err := r.options(b[min(20+pad4(n), len(b)):], func(code uint16, v []byte) {
		switch {
		case code == optEPBFlags && len(v) == 4:
			f.Direction = Direction(r.order.Uint32(v) & 3)
		case code == optEPBDropCount && len(v) == 8:
			f.Lost = r.order.Uint64(v)
		case code == optComment && len(comment) > 0:
			comment = append(append(comment, "; "...), v...)
		case code == optComment:
			comment = append(comment, v...)
		}
	})
	f.Comment = string(comment)
	return err
}

// readSimple reads a simple packet block (4.4): interface 0, no timestamp.
func (r *Reader) readSimple(f *Frame, b []byte) error {
	if len(b) < 4 || len(r.ifs) == 0 {
		return ErrFormat
	}
	d := r.ifs[0]
	f.Length, f.Link = int(r.order.Uint32(b)), d.link
	n := min(f.Length, len(b)-4)
	if d.snap > 0 {
		n = min(n, d.snap)
	}
	f.Data = b[4 : 4+n : 4+n]
	return nil
}

// options calls f for every option in b (3.5).
func (r *Reader) options(b []byte, f func(code uint16, v []byte)) error {
	for len(b) >= 4 {
		code, n := r.order.Uint16(b), int(r.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		if b = b[4:]; n > len(b) {
			return fmt.Errorf("option of length %d in %d bytes: %w", n, len(b), ErrFormat)
		}
		f(code, b[:n])
		b = b[min(pad4(n), len(b)):]
	}
	return nil
}
