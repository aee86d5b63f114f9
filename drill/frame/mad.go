package frame

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
)

// madFields are the fields of messages of the connection manager, which are datagrams to queue pair 1 (IBTA vol.1 12.6).
// Offsets count from the management datagram, whose header has 24 bytes.
var madFields = []Field{
	{"mad.method", hdrMAD, 24, 8, "management datagram: method, 3 for a message of the connection manager"},
	{"mad.tid", hdrMAD, 64, 64, "management datagram: transaction ID"},
	{"mad.attr", hdrMAD, 128, 16, "management datagram: REQ, MRA, REJ, REP, RTU, DREQ or DREP"},
	{"cm.local", hdrMAD, 192, 32, "communication ID of the sender"},
	{"cm.remote", hdrMAD, 224, 32, "communication ID of the receiver; REQ has none"},
	{"req.service", hdrMAD, 256, 64, "REQ: service ID"},
	{"req.qpn", hdrMAD, 448, 24, "REQ: queue pair of the sender"},
	{"req.resources", hdrMAD, 472, 8, "REQ: responder resources"},
	{"req.depth", hdrMAD, 504, 8, "REQ: initiator depth"},
	{"req.timeout", hdrMAD, 536, 5, "REQ: how long the sender waits for an answer, 4.096 us * 2^n"},
	{"req.type", hdrMAD, 541, 2, "REQ: 0 RC, 1 UC"},
	{"req.psn", hdrMAD, 544, 24, "REQ: first PSN of the receiver's requests"},
	{"req.local_timeout", hdrMAD, 568, 5, "REQ: how long the receiver may wait for an answer"},
	{"req.retry", hdrMAD, 573, 3, "REQ: retry count"},
	{"req.pkey", hdrMAD, 576, 16, "REQ: partition key"},
	{"req.mtu", hdrMAD, 592, 4, "REQ: path MTU, 1 for 256 to 5 for 4096"},
	{"req.rnr", hdrMAD, 597, 3, "REQ: RNR retry count"},
	{"req.cm_retries", hdrMAD, 600, 4, "REQ: how often messages are retransmitted"},
	{"req.src", hdrMAD, 640, 128, "REQ: GID of the sender"},
	{"req.dst", hdrMAD, 768, 128, "REQ: GID of the receiver"},
	{"req.ack_timeout", hdrMAD, 952, 5, "REQ: acknowledgement timeout of the sender's queue pair, 4.096 us * 2^n"},
	{"rep.qpn", hdrMAD, 288, 24, "REP: queue pair of the sender"},
	{"rep.psn", hdrMAD, 352, 24, "REP: first PSN of the receiver's requests"},
	{"rep.resources", hdrMAD, 384, 8, "REP: responder resources"},
	{"rep.depth", hdrMAD, 392, 8, "REP: initiator depth"},
	{"rej.reason", hdrMAD, 272, 16, "REJ: reason"},
	{"dreq.qpn", hdrMAD, 256, 24, "DREQ: queue pair of the receiver"},
}

// Messages are the names of messages of the connection manager in scripts.
var Messages = map[string]mad.Attr{"REQ": mad.AttrREQ, "MRA": mad.AttrMRA, "REJ": mad.AttrREJ, "REP": mad.AttrREP, "RTU": mad.AttrRTU,
	"DREQ": mad.AttrDREQ, "DREP": mad.AttrDREP}

// Message returns a management datagram of the connection manager. A REQ has the addresses of both ends, as GIDs and in
// rdma_cm's header (IBTA annex A11.3), and id as the sender's GUID. All other fields are zero.
func Message(attr mad.Attr, from, to netip.Addr, id uint32) []byte {
	const guid, srcGID, dstGID, private = 40, 80, 96, 164
	b := make([]byte, mad.Len)
	h := mad.CMHeader(attr, 0)
	h.Put(b)
	if attr == mad.AttrREQ {
		binary.BigEndian.PutUint64(b[guid:], uint64(id))
		src, dst := from.As16(), to.As16()
		copy(b[srcGID:], src[:])
		copy(b[dstGID:], dst[:])
		ip := mad.IPCM{Src: from, Dst: to, SrcPort: sourcePort}
		copy(b[private:], ip.Append(nil))
	}
	return b
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
