package qp

import (
	"encoding/binary"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Field is a named number, in network order, of the bytes that a transport adds to the extension header.
type Field struct {
	Name  string
	Bytes int // 1 to 8
}

// Fields are the bytes that a transport adds to the extension header, and its code for them. Each packet with the PSN of a
// request or response has the fields Data, each acknowledgement that is not an error has Ack; zero bytes follow up to a
// multiple of 4. A layout has at most bth.MaxOwn bytes.
//
// The functions run for each packet. own has the length of the fields; they must neither keep it, allocate memory, nor panic
// for any content. A Take function returns false for malformed bytes: the NIC drops the packet and counts
// rx_dropped_fields. It may be called again with the same packet, and with packets in any order.
type Fields struct {
	Data, Ack []Field
	// PutData encodes the fields of a packet that rec will record as sent at now.
	PutData func(own []byte, now mono.Time, psn bth.PSN, rec retrans.Recovery)
	// TakeData decodes them, before trk classifies the packet.
	TakeData func(own []byte, psn bth.PSN, trk reorder.Tracker) bool
	// PutAck encodes what the tracker has reported in f. Waiting acknowledgements that report no gap, mark, bitmap or
	// retransmission may be merged: the last one replaces the others.
	PutAck func(own []byte, f *reorder.Feedback)
	// TakeAck decodes it into f, which already has the content of the other fields.
	TakeAck func(own []byte, f *reorder.Feedback) bool
}

// Check returns an error if the fields have no valid layout or lack a function. The receiver may be nil.
func (f *Fields) Check() error {
	if f == nil {
		return nil
	}
	if len(f.Data) > 0 && (f.PutData == nil || f.TakeData == nil) || len(f.Ack) > 0 && (f.PutAck == nil || f.TakeAck == nil) {
		return fmt.Errorf("the fields of packets or acknowledgements lack a Put or Take function")
	}
	for _, layout := range [][]Field{f.Data, f.Ack} {
		names := map[string]bool{}
		for _, x := range layout {
			if x.Name == "" || names[x.Name] || x.Bytes < 1 || x.Bytes > 8 {
				return fmt.Errorf("field %q of %d bytes: must have a unique name and 1 to 8 bytes", x.Name, x.Bytes)
			}
			names[x.Name] = true
		}
		if n := size(layout); n > bth.MaxOwn {
			return fmt.Errorf("fields of %d bytes: at most %d fit", n, bth.MaxOwn)
		}
	}
	return nil
}

// Of returns the layout of the fields in packets with that opcode. The receiver may be nil.
func (f *Fields) Of(op bth.Opcode) []Field {
	switch {
	case f == nil:
		return nil
	case op.IsAck() || op.IsReadAck():
		return f.Ack
	}
	return f.Data
}

// size returns the number of bytes of a layout.
func size(layout []Field) (n int) {
	for _, x := range layout {
		n += x.Bytes
	}
	return n
}

// padded returns the bytes on the wire of a layout of n bytes.
func padded(n int) int { return (n + 3) &^ 3 }

// ReadFields returns the values in own by name, for display. It returns nil if there is no layout, or own does not have its
// length.
func ReadFields(layout []Field, own []byte) map[string]uint64 {
	if len(layout) == 0 || len(own) != padded(size(layout)) {
		return nil
	}
	values := map[string]uint64{}
	for _, x := range layout {
		var word [8]byte
		copy(word[8-x.Bytes:], own[:x.Bytes])
		values[x.Name] = binary.BigEndian.Uint64(word[:])
		own = own[x.Bytes:]
	}
	return values
}

// fields are Fields with the number of bytes of both layouts, without padding.
type fields struct {
	*Fields
	data, ack uint8
}

func makeFields(f *Fields) fields {
	if f == nil {
		return fields{}
	}
	return fields{f, uint8(size(f.Data)), uint8(size(f.Ack))}
}

// putData adds the fields of p, which rec will record as sent, to its extension header.
func (q *QP) putData(now mono.Time, p *bth.Packet, rec retrans.Recovery) {
	if n := q.x.fields.data; n > 0 {
		own := q.scratch.zeroed(n)
		q.x.fields.PutData(own[:n], now, p.PSN, rec)
		p.Ext.SetOwn(own)
	}
}

// takeData decodes the fields of p. It returns false if they are malformed.
func (q *QP) takeData(p *bth.Packet, trk reorder.Tracker) bool {
	n := q.x.fields.data
	own, ok := q.own(p, n)
	return ok && (n == 0 || q.x.fields.TakeData(own[:n], p.PSN, trk))
}

// putAck adds the fields of f to the extension header of p, an acknowledgement.
func (q *QP) putAck(p *bth.Packet, f *reorder.Feedback) {
	if n := q.x.fields.ack; n > 0 {
		own := q.scratch.zeroed(n)
		q.x.fields.PutAck(own[:n], f)
		p.Ext.SetOwn(own)
	}
}

// takeAck decodes the fields of p, an acknowledgement, into f. It returns false if they are malformed.
func (q *QP) takeAck(p *bth.Packet, f *reorder.Feedback) bool {
	n := q.x.fields.ack
	own, ok := q.own(p, n)
	return ok && (n == 0 || q.x.fields.TakeAck(own[:n], f))
}

// own returns the bytes of the transport in p, and whether they are as long as a layout of n bytes.
func (q *QP) own(p *bth.Packet, n uint8) (own []byte, ok bool) {
	own = p.Ext.Own(&q.scratch.own)
	return own, len(own) == padded(int(n))
}

// zeroed returns memory for a layout of n bytes.
func (s *Scratch) zeroed(n uint8) []byte {
	s.own = [bth.MaxOwn]byte{}
	return s.own[:padded(int(n))]
}
