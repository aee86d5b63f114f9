package frame

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"

	"roced.io/roced/bth"
	bthfields "roced.io/roced/bth/fields"
	_ "roced.io/roced/bth/layers"
	"roced.io/roced/bth/mad"
)

// TestTable compares the offsets of this package with the table of fields.
func TestTable(t *testing.T) {
	type place struct {
		bytes, bit, bits int
	}
	places := func(all map[string][]place, name string, p place) { all[name] = append(all[name], p) }
	own, table := map[string][]place{}, map[string][]place{}
	for _, x := range fields {
		places(own, x.Name, place{lengths[x.hdr], x.bit, x.bits})
	}
	for _, h := range bthfields.All() {
		for _, f := range h.Fields {
			if f.Script == "x.flags" { // as a whole only in the dissector
				continue
			}
			n := h.Bytes
			if h.Name == "MAD" {
				n = lengths[hdrMAD]
			}
			places(table, f.Script, place{n, f.Bit, f.Bits})
		}
	}
	if d := cmp.Diff(table, own, cmp.AllowUnexported(place{})); d != "" {
		t.Errorf("(-table +tester)\n%s", d)
	}
}

// codec has the fields of bth.Packet for the fields of the table. Those of layers have the same names behind the header's,
// or the name behind the bar. The codec checks fields with "-", or ignores them.
const codec = `
opcode Opcode|Opcode, se Solicited|Solicited, mig MigReq|MigReq, pad -|PadCount, tver -|TVer, pkey PKey|PKey, fecn FECN|FECN, becn BECN|BECN,
bth.res6 -|Reserved6, dst DestQP|DestQP, ackreq AckReq|AckReq, bth.res7 -|Reserved7, m.rtx ReTx|Reserved7, m.ts Stamped|Reserved7, psn PSN|PSN,
x.version -|-, x.length -|-, x.flags -|-, x.profile Ext.Profile, x.retx Ext.Flags, x.sync Ext.Flags, x.tail Ext.Flags, x.ece Ext.Flags,
x.refused Ext.Flags, x.msn Ext.MSN, x.offset Ext.Offset, x.recvsn Ext.RecvSN, x.readsn Ext.ReadSN, x.head Ext.Head, x.sack Ext.SACK, x.path Ext.Path,
x.hole1 Ext.Holes.0.Start, x.len1 Ext.Holes.0.Len, x.hole2 Ext.Holes.1.Start, x.len2 Ext.Holes.1.Len, x.hole3 Ext.Holes.2.Start, x.len3 Ext.Holes.2.Len,
m.rqmsn METH.RQMSN, m.msn METH.MSN, t.time TSETH.Timestamp, t.coarse TSETH.Coarse, t.format TSETH.Format, qkey DETH.QKey, src DETH.SrcQP,
plt FETH.Type, sel FETH.Level, va RETH.VA, rkey RETH.RKey, len RETH.Length, AtomicETH.va AtomicETH.VA, AtomicETH.rkey AtomicETH.RKey,
swap AtomicETH.SwapAdd, compare AtomicETH.Compare, syndrome AETH.Syndrome, msn AETH.MSN, orig AtomicAck|Original, imm Imm|Imm, inv IETH|RKey,
s.mark SETH.Mark, s.pr SETH.ProbeReply, s.ack SETH.AckOffset, s.ev SETH.Entropy, s.src SETH.SrcContext, s.dst SETH.DestContext, s.cack SETH.Cack,
s.cctype SETH.CCType, s.ccfl SETH.CCFlags, s.mpr SETH.MPR, s.base SETH.SACKOffset, s.bitmap SETH.Bitmap, c.time CCState.Timestamp,
c.ooo CCState.OutOfOrder, c.restore CCState.Restore, c.penalty CCState.Penalty, c.received CCState.Received, n.reason NETH.Reason, n.vendor NETH.Vendor,
n.ev NETH.Entropy, n.src NETH.SrcContext, n.dst NETH.DestContext, n.psn NETH.PSN, n.cctype NETH.CCType, n.ccfl NETH.CCFlags, n.time NETH.Timestamp,
p.vendor PETH.Vendor, p.id PETH.ProbeID, p.src PETH.SrcContext, p.dst PETH.DestContext, p.time PETH.TSETH.Timestamp, p.coarse PETH.TSETH.Coarse,
p.format PETH.TSETH.Format, e.op ERTH.Op, e.vendor ERTH.Vendor, e.ports ERTH.PortMask, e.time ERTH.TSETH.Timestamp, e.coarse ERTH.TSETH.Coarse,
e.format ERTH.TSETH.Format, r.op EETH.Op, r.time EETH.Timestamp`

// codecNames returns the names of a field of the header in bth.Packet and in its layer.
func codecNames(t *testing.T, header, script string) (packet, layer string) {
	t.Helper()
	for _, name := range []string{header + "." + script, script} {
		if _, rest, ok := strings.Cut(codec+",", " "+name+" "); ok {
			packet, _, _ = strings.Cut(rest, ",")
			break
		}
		if _, rest, ok := strings.Cut(codec+",", "\n"+name+" "); ok {
			packet, _, _ = strings.Cut(rest, ",")
			break
		}
	}
	if packet == "" {
		t.Errorf("no name of %s %s", header, script)
	}
	packet, layer, ok := strings.Cut(packet, "|")
	if !ok {
		layer = strings.Replace(packet, "Ext.", "XETH.", 1)
	}
	return packet, layer
}

// TestCodec changes each bit of each field, and checks that the codec and the layer of gopacket have it in the field of that
// meaning, and only there, and that the codec writes it to the same place.
func TestCodec(t *testing.T) {
	for i := range bthfields.Headers {
		h := &bthfields.Headers[i]
		p, b, at := packetWith(t, h)
		for _, f := range h.Fields {
			inPacket, inLayer := codecNames(t, h.Name, f.Script)
			for n := range f.Bits {
				changed := bytes.Clone(b)
				changed[at+(f.Bit+n)/8] ^= 0x80 >> ((f.Bit + n) % 8)
				bit := uint64(1) << (f.Bits - 1 - n)
				if strings.HasPrefix(f.Script, "x.") && f.Bits == 1 {
					bit = 1 << (31 - f.Bit) // of the flags
				}
				var q bth.Packet
				err := q.Decode(changed)
				if got := difference(leaves(p), leaves(q)); f.Script != "opcode" && f.Script != "m.ts" && inPacket != "-" {
					if want := map[string]uint64{inPacket: bit}; err != nil || !maps.Equal(got, want) {
						t.Errorf("%s %s, bit %d: the codec has %v, %v, want %v", h.Name, f.Script, n, got, err, want)
					} else if again := q.AppendTo(nil); !bytes.Equal(again, changed) {
						t.Errorf("%s %s, bit %d: the codec writes\n%x, want\n%x", h.Name, f.Script, n, again, changed)
					}
				}
				if f.Script == "m.rtx" || f.Script == "m.ts" {
					bit = 1 << (71 - f.Bit) // of the reserved bits
				}
				if inLayer == "-" || f.Script == "opcode" || f.Script == "pad" {
					continue
				}
				if got, want := difference(layer(t, h.Name, b), layer(t, h.Name, changed)), (map[string]uint64{inLayer: bit}); !maps.Equal(got, want) {
					t.Errorf("%s %s, bit %d: the layer has %v, want %v", h.Name, f.Script, n, got, want)
				}
			}
		}
	}
}

// packetWith returns a packet that has the header, its bytes, and the offset of the header.
func packetWith(t *testing.T, h *bthfields.Header) (p bth.Packet, b []byte, at int) {
	t.Helper()
	for o := range 256 {
		p = bth.Packet{Opcode: bth.Opcode(o), Stamped: h.Set == bth.HdrTSETH, Ext: bth.XETH{Flags: h.Flag}}
		if h.Name == "BTH" {
			p.Opcode = bth.OpcodeMRCSACK
		}
		switch h.Flag { // a hole needs those before it
		case bth.XHasHole2, bth.XHasHole3:
			p.Ext.Flags = h.Flag | h.Flag>>1 | bth.XHasHole1
		}
		for i := range p.Ext.HoleCount() {
			p.Ext.Holes[i].Len = 1<<24 - 1
		}
		if p.Opcode.Valid() && (h.Set == 0 || p.Headers()&h.Set != 0) {
			break
		}
	}
	if p.Opcode.HasPayload() {
		p.Payload = make([]byte, 4)
	}
	if b = p.AppendTo(nil); h.Set == 0 {
		return p, b, 0
	}
	at = -1
	bthfields.Extensions(&p, b, func(x *bthfields.Header, part []byte) {
		if x == h {
			at = cap(b) - cap(part)
		}
	})
	if at < 0 {
		t.Fatalf("no packet has %s", h.Name)
	}
	if err := p.Decode(b); err != nil {
		t.Fatal(h.Name, err)
	}
	return p, b, at
}

// layer returns the fields of a layer of gopacket. Reserved bits are left out, but those of the BTH.
func layer(t *testing.T, name string, b []byte) map[string]uint64 {
	t.Helper()
	name = map[string]string{"CC_STATE": "CCState"}[name] + strings.TrimPrefix(name, "CC_STATE")
	for _, l := range gopacket.NewPacket(b, gopacket.LayerType(1791), gopacket.Default).Layers() {
		if l.LayerType().String() == name {
			all := leaves(reflect.ValueOf(l).Elem().Interface())
			maps.DeleteFunc(all, func(name string, _ uint64) bool {
				first, _, _ := strings.Cut(name, ".")
				return slices.Contains([]string{"ext", "BaseLayer", "Reserved", "Rest", "Pad", "ICRC", "datagram", "network", "udp"}, first)
			})
			return all
		}
	}
	t.Errorf("no layer %s in %x", name, b)
	return nil
}

// leaves returns the numbers in v, by their names.
func leaves(v any) map[string]uint64 {
	all := map[string]uint64{}
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i).Name; f == "v" { // of a PSN
					walk(name, v.Field(i))
				} else {
					walk(strings.TrimPrefix(name+"."+f, "."), v.Field(i))
				}
			}
		case reflect.Array:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s.%d", name, i), v.Index(i))
			}
		case reflect.Bool:
			all[name] = 0
			if v.Bool() {
				all[name] = 1
			}
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			all[name] = v.Uint()
		case reflect.Int16:
			all[name] = uint64(uint16(v.Int()))
		}
	}
	walk("", reflect.ValueOf(v))
	return all
}

// difference returns the bits that differ.
func difference(a, b map[string]uint64) map[string]uint64 {
	d := map[string]uint64{}
	for name, v := range a {
		if v != b[name] {
			d[name] = v ^ b[name]
		}
	}
	return d
}

// TestManagement does the same for the codec of management datagrams.
func TestManagement(t *testing.T) {
	const names = `mad.method Method, mad.tid TID, mad.attr Attr, req.service ServiceID, req.qpn LocalQPN, req.resources ResponderResources,
		req.depth InitiatorDepth, req.timeout RemoteCMTimeout, req.type Type, req.psn StartingPSN, req.local_timeout LocalCMTimeout, req.retry RetryCount,
		req.pkey PKey, req.mtu PathMTU, req.rnr RNRRetry, req.cm_retries MaxCMRetries, req.qkey LocalQKey, req.flow FlowControl, req.srq SRQ, req.label Primary.FlowLabel,
		req.tclass Primary.TrafficClass, req.hop Primary.HopLimit, req.sl Primary.SL, mra.message Answers, mra.timeout ServiceTimeout, req.ack_timeout Primary.LocalAckTimeout, rep.qpn LocalQPN,
		rep.qkey LocalQKey, rep.eecn LocalEECN, rep.ack_delay TargetAckDelay, rep.failover FailoverAccepted, rep.flow FlowControl, rep.rnr RNRRetry,
		rep.srq SRQ, rep.guid LocalCAGUID, rep.psn StartingPSN, rep.resources ResponderResources, rep.depth InitiatorDepth, rej.reason Reason, dreq.qpn RemoteQPN, cm.local LocalCommID,
		cm.remote RemoteCommID, mad.class Class, req.guid LocalCAGUID, rej.message Answers, mad.version ClassVersion, sidr.id RequestID, sidr.pkey PKey, sidr.service ServiceID,
		sidrrep.status Status, sidrrep.qpn QPN, sidrrep.service ServiceID, sidrrep.qkey QKey`
	decode := func(message string, m []byte) any {
		switch message {
		case "mad":
			var h mad.Header
			if err := h.Decode(m); err != nil {
				t.Fatal(err)
			}
			return h
		case "req":
			var r mad.REQ
			r.Decode(m)
			return r
		case "rep":
			var r mad.REP
			r.Decode(m)
			return r
		case "mra":
			var r mad.MRA
			r.Decode(m)
			return r
		case "rej":
			var r mad.REJ
			r.Decode(m)
			return r
		case "sidr":
			var r mad.SIDRREQ
			r.Decode(m)
			return r
		case "sidrrep":
			var r mad.SIDRREP
			r.Decode(m)
			return r
		}
		var n mad.Notice
		n.Decode(mad.AttrDREQ, m)
		return n
	}
	m := Message(mad.AttrDREQ, v4.Src, v4.Dst, 0)
	for _, f := range bthfields.Management.Fields {
		if f.Bits > 64 || strings.HasPrefix(f.Script, "rej.ari") { // parts of a slice in the codec
			continue
		}
		message, _, _ := strings.Cut(f.Script, ".")
		_, rest, _ := strings.Cut(names+",", f.Script+" ")
		name, _, _ := strings.Cut(rest, ",")
		for n := range f.Bits {
			changed := bytes.Clone(m)
			changed[(f.Bit+n)/8] ^= 0x80 >> ((f.Bit + n) % 8)
			got := difference(leaves(decode(message, m)), leaves(decode(message, changed)))
			if want := map[string]uint64{name: 1 << (f.Bits - 1 - n)}; !maps.Equal(got, want) {
				t.Errorf("%s, bit %d: the codec has %v, want %v", f.Script, n, got, want)
			}
		}
	}
}

// TestBPF compares the BTH in the header of the eBPF programs with the table.
func TestBPF(t *testing.T) {
	source, err := os.ReadFile("../../bpf/include/roce.h")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "struct roce_bth {")
	body, _, _ = strings.Cut(body, "};")
	bit, member := 0, map[string][2]int{}
	for _, m := range regexp.MustCompile(`__\w+?(\d+) (\w+);`).FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(m[1])
		member[m[2]] = [2]int{bit, n}
		bit += n
	}
	if bit != 8*bthLen {
		t.Errorf("the BTH has %d bits", bit)
	}
	got := map[string][2]int{"opcode": member["opcode"], "pkey": member["pkey"]}
	name := map[string]string{"qpn": "dst", "becn": "becn", "psn": "psn", "ack_req": "ackreq"}
	for _, m := range regexp.MustCompile(`r->(\w+) = bpf_ntohl\(bth->(\w+)\)( & ROCE_24BITS| >> (\d+)( & 1)?);`).FindAllStringSubmatch(string(source), -1) {
		w := member[m[2]]
		place := [2]int{w[0] + w[1] - 24, 24}
		if shift, err := strconv.Atoi(m[4]); err == nil {
			place = [2]int{w[0] + w[1] - 1 - shift, 1}
		}
		got[name[m[1]]] = place
	}
	want := map[string][2]int{}
	for _, f := range bthfields.Headers[0].Fields {
		if _, ok := got[f.Script]; ok {
			want[f.Script] = [2]int{f.Bit, f.Bits}
		}
	}
	if d := cmp.Diff(want, got); d != "" || len(got) != 6 {
		t.Errorf("%d fields (-table +roce.h)\n%s", len(got), d)
	}
}
