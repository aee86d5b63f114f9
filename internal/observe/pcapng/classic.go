package pcapng

import (
	"encoding/binary"
	"fmt"
)

// Magic numbers of pcap files with timestamps in microseconds and nanoseconds (draft-ietf-opsawg-pcap 4).
const (
	magicMicro = 0xa1b2c3d4
	magicNano  = 0xa1b23c4d
)

func (r *Reader) readClassicHeader() error {
	h, err := r.read(24)
	if err != nil {
		return fmt.Errorf("pcapng: file of %d bytes: %w", r.offset, ErrFormat)
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(h) {
		case magicMicro:
			r.order, r.classicScale = order, 1000
		case magicNano:
			r.order, r.classicScale = order, 1
		}
	}
	if r.classicScale == 0 {
		return fmt.Errorf("pcapng: magic number %x: %w", h[:4], ErrFormat)
	}
	r.classicLink = LinkType(r.order.Uint32(h[20:])) // the upper half describes the FCS
	return nil
}

// nextRecord reads one packet record of a pcap file.
func (r *Reader) nextRecord(f *Frame) error {
	h, err := r.read(16)
	if err != nil {
		return err
	}
	sec, frac := int64(r.order.Uint32(h)), int64(r.order.Uint32(h[4:]))
	n, length := r.order.Uint32(h[8:]), r.order.Uint32(h[12:])
	if n > maxBlock {
		return fmt.Errorf("packet of captured length %d: %w", n, ErrFormat)
	}
	data, err := r.read(int(n))
	if err != nil {
		return err
	}
	*f = Frame{Data: data, Length: int(length), Time: sec*1e9 + frac*r.classicScale, Link: r.classicLink}
	return nil
}
