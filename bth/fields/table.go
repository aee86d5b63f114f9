package fields

import "roced.io/roced/bth"

// Headers lists the headers from the BTH on, in the order on the wire. References are to IBTA vol.1.
var Headers = []Header{
	{Name: "BTH", Title: "base transport header", Bytes: bth.BTHLen, Fields: []Field{ // 9.2
		{"opcode", "opcode", 0, 8, Hidden, "opcode"},
		{"solicited", "se", 8, 1, Flag, "solicited event"},
		{"migreq", "mig", 9, 1, Flag, "migration state: 1 migrated"},
		{"pad", "pad", 10, 2, Hidden, "pad count"},
		{"tver", "tver", 12, 4, Hidden, "transport header version, 0"},
		{"pkey", "pkey", 16, 16, Hidden, "partition key"},
		{"fecn", "fecn", 32, 1, Flag, "forward congestion notification"},
		{"becn", "becn", 33, 1, Flag, "backward congestion notification"},
		{"", "bth.res6", 34, 6, Hidden, "reserved bits, 0"},
		{"qpn", "dst", 40, 24, Hidden, "destination queue pair"},
		{"ackreq", "ackreq", 64, 1, Flag, "acknowledgement request"},
		{"", "bth.res7", 65, 7, Hidden, "reserved bits, 0"},
		{"retx", "m.rtx", 66, 1, Hidden, "retransmission, of MRC"},
		{"stamped", "m.ts", 67, 1, Hidden, "timestamp present, of MRC"},
		{"psn", "psn", 72, 24, Dec, "packet sequence number"},
	}},
	{Name: "XETH", Title: "extension header", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Fields: []Field{
		{"version", "x.version", 0, 4, Hidden, "version, 2"},
		{"length", "x.length", 4, 4, Hidden, "length in words"},
		{"profile", "x.profile", 8, 8, Hidden, "profile"},
		{"flags", "x.flags", 16, 16, Hidden, "flags"},
		{"retx", "x.retx", 31, 1, Flag, "retransmission"},
		{"sync", "x.sync", 30, 1, Flag, "synchronise"},
		{"tail", "x.tail", 29, 1, Flag, "last packet of the connection"},
		{"ece", "x.ece", 28, 1, Flag, "congestion experienced"},
		{"refused", "x.refused", 27, 1, Flag, "refused"},
	}},
	{Name: "XETH", Object: "ext", Bytes: 8, Set: bth.HdrXETH, Flag: bth.XHasMsg, Fields: []Field{
		{"msn", "x.msn", 8, 24, Dec, "message sequence number"},
		{"offset", "x.offset", 40, 24, Dec, "packets of the message before (iPSN)"},
	}},
	{Name: "XETH", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Flag: bth.XHasRecvSN, Fields: []Field{{"recv_wqe_sn", "x.recvsn", 8, 24, Dec, "recv_WQE_SN"}}},
	{Name: "XETH", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Flag: bth.XHasReadSN, Fields: []Field{{"read_wqe_sn", "x.readsn", 8, 24, Dec, "read_WQE_SN"}}},
	{Name: "XETH", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Flag: bth.XHasHead, Fields: []Field{{"head", "x.head", 8, 24, Dec, "first PSN of the connection"}}},
	{Name: "XETH", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Flag: bth.XHasSACK, Fields: []Field{{"sack", "x.sack", 8, 24, Dec, "selectively acknowledged PSN"}}},
	{Name: "XETH", Object: "ext", Bytes: 4, Set: bth.HdrXETH, Flag: bth.XHasPath, Fields: []Field{{"path", "x.path", 16, 16, Dec, "virtual path (UDP source port)"}}},
	hole(bth.XHasHole1, "x.hole1", "x.len1"),
	hole(bth.XHasHole2, "x.hole2", "x.len2"),
	hole(bth.XHasHole3, "x.hole3", "x.len3"),
	{Name: "METH", Title: "message extended transport header", Object: "mrc", Bytes: bth.METHLen, Set: bth.HdrMETH, Fields: []Field{
		{"rqmsn", "m.rqmsn", 0, 16, Dec, "number among the WRITEs with immediate data"},
		{"msn", "m.msn", 16, 16, Dec, "message sequence number"},
	}},
	{Name: "TSETH", Title: "timestamp extended transport header", Object: "mrc", Bytes: bth.TSETHLen, Set: bth.HdrTSETH, Fields: stamp("t", 0)},
	{Name: "DETH", Title: "datagram extended transport header", Bytes: bth.DETHLen, Set: bth.HdrDETH, Fields: []Field{ // 9.3.2
		{"qkey", "qkey", 0, 32, Fixed, "Q_Key"},
		{"srcqp", "src", 40, 24, Hidden, "source queue pair of a datagram"},
	}},
	{Name: "FETH", Title: "FLUSH extended transport header", Bytes: bth.FETHLen, Set: bth.HdrFETH, Fields: []Field{ // annex A19
		{"flush", "plt", 28, 4, Dec, "placement type of a FLUSH: 1 global, 2 persistent"},
		{"level", "sel", 26, 2, Dec, "selectivity level of a FLUSH: 0 range, 1 region"},
	}},
	{Name: "RETH", Title: "RDMA extended transport header", Bytes: bth.RETHLen, Set: bth.HdrRETH, Fields: []Field{ // 9.3.3
		{"va", "va", 0, 64, Hex, "virtual address"},
		{"rkey", "rkey", 64, 32, Fixed, "remote key"},
		{"dmalen", "len", 96, 32, Dec, "DMA length"},
	}},
	{Name: "AtomicETH", Title: "atomic extended transport header", Bytes: bth.AtomicETHLen, Set: bth.HdrAtomicETH, Fields: []Field{ // 9.3.4
		{"va", "va", 0, 64, Hex, "virtual address"},
		{"rkey", "rkey", 64, 32, Fixed, "remote key"},
		{"swapadd", "swap", 96, 64, Dec, "swap value or addend"},
		{"compare", "compare", 160, 64, Dec, "compare value"},
	}},
	{Name: "AETH", Title: "ACK extended transport header", Bytes: bth.AETHLen, Set: bth.HdrAETH, Fields: []Field{ // 9.3.5
		{"syndrome", "syndrome", 0, 8, Hidden, "AETH syndrome"},
		{"msn", "msn", 8, 24, Dec, "message sequence number"},
	}},
	{Name: "AtomicAckETH", Title: "atomic ACK extended transport header", Bytes: bth.AtomicAckLen, Set: bth.HdrAtomicAck, Fields: []Field{
		{"original", "orig", 0, 64, Dec, "original value of an atomic operation"}}}, // 9.3.5.3
	{Name: "ImmDt", Title: "immediate data", Bytes: bth.ImmDtLen, Set: bth.HdrImm, Fields: []Field{{"imm", "imm", 0, 32, Fixed, "immediate data"}}}, // 9.3.6
	{Name: "IETH", Title: "invalidate extended transport header", Bytes: bth.IETHLen, Set: bth.HdrIETH, Fields: []Field{
		{"invrkey", "inv", 0, 32, Fixed, "remote key to invalidate"}}}, // 9.3.7
	{Name: "SETH", Title: "SACK extended transport header", Object: "mrc", Bytes: bth.SETHLen, Set: bth.HdrSETH, Fields: []Field{
		{"mark", "s.mark", 9, 2, Dec, "path feedback: 1 skip the entropy value once, 2 always"},
		{"probe_reply", "s.pr", 14, 1, Hidden, "answers a probe"},
		{"ack_psn", "s.ack", 16, 16, Hidden, "PSN of the packet that triggered the SACK, less s.cack; or the probe"},
		{"entropy", "s.ev", 32, 32, Fixed, "entropy value"},
		{"src_context", "s.src", 64, 16, Fixed, "source context (spdcid)"},
		{"dest_context", "s.dst", 80, 16, Fixed, "destination context (dpdcid)"},
		{"cack", "s.cack", 104, 24, Dec, "cumulatively acknowledged PSN"},
		{"cc_type", "s.cctype", 128, 4, Dec, "format of the congestion control state"},
		{"cc_flags", "s.ccfl", 132, 4, Dec, "flags of the congestion control state"},
		{"mpr", "s.mpr", 136, 8, Hidden, "maximum PSN range in 128 PSNs"},
		{"base", "s.base", 144, 16, Hidden, "PSN of the bitmap's lowest bit, less s.cack"},
		{"bitmap", "s.bitmap", 160, 64, Fixed, "bitmap"},
	}},
	{Name: "CC_STATE", Title: "congestion control state", Object: "mrc", Bytes: bth.CCStateLen, Set: bth.HdrCCState, Fields: []Field{
		{"timestamp", "c.time", 0, 16, Dec, "timestamp"},
		{"ooo_count", "c.ooo", 17, 15, Dec, "out-of-order count"},
		{"restore", "c.restore", 32, 1, Flag, "restore the window"},
		{"penalty", "c.penalty", 33, 7, Dec, "window penalty"},
		{"received", "c.received", 40, 24, Hidden, "received bytes in 256 bytes"},
	}},
	{Name: "NETH", Title: "NACK extended transport header", Object: "mrc", Bytes: bth.NETHLen, Set: bth.HdrNETH, Fields: []Field{
		{"reason", "n.reason", 16, 8, Hidden, "reason"},
		{"vendor", "n.vendor", 24, 8, Dec, "vendor information"},
		{"entropy", "n.ev", 32, 32, Fixed, "entropy value"},
		{"src_context", "n.src", 64, 16, Fixed, "source context (spdcid)"},
		{"dest_context", "n.dst", 80, 16, Fixed, "destination context (dpdcid)"},
		{"nack", "n.psn", 104, 24, Dec, "refused PSN"},
		{"cc_type", "n.cctype", 128, 4, Dec, "format of the congestion control state"},
		{"cc_flags", "n.ccfl", 132, 4, Dec, "flags of the congestion control state"},
		{"timestamp", "n.time", 144, 16, Dec, "timestamp"},
	}},
	{Name: "PETH", Title: "probe extended transport header", Object: "mrc", Bytes: bth.PETHLen, Set: bth.HdrPETH, Fields: append([]Field{
		{"vendor", "p.vendor", 24, 8, Dec, "vendor information"},
		{"probe_id", "p.id", 32, 16, Dec, "probe"},
		{"src_context", "p.src", 64, 16, Fixed, "source context (spdcid)"},
		{"dest_context", "p.dst", 80, 16, Fixed, "destination context (dpdcid)"},
	}, stamp("p", 96)...)},
	{Name: "ERTH", Title: "endpoint request extended transport header", Object: "mrc", Bytes: bth.ERTHLen, Set: bth.HdrERTH, Fields: append([]Field{
		{"op", "e.op", 14, 2, Dec, "endpoint operation: 0 port status, 1 probe of an entropy value"},
		{"vendor", "e.vendor", 24, 8, Dec, "vendor information"},
		{"port_mask", "e.ports", 32, 32, Hex, "reachable ports"},
	}, stamp("e", 96)...)},
	{Name: "EETH", Title: "endpoint response extended transport header", Object: "mrc", Bytes: bth.EETHLen, Set: bth.HdrEETH, Fields: []Field{
		{"op", "r.op", 12, 2, Dec, "endpoint operation: 0 port status, 1 probe of an entropy value"},
		{"timestamp", "r.time", 224, 16, Dec, "timestamp"},
	}},
}

// Carriers lists the headers before the BTH.
var Carriers = []Header{
	{Name: "Ethernet", Bytes: 14, Fields: []Field{
		{"", "eth.dst", 0, 48, Hidden, "Ethernet destination address"},
		{"", "eth.src", 48, 48, Hidden, "Ethernet source address"},
		{"", "eth.type", 96, 16, Hidden, "EtherType, or 0x8100 before a VLAN tag"},
	}},
	{Name: "VLAN", Bytes: 4, Fields: []Field{
		{"", "vlan.pcp", 0, 3, Hidden, "VLAN priority"},
		{"", "vlan.dei", 3, 1, Hidden, "VLAN drop eligible indicator"},
		{"vlan", "vlan.id", 4, 12, Hidden, "VLAN number"},
		{"", "vlan.type", 16, 16, Hidden, "EtherType behind the VLAN tag"},
	}},
	{Name: "IPv4", Bytes: 20, Fields: []Field{
		{"", "ip.version", 0, 4, Hidden, "IP version"},
		{"", "ip.ihl", 4, 4, Hidden, "IPv4 header length in words"},
		{"dscp", "ip.dscp", 8, 6, Hidden, "differentiated services code point"},
		{"ecn", "ip.ecn", 14, 2, Hidden, "congestion: 0 none, 1 or 2 capable, 3 experienced (CE)"},
		{"", "ip.len", 16, 16, Hidden, "IPv4 total length, IPv6 payload length"},
		{"", "ip.id", 32, 16, Hidden, "IPv4 identification"},
		{"", "ip.flags", 48, 3, Hidden, "IPv4 flags: 2 don't fragment, 1 more fragments"},
		{"", "ip.frag", 51, 13, Hidden, "IPv4 fragment offset"},
		{"", "ip.ttl", 64, 8, Hidden, "IPv4 TTL, IPv6 hop limit"},
		{"", "ip.proto", 72, 8, Hidden, "IPv4 protocol, IPv6 next header"},
		{"", "ip.csum", 80, 16, Hidden, "IPv4 header checksum"},
		{"src", "ip.src", 96, 32, Hidden, "source address"},
		{"dst", "ip.dst", 128, 32, Hidden, "destination address"},
	}},
	{Name: "IPv6", Bytes: 40, Fields: []Field{
		{"", "ip.version", 0, 4, Hidden, "IP version"},
		{"dscp", "ip.dscp", 4, 6, Hidden, "differentiated services code point"},
		{"ecn", "ip.ecn", 10, 2, Hidden, "congestion: 0 none, 1 or 2 capable, 3 experienced (CE)"},
		{"", "ip.flow", 12, 20, Hidden, "IPv6 flow label"},
		{"", "ip.len", 32, 16, Hidden, "IPv4 total length, IPv6 payload length"},
		{"", "ip.proto", 48, 8, Hidden, "IPv4 protocol, IPv6 next header"},
		{"", "ip.ttl", 56, 8, Hidden, "IPv4 TTL, IPv6 hop limit"},
		{"src", "ip.src", 64, 128, Hidden, "source address"},
		{"dst", "ip.dst", 192, 128, Hidden, "destination address"},
	}},
	{Name: "UDP", Bytes: bth.UDPLen, Fields: []Field{
		{"sport", "udp.sport", 0, 16, Hidden, "UDP source port, the entropy of the path"},
		{"", "udp.dport", 16, 16, Hidden, "UDP destination port, 4791"},
		{"", "udp.len", 32, 16, Hidden, "UDP length"},
		{"", "udp.csum", 48, 16, Hidden, "UDP checksum"},
	}},
}

// hole returns the part of the extension header that has a hole.
func hole(flag bth.XFlags, start, length string) Header {
	return Header{Name: "XETH", Object: "ext", Bytes: 8, Set: bth.HdrXETH, Flag: flag, Fields: []Field{
		{"hole.start", start, 8, 24, Hidden, "first missing PSN"}, {"hole.len", length, 40, 24, Hidden, "missing packets"}}}
}

// stamp returns the fields of a timestamp at a bit of a header.
func stamp(script string, bit int) []Field {
	return []Field{{"timestamp", script + ".time", bit, 16, Dec, "timestamp"},
		{"coarse", script + ".coarse", bit + 16, 1, Flag, "unit of the timestamp is not 128 ns"},
		{"format", script + ".format", bit + 28, 4, Dec, "format of the timestamp: 1 with a timestamp"}}
}

// Management is a message of the connection manager, a datagram to queue pair 1 (IBTA vol.1 12.6). The header of management
// datagrams has 24 bytes.
var Management = Header{Name: "MAD", Bytes: 256, Fields: []Field{
	{"", "mad.class", 8, 8, Hidden, "management datagram: class, 7 for the connection manager"},
	{"", "mad.version", 16, 8, Hidden, "management datagram: version of the class, 2"},
	{"", "mad.method", 24, 8, Hidden, "management datagram: method, 3 for a message of the connection manager"},
	{"", "mad.tid", 64, 64, Hidden, "management datagram: transaction ID"},
	{"", "mad.attr", 128, 16, Hidden, "management datagram: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ or SIDR_REP"},
	{"", "cm.local", 192, 32, Hidden, "communication ID of the sender"},
	{"", "cm.remote", 224, 32, Hidden, "communication ID of the receiver; REQ has none"},
	{"", "req.service", 256, 64, Hidden, "REQ: service ID"},
	{"", "req.guid", 320, 64, Hidden, "REQ: GUID of the sender"},
	{"", "req.qkey", 416, 32, Hidden, "REQ: Q_Key of the sender's queue pair"},
	{"", "req.qpn", 448, 24, Hidden, "REQ: queue pair of the sender"},
	{"", "req.resources", 472, 8, Hidden, "REQ: responder resources"},
	{"", "req.depth", 504, 8, Hidden, "REQ: initiator depth"},
	{"", "req.timeout", 536, 5, Hidden, "REQ: how long the sender waits for an answer, 4.096 us * 2^n"},
	{"", "req.type", 541, 2, Hidden, "REQ: 0 RC, 1 UC"},
	{"", "req.flow", 543, 1, Hidden, "REQ: the sender has end-to-end flow control"},
	{"", "req.psn", 544, 24, Hidden, "REQ: first PSN of the receiver's requests"},
	{"", "req.local_timeout", 568, 5, Hidden, "REQ: how long the receiver may wait for an answer"},
	{"", "req.retry", 573, 3, Hidden, "REQ: retry count"},
	{"", "req.pkey", 576, 16, Hidden, "REQ: partition key"},
	{"", "req.mtu", 592, 4, Hidden, "REQ: path MTU, 1 for 256 to 5 for 4096"},
	{"", "req.rnr", 597, 3, Hidden, "REQ: RNR retry count"},
	{"", "req.cm_retries", 600, 4, Hidden, "REQ: how often messages are retransmitted"},
	{"", "req.srq", 604, 1, Hidden, "REQ: the sender's queue pair has a shared receive queue"},
	{"", "req.src", 640, 128, Hidden, "REQ: GID of the sender"},
	{"", "req.dst", 768, 128, Hidden, "REQ: GID of the receiver"},
	{"", "req.label", 896, 20, Hidden, "REQ: flow label of the path"},
	{"", "req.tclass", 928, 8, Hidden, "REQ: traffic class of the path"},
	{"", "req.hop", 936, 8, Hidden, "REQ: hop limit of the path"},
	{"", "req.sl", 944, 4, Hidden, "REQ: service level of the path"},
	{"", "req.ack_timeout", 952, 5, Hidden, "REQ: acknowledgement timeout of the sender's queue pair, 4.096 us * 2^n"},
	{"", "rep.qkey", 256, 32, Hidden, "REP: Q_Key of the sender's queue pair"},
	{"", "rep.qpn", 288, 24, Hidden, "REP: queue pair of the sender"},
	{"", "rep.eecn", 320, 24, Hidden, "REP: end-to-end context of the sender"},
	{"", "rep.psn", 352, 24, Hidden, "REP: first PSN of the receiver's requests"},
	{"", "rep.resources", 384, 8, Hidden, "REP: responder resources"},
	{"", "rep.depth", 392, 8, Hidden, "REP: initiator depth"},
	{"", "rep.ack_delay", 400, 5, Hidden, "REP: the longest delay of the sender's acknowledgements, 4.096 us * 2^n"},
	{"", "rep.failover", 405, 2, Hidden, "REP: 0 if the alternate path is accepted"},
	{"", "rep.flow", 407, 1, Hidden, "REP: the sender has end-to-end flow control"},
	{"", "rep.rnr", 408, 3, Hidden, "REP: RNR retry count"},
	{"", "rep.srq", 411, 1, Hidden, "REP: the sender's queue pair has a shared receive queue"},
	{"", "rep.guid", 416, 64, Hidden, "REP: GUID of the sender"},
	{"", "mra.message", 256, 2, Hidden, "MRA: 0 delays the answer to a REQ, 1 to a REP"},
	{"", "mra.timeout", 264, 5, Hidden, "MRA: how long the sender may take for its answer, 4.096 us * 2^n"},
	{"", "rej.message", 256, 2, Hidden, "REJ: 0 rejects a REQ, 1 a REP, 2 another message"},
	{"", "rej.ari_len", 264, 7, Hidden, "REJ: bytes of additional information"},
	{"", "rej.reason", 272, 16, Hidden, "REJ: reason"},
	{"", "rej.ari", 288, 8, Hidden, "REJ: first byte of additional information"},
	{"", "dreq.qpn", 256, 24, Hidden, "DREQ: queue pair of the receiver"},
	{"", "sidr.id", 192, 32, Hidden, "SIDR_REQ, SIDR_REP: number of the request"},
	{"", "sidr.pkey", 224, 16, Hidden, "SIDR_REQ: partition key"},
	{"", "sidr.service", 256, 64, Hidden, "SIDR_REQ: service ID"},
	{"", "sidrrep.status", 224, 8, Hidden, "SIDR_REP: 0 success, 1 no such service, 2 rejected"},
	{"", "sidrrep.qpn", 256, 24, Hidden, "SIDR_REP: queue pair of the service"},
	{"", "sidrrep.service", 288, 64, Hidden, "SIDR_REP: service ID"},
	{"", "sidrrep.qkey", 352, 32, Hidden, "SIDR_REP: Q_Key of the service"},
}}
