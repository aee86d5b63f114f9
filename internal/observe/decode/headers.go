package decode

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/bth/fields"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// value is a field of an extension header, or a number that follows from one.
type value struct {
	object string // that has it in JSON
	name   string
	form   fields.Form
	bits   int
	n      uint64
	text   string // replaces name and number in text
	json   any    // replaces the number in JSON
}

// Hole is a run of missing PSNs.
type Hole struct {
	Start uint32 `json:"start"`
	Len   uint32 `json:"len"`
}

// extensions records the extension headers of the packet b.
func (p *parser) extensions(b []byte, trimmed bool) {
	p.rec.values = p.rec.values[:0]
	if p.pkt.Opcode.IsMRC() {
		p.add(value{object: "mrc", name: "retx", form: fields.Flag, n: flag(p.pkt.ReTx)})
		p.add(value{object: "mrc", name: "trimmed", form: fields.Flag, n: flag(trimmed)})
	}
	fields.Extensions(&p.pkt, b, func(h *fields.Header, b []byte) {
		if h.Set == bth.HdrCCState && p.pkt.SETH.CCType != bth.MRCStateNSCC {
			return
		}
		for i := range h.Fields {
			f := &h.Fields[i]
			v := value{object: h.Object, name: f.Name, form: f.Form, bits: f.Bits, n: f.Get(b)}
			if f.Form == fields.Hidden || f.Script == "n.time" || f.Name == "entropy" || f.Script == "x.msn" {
				p.derived(f, v)
			} else {
				p.add(v)
			}
		}
	})
	if p.pkt.Opcode.IsExt() {
		p.extended()
	}
}

func (p *parser) add(v value) { p.rec.values = append(p.rec.values, v) }

// derived records a field that has another form than its number, or only under a condition.
func (p *parser) derived(f *fields.Field, v value) {
	v.form = fields.Dec
	switch f.Script {
	case "x.profile":
		name := profile.NameOf(p.pkt.Ext.Profile)
		v.text, v.json = "ext "+name, name
	case "x.msn":
		v.text = fmt.Sprintf("message %d", v.n)
	case "src":
		v.text = "srcqp " + bth.QPN(v.n).Text()
	case "syndrome":
		v.text = bth.Syndrome(v.n).String()
	case "n.reason":
		v.text = bth.MRCReason(v.n).String()
		v.json = v.text
	case "s.ack":
		v.n = uint64(p.pkt.SETH.AckPSN().Uint32())
		if p.pkt.SETH.ProbeReply {
			v.name, v.n = "probe_id", uint64(p.pkt.SETH.ProbeID())
		}
	case "s.base":
		v.n = uint64(p.pkt.SETH.Base().Uint32())
	case "s.mpr":
		v.name, v.n = "range", v.n*bth.MRCRangeUnit
	case "c.received":
		v.n *= bth.MRCReceivedUnit
	case "s.ev", "n.ev":
		v.form = f.Form
		p.add(v)
		port, label := bth.SplitEntropy(uint32(v.n))
		p.add(value{object: v.object, name: "entropy_sport", n: uint64(port)})
		v = value{object: v.object, name: "entropy_label", form: fields.Hex, n: uint64(label)}
	case "n.time":
		if p.pkt.NETH.CCType != bth.MRCStateNACK {
			return
		}
	default:
		return
	}
	p.add(v)
}

// extended records the holes of an extension header and the profile's own fields, behind the others.
func (p *parser) extended() {
	x, rest := &p.pkt.Ext, slices.IndexFunc(p.rec.values, func(v value) bool { return v.object != "ext" })
	if rest < 0 {
		rest = len(p.rec.values)
	}
	var holes []Hole
	v := value{object: "ext", name: "holes"}
	for i, g := range x.Holes[:x.HoleCount()] {
		holes = append(holes, Hole{g.Start.Uint32(), g.Len})
		v.text += fmt.Sprintf("%.*shole %d+%d", min(i, 1), " ", holes[i].Start, holes[i].Len)
		v.json = holes
	}
	var b [bth.MaxOwn]byte
	if own := x.Own(&b); own != nil {
		named := qp.ReadFields(profile.FieldsOf(x.Profile).Of(p.pkt.Opcode), own)
		v.name, v.json = "fields", named
		for i, name := range slices.Sorted(maps.Keys(named)) {
			v.text += fmt.Sprintf("%.*s%s 0x%x", min(i, 1), " ", name, named[name])
		}
		if named == nil {
			v.name, v.text, v.json = "own", "own "+hex.EncodeToString(own), hex.EncodeToString(own)
		}
	}
	if v.json != nil {
		p.rec.values = slices.Insert(p.rec.values, rest, v)
	}
}

func flag(set bool) uint64 {
	if set {
		return 1
	}
	return 0
}

// appendText appends the value as text.
func (v *value) appendText(b []byte) []byte {
	switch {
	case v.text != "":
		return append(append(b, ' '), v.text...)
	case v.form == fields.Flag:
		if v.n == 0 {
			return b
		}
		return append(append(b, ' '), v.name...)
	case v.form == fields.Hex:
		return fmt.Appendf(b, " %s 0x%x", v.name, v.n)
	case v.form == fields.Fixed:
		return fmt.Appendf(b, " %s 0x%0*x", v.name, v.bits/4, v.n)
	}
	return fmt.Appendf(b, " %s %d", v.name, v.n)
}

// appendJSON appends the members of the values to a JSON object that lacks its end.
func appendJSON(b []byte, values []value) ([]byte, error) {
	object := ""
	for i := range values {
		v := &values[i]
		if v.object != object {
			if object != "" {
				b = append(b, '}')
			}
			if object = v.object; object != "" {
				b = fmt.Appendf(b, ",%q:{", object)
			}
		}
		if v.form == fields.Flag && v.n == 0 {
			continue
		}
		var number any = v.n
		if v.json != nil {
			number = v.json
		} else if v.form == fields.Flag {
			number = true
		}
		text, err := json.Marshal(number)
		if err != nil {
			return nil, err
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(fmt.Appendf(b, "%q:", v.name), text...)
	}
	if object != "" {
		b = append(b, '}')
	}
	return b, nil
}
