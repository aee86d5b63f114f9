// Package fields lists the fields of the headers of RoCEv2, with their place in the header, their names and their meaning.
// rocectl decode, its JSON, the names of rocedrill, the dissector of Wireshark and the generated pages use this table.
//
// The codec (bth), the tester (drill/frame), the eBPF programs and the dissector read headers without it. A test compares
// them with the table, field by field.
package fields

import (
	"slices"

	"roced.io/roced/bth"
)

// Form is the form of a value in text.
type Form uint8

// Forms.
const (
	Dec    Form = iota // decimal
	Hex                // hexadecimal
	Fixed              // hexadecimal with all digits
	Flag               // the name of the field, if the bit is set
	Hidden             // not shown as it is
)

// Field is a field of a header.
type Field struct {
	Name      string // in decode's text and JSON
	Script    string // in scripts of rocedrill
	Bit, Bits int    // offset in the header, and width
	Form      Form
	Text      string // meaning, for people
}

// Header is a header, or a part of the extension header of the extended transports.
type Header struct {
	Name   string
	Title  string
	Object string // the JSON object that has its fields; none of the record itself
	Bytes  int
	Set    bth.Headers // of an extension header
	Flag   bth.XFlags  // of a part of the extension header: the flag that says that it is there
	Fields []Field
}

// Get returns the value of the field in the header b. The width is at most 64 bits.
func (f *Field) Get(b []byte) (v uint64) {
	for at, end := f.Bit, f.Bit+f.Bits; at < end; {
		n := min(8-at%8, end-at)
		v = v<<n | uint64(b[at/8]>>(8-at%8-n))&(1<<n-1)
		at += n
	}
	return v
}

// All returns all headers, in the order on the wire.
func All() []Header { return slices.Concat(Carriers, Headers, []Header{Management}) }

// Extensions calls yield with each extension header of p, in the order on the wire, and its bytes in b, the packet from the
// BTH on. The headers must be complete, as after p.DecodeHeaders.
func Extensions(p *bth.Packet, b []byte, yield func(*Header, []byte)) {
	set, at, rest := p.Headers(), bth.BTHLen, bth.BTHLen
	if set&bth.HdrXETH != 0 {
		rest += 4 * int(b[at]&0xf)
	}
	for i := range Headers {
		h := &Headers[i]
		if h.Set&set == 0 || h.Flag&^p.Ext.Flags != 0 {
			continue
		}
		if h.Set != bth.HdrXETH {
			at = max(at, rest)
		}
		if at+h.Bytes > len(b) {
			return // the packet is trimmed
		}
		yield(h, b[at:at+h.Bytes])
		at += h.Bytes
	}
}
