package frame

import (
	"fmt"
	"strings"

	"roced.io/roced/bth"
)

// usual are the values that a printed frame leaves out.
var usual = []Set{
	{Name: "x.version", Value: extVersion}, {Name: "x.profile"}, {Name: "x.retx"}, {Name: "x.sync"}, {Name: "x.tail"}, {Name: "x.ece"}, {Name: "x.refused"},
	{Name: "se"}, {Name: "ackreq"}, {Name: "fecn"}, {Name: "becn"}, {Name: "tver"}, {Name: "bth.res6"}, {Name: "bth.res7"},
	{Name: "pkey", Value: bth.DefaultPKey}, {Name: "ip.ecn"}, {Name: "ip.dscp"}, {Name: "vlan.id"}, {Name: "vlan.pcp"},
}

// decimal are the fields that are counts or sequence numbers, which a printed frame has in decimal.
var decimal = map[string]bool{"psn": true, "msn": true, "len": true}

// shownOfMAD are the fields of management datagrams that a printed frame has.
var shownOfMAD = map[string]bool{"mad.attr": true, "cm.local": true, "cm.remote": true}

// String returns the frame in the notation of scripts: the packet's name, then dst, psn, the fields of the extension headers,
// other fields with unusual values, and the payload.
func (f *Frame) String() string {
	var b strings.Builder
	b.WriteString(OpcodeName(f.Opcode))
	for _, name := range []string{"dst", "psn"} {
		v, _ := f.Get(name)
		writeField(&b, name, v)
	}
	for i := range fields {
		x := &fields[i]
		if x.hdr <= hdrExtension || !f.has(x.hdr) || x.hdr == hdrMAD && !shownOfMAD[x.Name] {
			continue
		}
		writeField(&b, x.Name, x.get(f.Bytes[f.off[x.hdr]:]))
	}
	for _, u := range usual {
		if v, ok := f.Get(u.Name); ok && v != u.Value {
			writeField(&b, u.Name, v)
		}
	}
	if n := len(f.Payload); n > 0 {
		const shown = 8
		fmt.Fprintf(&b, " payload=%d bytes %x", n, f.Payload[:min(n, shown)])
		if n > shown {
			b.WriteString("...")
		}
	}
	if err := f.Check(); err != nil {
		fmt.Fprintf(&b, " (%v)", err)
	}
	return b.String()
}

// writeField appends a field with its value.
func writeField(b *strings.Builder, name string, v uint64) {
	switch {
	case name == "syndrome":
		fmt.Fprintf(b, " syndrome=%s", SyndromeName(bth.Syndrome(v)))
	case decimal[name] || v < 10:
		fmt.Fprintf(b, " %s=%d", name, v)
	default:
		fmt.Fprintf(b, " %s=%#x", name, v)
	}
}

// Syndromes are the names of AETH syndromes in scripts (IBTA vol.1 9.7.5.2.1). RNR has the timer code 0; scripts add one.
var Syndromes = map[string]bth.Syndrome{
	"ACK": bth.SyndromeACK, "RNR": bth.SyndromeRNR, "NAK_SEQ": bth.SyndromePSNSeqErr, "NAK_INV": bth.SyndromeInvalidRequest,
	"NAK_ACCESS": bth.SyndromeRemoteAccessErr, "NAK_OP": bth.SyndromeRemoteOpErr, "NAK_RD": bth.SyndromeInvalidRDReq,
}

// SyndromeName returns the name of a syndrome: "ACK", "RNR+14", "NAK_SEQ", or a number.
func SyndromeName(s bth.Syndrome) string {
	switch {
	case s.IsACK() && s != bth.SyndromeACK:
		return fmt.Sprintf("%#x", uint8(s)) // with credits
	case s.IsRNR():
		return fmt.Sprintf("RNR+%d", s.Value())
	}
	for name, v := range Syndromes {
		if v == s {
			return name
		}
	}
	return fmt.Sprintf("%#x", uint8(s))
}
