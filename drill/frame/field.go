package frame

import (
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/bth"
)

// header is a header of a frame, in the order on the wire.
type header uint8

const (
	hdrEthernet header = iota
	hdrVLAN
	hdrIPv4
	hdrIPv6
	hdrUDP
	hdrBTH
	hdrExtension // the first word of the extension header of the extended transports; its other parts follow
	hdrExtMsg
	hdrExtRecvSN
	hdrExtReadSN
	hdrExtHead
	hdrExtSACK
	hdrExtPath
	hdrExtHole1
	hdrExtHole2
	hdrExtHole3
	hdrMETH
	hdrTSETH
	hdrDETH
	hdrFETH
	hdrRETH
	hdrAtomicETH
	hdrAETH
	hdrAtomicAck
	hdrImm
	hdrIETH
	hdrSETH
	hdrCCState
	hdrNETH
	hdrPETH
	hdrERTH
	hdrEETH
	hdrPayload
	hdrICRC
	hdrMAD // the payload of a datagram to queue pair 1
	headers
)

// Lengths of headers and trailers in bytes. A tester must not share an error with the device under test, so this package
// reads and writes headers, and computes ICRCs, without the codec.
const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
	bthLen      = 12
	icrcLen     = 4
)

// layouts describe the headers: fields and their widths in bits, in the order on the wire. Bits named - are reserved or
// have a name in another layout of the header.
var layouts = []struct {
	header
	layout string
}{
	{hdrEthernet, "eth.dst:48 eth.src:48 eth.type:16"},
	{hdrVLAN, "vlan.pcp:3 vlan.dei:1 vlan.id:12 vlan.type:16"},
	{hdrIPv4, "ip.version:4 ip.ihl:4 ip.dscp:6 ip.ecn:2 ip.len:16 ip.id:16 ip.flags:3 ip.frag:13 " +
		"ip.ttl:8 ip.proto:8 ip.csum:16 ip.src:32 ip.dst:32"},
	{hdrIPv6, "ip.version:4 ip.dscp:6 ip.ecn:2 ip.flow:20 ip.len:16 ip.proto:8 ip.ttl:8 ip.src:128 ip.dst:128"},
	{hdrUDP, "udp.sport:16 udp.dport:16 udp.len:16 udp.csum:16"},
	{hdrBTH, "opcode:8 se:1 mig:1 pad:2 tver:4 pkey:16 fecn:1 becn:1 bth.res6:6 dst:24 ackreq:1 bth.res7:7 psn:24"},
	{hdrExtension, "x.version:4 x.length:4 x.profile:8 -:11 x.refused:1 x.ece:1 x.tail:1 x.sync:1 x.retx:1"},
	{hdrExtMsg, "-:8 x.msn:24 -:8 x.offset:24"},
	{hdrExtRecvSN, "-:8 x.recvsn:24"},
	{hdrExtReadSN, "-:8 x.readsn:24"},
	{hdrExtHead, "-:8 x.head:24"},
	{hdrExtSACK, "-:8 x.sack:24"},
	{hdrExtPath, "-:16 x.path:16"},
	{hdrExtHole1, "-:8 x.hole1:24 -:8 x.len1:24"},
	{hdrExtHole2, "-:8 x.hole2:24 -:8 x.len2:24"},
	{hdrExtHole3, "-:8 x.hole3:24 -:8 x.len3:24"},
	{hdrDETH, "qkey:32 -:8 src:24"},
	{hdrFETH, "-:26 sel:2 plt:4"},
	{hdrRETH, "va:64 rkey:32 len:32"},
	{hdrAtomicETH, "va:64 rkey:32 swap:64 compare:64"},
	{hdrAETH, "syndrome:8 msn:24"},
	{hdrAtomicAck, "orig:64"},
	{hdrImm, "imm:32"},
	{hdrIETH, "inv:32"},
	{hdrBTH, "-:66 m.rtx:1 m.ts:1 -:28"}, // of MRC, as those that follow
	{hdrMETH, "m.rqmsn:16 m.msn:16"},
	{hdrTSETH, "t.time:16 t.coarse:1 -:11 t.format:4"},
	{hdrSETH, "-:9 s.mark:2 -:3 s.pr:1 -:1 s.ack:16 s.ev:32 s.src:16 s.dst:16 -:8 s.cack:24 s.cctype:4 s.ccfl:4 s.mpr:8 s.base:16 s.bitmap:64"},
	{hdrCCState, "c.time:16 -:1 c.ooo:15 c.restore:1 c.penalty:7 c.received:24"},
	{hdrNETH, "-:16 n.reason:8 n.vendor:8 n.ev:32 n.src:16 n.dst:16 -:8 n.psn:24 n.cctype:4 n.ccfl:4 -:8 n.time:16"},
	{hdrPETH, "-:24 p.vendor:8 p.id:16 -:16 p.src:16 p.dst:16 p.time:16 p.coarse:1 -:11 p.format:4"},
	{hdrERTH, "-:14 e.op:2 -:8 e.vendor:8 e.ports:32 -:32 e.time:16 e.coarse:1 -:11 e.format:4"},
	{hdrEETH, "-:12 r.op:2 -:210 r.time:16 -:48"},
	{hdrMAD, "-:8 mad.class:8 mad.version:8 mad.method:8 -:32 mad.tid:64 mad.attr:16 -:48 cm.local:32 cm.remote:32"},
	{hdrMAD, "-:256 req.service:64 req.guid:64 -:32 req.qkey:32 req.qpn:24 req.resources:8 -:24 req.depth:8 -:24 req.timeout:5 req.type:2 req.flow:1 req.psn:24 " +
		"req.local_timeout:5 req.retry:3 req.pkey:16 req.mtu:4 -:1 req.rnr:3 req.cm_retries:4 req.srq:1 -:35 req.src:128 req.dst:128 " +
		"req.label:20 -:12 req.tclass:8 req.hop:8 req.sl:4 -:4 req.ack_timeout:5"},
	{hdrMAD, "-:256 rep.qkey:32 rep.qpn:24 -:8 rep.eecn:24 -:8 rep.psn:24 -:8 rep.resources:8 rep.depth:8 rep.ack_delay:5 rep.failover:2 rep.flow:1 " +
		"rep.rnr:3 rep.srq:1 -:4 rep.guid:64"},
	{hdrMAD, "-:256 rej.message:2 -:6 rej.ari_len:7 -:1 rej.reason:16 rej.ari:8"},
	{hdrMAD, "-:256 mra.message:2 -:6 mra.timeout:5"},
	{hdrMAD, "-:256 dreq.qpn:24"},
	{hdrMAD, "-:192 sidr.id:32 sidr.pkey:16 -:16 sidr.service:64"},
	{hdrMAD, "-:224 sidrrep.status:8 -:24 sidrrep.qpn:24 -:8 sidrrep.service:64 sidrrep.qkey:32"},
}

// Field is a field of a header. A name may occur in several headers: a frame has one of them at most.
type Field struct {
	Name string
	hdr  header
	bit  int // offset from the start of the header in bits
	bits int // width: up to 64, or 128 for addresses
}

// fields lists the fields of layouts, reserved the bits of headers behind the BTH that have no name. lengths has the
// length of each header of fixed length in bytes.
var fields, reserved, lengths = readLayouts()

func readLayouts() (all, reserved []Field, lengths [headers]int) {
	for _, l := range layouts {
		bit := 0
		for part := range strings.FieldsSeq(l.layout) {
			name, width, _ := strings.Cut(part, ":")
			bits, err := strconv.Atoi(width)
			if err != nil {
				panic(err)
			}
			if name != "-" {
				all = append(all, Field{name, l.header, bit, bits})
			} else if l.header > hdrExtension && l.header <= hdrEETH {
				for at := 0; at < bits; at += 64 { // as wide as a number
					reserved = append(reserved, Field{"", l.header, bit + at, min(64, bits-at)})
				}
			}
			bit += bits
		}
		lengths[l.header] = bit / 8
	}
	return all, reserved, lengths
}

// byName lists the fields of each name.
var byName = func() map[string][]*Field {
	m := map[string][]*Field{}
	for i := range fields {
		f := &fields[i]
		m[f.Name] = append(m[f.Name], f)
	}
	return m
}()

// Known reports whether name is a field of some header, or icrc.
func Known(name string) bool { return byName[name] != nil || name == "icrc" }

// get reads the field from h, the bytes of its header. Only fields of up to 64 bits have a number.
func (f *Field) get(h []byte) (v uint64) {
	for i := f.bit; i < f.bit+f.bits; i++ {
		v = v<<1 | uint64(h[i/8]>>(7-i%8)&1)
	}
	return v
}

// put writes the low bits of v into the field.
func (f *Field) put(h []byte, v uint64) {
	for i := f.bit + f.bits - 1; i >= f.bit; i-- {
		mask := byte(0x80) >> (i % 8)
		h[i/8] &^= mask
		if v&1 != 0 {
			h[i/8] |= mask
		}
		v >>= 1
	}
}

// Names returns the names of all fields, and icrc.
func Names() []string {
	names := []string{"icrc"}
	for i := range fields {
		if !slices.Contains(names, fields[i].Name) {
			names = append(names, fields[i].Name)
		}
	}
	return names
}

// Bits returns the width of a field; of a name that several headers have, the greatest.
func Bits(name string) (bits int) {
	for _, f := range byName[name] {
		bits = max(bits, f.bits)
	}
	if name == "icrc" {
		return 8 * icrcLen
	}
	return bits
}

// Has reports whether packets of an opcode can have a field.
func Has(op bth.Opcode, name string) bool {
	set := extensions(op, 0) | extensions(op, 0xff)
	return name == "icrc" || slices.ContainsFunc(byName[name], func(f *Field) bool {
		switch h := f.hdr; {
		case h <= hdrBTH:
			return true
		case h >= hdrExtension && h <= hdrExtHole3:
			return set&bth.HdrXETH != 0
		case h == hdrMAD:
			return op == bth.TransportUD|bth.OpSendOnly
		default:
			return slices.ContainsFunc(transportHeaders, func(t transportHeader) bool { return t.hdr == h && set&t.bit != 0 })
		}
	})
}
