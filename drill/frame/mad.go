package frame

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
)

// Messages are the names of messages of the connection manager in scripts.
var Messages = map[string]mad.Attr{"REQ": mad.AttrREQ, "MRA": mad.AttrMRA, "REJ": mad.AttrREJ, "REP": mad.AttrREP, "RTU": mad.AttrRTU,
	"DREQ": mad.AttrDREQ, "DREP": mad.AttrDREP, "SIDR_REQ": mad.AttrSIDRREQ, "SIDR_REP": mad.AttrSIDRREP}

// Message returns a management datagram of the connection manager. A REQ has the addresses of both ends, as GIDs and in
// rdma_cm's header (IBTA annex A11.3), which a SIDR_REQ also has, and id as the sender's GUID. All other fields are zero.
func Message(attr mad.Attr, from, to netip.Addr, id uint32) []byte {
	const guid, srcGID, dstGID = 40, 80, 96
	b := make([]byte, mad.Len)
	h := mad.CMHeader(attr, 0)
	h.Put(b)
	if attr == mad.AttrREQ {
		binary.BigEndian.PutUint64(b[guid:], uint64(id))
		src, dst := from.As16(), to.As16()
		copy(b[srcGID:], src[:])
		copy(b[dstGID:], dst[:])
	}
	if attr == mad.AttrREQ || attr == mad.AttrSIDRREQ {
		ip := mad.IPCM{Src: from, Dst: to, SrcPort: sourcePort}
		copy(b[privateData[attr]:], ip.Append(nil))
	}
	return b
}

// privateData is the offset of the private data in a management datagram (IBTA vol.1 12.6).
var privateData = map[mad.Attr]int{mad.AttrREQ: 164, mad.AttrMRA: 34, mad.AttrREJ: 108, mad.AttrREP: 60, mad.AttrRTU: 32, mad.AttrDREQ: 36,
	mad.AttrDREP: 32, mad.AttrSIDRREQ: 40, mad.AttrSIDRREP: 120}

// User returns the private data of a message without the header of rdma_cm, which requests have.
func (f *Frame) User() []byte {
	const header = 36
	attr, _ := f.Get("mad.attr")
	b := f.Private()
	if mad.Attr(attr) == mad.AttrREQ || mad.Attr(attr) == mad.AttrSIDRREQ {
		return b[header:]
	}
	return b
}

// Private returns the private data of a message of the connection manager, nil for other packets.
func (f *Frame) Private() []byte {
	attr, _ := f.Get("mad.attr")
	if at := privateData[mad.Attr(attr)]; at > 0 {
		return f.Payload[at:]
	}
	return nil
}

// sourcePort is the TCP port of the tester's end in a REQ.
const sourcePort = 50000

// findMAD sets the offset of a management datagram if the payload is one.
func (f *Frame) findMAD() {
	const opcode = bth.TransportUD | bth.OpSendOnly
	if f.Opcode == opcode && len(f.Payload) == mad.Len {
		f.off[hdrMAD] = f.off[hdrPayload]
	}
}
