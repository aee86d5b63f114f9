package pcapng

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Interface describes a capture interface.
type Interface struct {
	Name        string
	Description string
	Link        LinkType
	SnapLen     int // bytes kept of each frame; 0 means all
}

// PacketInfo describes a frame.
type PacketInfo struct {
	Interface int   // number that AddInterface returned
	Time      int64 // nanoseconds since the Unix epoch
	Direction Direction
	Comment   string // optional
	Lost      uint64 // frames of the interface that were lost before this one
}

// Writer writes one pcapng section. Every call issues one Write of one whole block, so that the reader of a pipe sees
// each packet at once. For a file, pass a bufio.Writer. A Writer is not safe for concurrent use.
type Writer struct {
	w    io.Writer
	buf  []byte
	snap []int
}

// NewWriter writes a section header that names the program application.
func NewWriter(w io.Writer, application string) (*Writer, error) {
	wr := &Writer{w: w, buf: make([]byte, 0, 16<<10)}
	b := wr.begin(blockSection)
	b = binary.LittleEndian.AppendUint32(b, byteOrderMagic)
	b = binary.LittleEndian.AppendUint32(b, 1)          // version 1.0
	b = binary.LittleEndian.AppendUint64(b, ^uint64(0)) // section length unknown
	b = appendOption(b, optUserAppl, application)
	return wr, wr.end(appendEnd(b))
}

// AddInterface writes an interface description with nanosecond resolution and returns its number.
func (w *Writer) AddInterface(i Interface) (int, error) {
	b := w.begin(blockInterface)
	b = binary.LittleEndian.AppendUint16(b, uint16(i.Link))
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(i.SnapLen))
	b = appendOption(b, optIfName, i.Name)
	b = appendOption(b, optIfDescr, i.Description)
	b = appendOption(b, optTSResol, "\x09")
	if err := w.end(appendEnd(b)); err != nil {
		return 0, err
	}
	w.snap = append(w.snap, i.SnapLen)
	return len(w.snap) - 1, nil
}

// WritePacket writes a frame as an enhanced packet block (4.3). The frame is the concatenation of parts. The Writer
// does not retain parts.
func (w *Writer) WritePacket(p PacketInfo, parts ...[]byte) error {
	if p.Interface < 0 || p.Interface >= len(w.snap) {
		return fmt.Errorf("pcapng: no interface %d, there are %d", p.Interface, len(w.snap))
	}
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	kept := length
	if snap := w.snap[p.Interface]; snap > 0 {
		kept = min(length, snap)
	}
	b := w.begin(blockEnhanced)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Interface))
	b = binary.LittleEndian.AppendUint32(b, uint32(uint64(p.Time)>>32))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Time))
	b = binary.LittleEndian.AppendUint32(b, uint32(kept))
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	b = appendParts(b, kept, parts)
	if p.Direction != Unknown || p.Comment != "" || p.Lost > 0 {
		b = appendFlags(b, p.Direction)
		if p.Lost > 0 {
			b = binary.LittleEndian.AppendUint16(b, optEPBDropCount)
			b = binary.LittleEndian.AppendUint16(b, 8)
			b = binary.LittleEndian.AppendUint64(b, p.Lost)
		}
		b = appendOption(b, optComment, p.Comment)
		b = appendEnd(b)
	}
	return w.end(b)
}

// appendParts appends the first n bytes of parts and the padding.
func appendParts(b []byte, n int, parts [][]byte) []byte {
	left := n
	for _, part := range parts {
		part = part[:min(len(part), left)]
		left -= len(part)
		b = append(b, part...)
	}
	return appendPad(b, n)
}

func appendPad(b []byte, n int) []byte {
	for range pad4(n) - n {
		b = append(b, 0)
	}
	return b
}

func appendFlags(b []byte, d Direction) []byte {
	if d == Unknown {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, optEPBFlags)
	b = binary.LittleEndian.AppendUint16(b, 4)
	return binary.LittleEndian.AppendUint32(b, uint32(d))
}

// appendOption appends an option, unless s is empty.
func appendOption(b []byte, code uint16, s string) []byte {
	if s == "" {
		return b
	}
	s = s[:min(len(s), maxOptionLen)]
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return appendPad(append(b, s...), len(s))
}

func appendEnd(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, optEnd) }

// begin starts a block in the writer's buffer, with space for the length.
func (w *Writer) begin(kind uint32) []byte {
	b := binary.LittleEndian.AppendUint32(w.buf[:0], kind)
	return append(b, 0, 0, 0, 0)
}

// end fills in both lengths of the block b and writes it.
func (w *Writer) end(b []byte) error {
	n := uint32(len(b) + 4)
	binary.LittleEndian.PutUint32(b[4:], n)
	b = binary.LittleEndian.AppendUint32(b, n)
	w.buf = b
	_, err := w.w.Write(b)
	return err
}

// IsPacket reports whether a block of a Writer has a packet.
func IsPacket(block []byte) bool {
	return len(block) >= 4 && binary.LittleEndian.Uint32(block) == blockEnhanced
}
