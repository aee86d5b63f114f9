package frame

import (
	"slices"

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
	hdrExtension // of the extended transports; its fields are in xeth.go
	hdrDETH
	hdrFETH
	hdrRETH
	hdrAtomicETH
	hdrAETH
	hdrAtomicAck
	hdrImm
	hdrIETH
	hdrMETH // from here on, of MRC; its fields are in mrc.go
	hdrTSETH
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

// Lengths of the headers below the BTH in bytes.
const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
)

// transportHeaders maps the extension headers of an opcode to the headers of this package.
var transportHeaders = []struct {
	bit bth.Headers
	hdr header
	len int
}{
	{bth.HdrMETH, hdrMETH, bth.METHLen},
	{bth.HdrTSETH, hdrTSETH, bth.TSETHLen},
	{bth.HdrDETH, hdrDETH, bth.DETHLen},
	{bth.HdrFETH, hdrFETH, bth.FETHLen},
	{bth.HdrRETH, hdrRETH, bth.RETHLen},
	{bth.HdrAtomicETH, hdrAtomicETH, bth.AtomicETHLen},
	{bth.HdrAETH, hdrAETH, bth.AETHLen},
	{bth.HdrAtomicAck, hdrAtomicAck, bth.AtomicAckLen},
	{bth.HdrImm, hdrImm, bth.ImmDtLen},
	{bth.HdrIETH, hdrIETH, bth.IETHLen},
	{bth.HdrSETH, hdrSETH, bth.SETHLen},
	{bth.HdrCCState, hdrCCState, bth.CCStateLen},
	{bth.HdrNETH, hdrNETH, bth.NETHLen},
	{bth.HdrPETH, hdrPETH, bth.PETHLen},
	{bth.HdrERTH, hdrERTH, bth.ERTHLen},
	{bth.HdrEETH, hdrEETH, bth.EETHLen},
}

// Field is a field of a header.
type Field struct {
	Name string
	hdr  header
	bit  int // offset from the start of the header in bits
	bits int // width: up to 64, or 128 for IPv6 addresses
	// Doc is a short description for the reference.
	Doc string
}

// Bits returns the width of the field in bits.
func (f *Field) Bits() int { return f.bits }

// fields lists all fields of fixed place: those of the headers, of MRC, and of management datagrams.
var fields = slices.Concat(headerFields, mrcFields, madFields)

// headerFields lists the fields of headers. A name may occur in several headers: a frame has one of them at most.
// References are to IBTA vol.1 chapter 9.
var headerFields = []Field{
	{"eth.dst", hdrEthernet, 0, 48, "Ethernet destination address"},
	{"eth.src", hdrEthernet, 48, 48, "Ethernet source address"},
	{"eth.type", hdrEthernet, 96, 16, "EtherType, or 0x8100 before a VLAN tag"},
	{"vlan.pcp", hdrVLAN, 0, 3, "VLAN priority"},
	{"vlan.dei", hdrVLAN, 3, 1, "VLAN drop eligible indicator"},
	{"vlan.id", hdrVLAN, 4, 12, "VLAN number"},
	{"vlan.type", hdrVLAN, 16, 16, "EtherType behind the VLAN tag"},

	{"ip.version", hdrIPv4, 0, 4, "IP version"},
	{"ip.ihl", hdrIPv4, 4, 4, "IPv4 header length in words"},
	{"ip.dscp", hdrIPv4, 8, 6, "differentiated services code point"},
	{"ip.ecn", hdrIPv4, 14, 2, "congestion: 0 none, 1 or 2 capable, 3 experienced (CE)"},
	{"ip.len", hdrIPv4, 16, 16, "IPv4 total length, IPv6 payload length"},
	{"ip.id", hdrIPv4, 32, 16, "IPv4 identification"},
	{"ip.flags", hdrIPv4, 48, 3, "IPv4 flags: 2 don't fragment, 1 more fragments"},
	{"ip.frag", hdrIPv4, 51, 13, "IPv4 fragment offset"},
	{"ip.ttl", hdrIPv4, 64, 8, "IPv4 TTL, IPv6 hop limit"},
	{"ip.proto", hdrIPv4, 72, 8, "IPv4 protocol, IPv6 next header"},
	{"ip.csum", hdrIPv4, 80, 16, "IPv4 header checksum"},
	{"ip.src", hdrIPv4, 96, 32, "source address"},
	{"ip.dst", hdrIPv4, 128, 32, "destination address"},

	{"ip.version", hdrIPv6, 0, 4, ""},
	{"ip.dscp", hdrIPv6, 4, 6, ""},
	{"ip.ecn", hdrIPv6, 10, 2, ""},
	{"ip.flow", hdrIPv6, 12, 20, "IPv6 flow label"},
	{"ip.len", hdrIPv6, 32, 16, ""},
	{"ip.proto", hdrIPv6, 48, 8, ""},
	{"ip.ttl", hdrIPv6, 56, 8, ""},
	{"ip.src", hdrIPv6, 64, 128, ""},
	{"ip.dst", hdrIPv6, 192, 128, ""},

	{"udp.sport", hdrUDP, 0, 16, "UDP source port, the entropy of the path"},
	{"udp.dport", hdrUDP, 16, 16, "UDP destination port, 4791"},
	{"udp.len", hdrUDP, 32, 16, "UDP length"},
	{"udp.csum", hdrUDP, 48, 16, "UDP checksum"},

	{"opcode", hdrBTH, 0, 8, "opcode as a number; the packet's name sets it"},
	{"se", hdrBTH, 8, 1, "solicited event"},
	{"mig", hdrBTH, 9, 1, "migration state"},
	{"pad", hdrBTH, 10, 2, "pad count"},
	{"tver", hdrBTH, 12, 4, "transport header version, 0"},
	{"pkey", hdrBTH, 16, 16, "partition key"},
	{"fecn", hdrBTH, 32, 1, "forward congestion notification"},
	{"becn", hdrBTH, 33, 1, "backward congestion notification"},
	{"bth.res6", hdrBTH, 34, 6, "reserved bits, 0"},
	{"dst", hdrBTH, 40, 24, "destination queue pair"},
	{"ackreq", hdrBTH, 64, 1, "acknowledgement request"},
	{"bth.res7", hdrBTH, 65, 7, "reserved bits, 0"},
	{"psn", hdrBTH, 72, 24, "packet sequence number"},

	{"qkey", hdrDETH, 0, 32, "Q_Key"},
	{"src", hdrDETH, 40, 24, "source queue pair of a datagram"},
	{"plt", hdrFETH, 28, 4, "placement type of a FLUSH: 1 global, 2 persistent"},
	{"sel", hdrFETH, 26, 2, "selectivity level of a FLUSH: 0 range, 1 region"},
	{"va", hdrRETH, 0, 64, "virtual address"},
	{"rkey", hdrRETH, 64, 32, "remote key"},
	{"len", hdrRETH, 96, 32, "DMA length"},
	{"va", hdrAtomicETH, 0, 64, ""},
	{"rkey", hdrAtomicETH, 64, 32, ""},
	{"swap", hdrAtomicETH, 96, 64, "swap value, or addend"},
	{"compare", hdrAtomicETH, 160, 64, "compare value"},
	{"syndrome", hdrAETH, 0, 8, "AETH syndrome"},
	{"msn", hdrAETH, 8, 24, "message sequence number"},
	{"orig", hdrAtomicAck, 0, 64, "original value of an atomic operation"},
	{"imm", hdrImm, 0, 32, "immediate data"},
	{"inv", hdrIETH, 0, 32, "key to invalidate"},
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

// Known reports whether name is a field of some header, of the extension header, or icrc.
func Known(name string) bool {
	return byName[name] != nil || extByName[name] != nil || name == "icrc"
}

// Fields returns every field once, in the order on the wire, for the reference.
func Fields() []Field {
	var out []Field
	for _, f := range fields {
		if f.Doc != "" {
			out = append(out, f)
		}
	}
	return out
}

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
