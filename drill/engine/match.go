package engine

import (
	"bytes"
	"fmt"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
)

// anyPacket is the name that matches every packet.
const anyPacket = "ANY"

// sequence reports whether a field counts modulo 2^24: sums of PSNs wrap.
func sequence(name string) bool {
	switch name {
	case "psn", "msn", "x.msn", "x.head", "x.sack", "x.hole1", "x.hole2", "x.hole3", "s.cack", "n.psn":
		return true
	}
	return false
}

const sequenceMask = 1<<24 - 1

// fieldNumber evaluates the value of a field.
func (e *Engine) fieldNumber(name string, x script.Expr) uint64 {
	v := e.number(x)
	if sequence(name) {
		v &= sequenceMask
	}
	return v
}

// matches compares a frame with a packet and these fields. If they differ it returns the reason.
func (e *Engine) matches(f *frame.Frame, k *script.Packet, fields []script.Key) (why string, ok bool) {
	if k.Name != anyPacket && frame.OpcodeName(f.Opcode) != k.Name {
		return "another opcode", false
	}
	named := false
	for i := range fields {
		named = named || fields[i].Name == "dst"
		if why := e.differs(f, &fields[i]); why != "" {
			return why, false
		}
	}
	if dst, _ := f.Get("dst"); !named && k.Name != anyPacket && dst != testerQPN {
		return fmt.Sprintf("dst is %#x, not the tester's queue pair", dst), false
	}
	return "", true
}

// differs compares a field and returns how it differs, empty if it does not.
func (e *Engine) differs(f *frame.Frame, k *script.Key) string {
	switch k.Name {
	case "payload":
		return e.payloadDiffers(f, k)
	case "private", "user": // zeros may follow
		got := f.Private()
		if k.Name == "user" {
			got = f.User()
		}
		if want := e.content(e.eval(k.Value)); bytes.HasPrefix(got, want) == k.Not {
			return fmt.Sprintf("the private data is %x", clip(got))
		}
		return ""
	case "ip.src", "ip.dst", "req.src", "req.dst":
		got, _ := f.Address(k.Name)
		if want := e.content(e.eval(k.Value)); bytes.Equal(got, want) == k.Not {
			return fmt.Sprintf("%s is %x", k.Name, got)
		}
		return ""
	}
	got, ok := f.Get(k.Name)
	if !ok {
		return "it has no field " + k.Name
	}
	if k.Value == nil {
		return ""
	}
	if e.equal(got, k) == k.Not {
		return fmt.Sprintf("%s is %s, expected %s", k.Name, show(k.Name, got), e.want(k))
	}
	return ""
}

// equal compares a number with the value or the range of a key. Ranges of sequence numbers may wrap.
func (e *Engine) equal(got uint64, k *script.Key) bool {
	first := e.fieldNumber(k.Name, k.Value)
	if k.Last == nil {
		if n, ok := k.Value.(*script.Name); ok && k.Name == "syndrome" && (n.Name == "ACK" || n.Name == "RNR") {
			return got>>5 == first>>5 // any credits, any timer
		}
		return got == first
	}
	last := e.fieldNumber(k.Name, k.Last)
	if sequence(k.Name) {
		return (got-first)&sequenceMask <= (last-first)&sequenceMask
	}
	return first <= got && got <= last
}

// payloadDiffers compares the payload with bytes, or its length with a number.
func (e *Engine) payloadDiffers(f *frame.Frame, k *script.Key) string {
	if k.Value == nil {
		return ""
	}
	v := e.eval(k.Value)
	if v.kind == isNumber {
		if (uint64(len(f.Payload)) == v.num) == k.Not {
			return fmt.Sprintf("the payload has %d bytes, expected %d", len(f.Payload), v.num)
		}
		return ""
	}
	want := e.content(v)
	if bytes.Equal(f.Payload, want) != k.Not {
		return ""
	}
	if len(want) != len(f.Payload) {
		return fmt.Sprintf("the payload has %d bytes, expected %d", len(f.Payload), len(want))
	}
	for i := range want {
		if want[i] != f.Payload[i] {
			return fmt.Sprintf("byte %d of the payload is %#02x, expected %#02x", i, f.Payload[i], want[i])
		}
	}
	return "the payload is equal"
}

// show returns the value of a field for reports.
func show(name string, v uint64) string {
	if name == "syndrome" {
		return frame.SyndromeName(bth.Syndrome(v))
	}
	if sequence(name) || v < 10 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%#x", v)
}

// want returns the expected value of a key for reports.
func (e *Engine) want(k *script.Key) string {
	if k.Value == nil {
		return "*"
	}
	v := e.eval(k.Value)
	text := v.String()
	if v.kind == isNumber {
		text = show(k.Name, e.fieldNumber(k.Name, k.Value))
	}
	if k.Last != nil {
		text += ".." + show(k.Name, e.fieldNumber(k.Name, k.Last))
	}
	if k.Not {
		return "not " + text
	}
	return text
}

// notation returns a packet with evaluated fields.
func (e *Engine) notation(k *script.Packet) string {
	var b strings.Builder
	if k.Optional {
		b.WriteString("? ")
	}
	if k.Many {
		b.WriteString("+ ")
	}
	b.WriteString(k.Name)
	for i := range k.Fields {
		f := &k.Fields[i]
		sign := "="
		if f.Not {
			sign = "!="
		}
		fmt.Fprintf(&b, " %s%s%s", f.Name, sign, strings.TrimPrefix(e.want(f), "not "))
	}
	for i := range k.Until {
		if i == 0 {
			b.WriteString(" until")
		}
		fmt.Fprintf(&b, " %s=%s", k.Until[i].Name, e.want(&k.Until[i]))
	}
	return b.String()
}

// expected returns the packets of a group that may come next.
func (e *Engine) expected(s *script.Expect) string {
	var list []string
	for i := e.current.next; i < len(s.Packets); i++ {
		if !s.Any && len(list) > 0 {
			break
		}
		if !e.current.taken[i] || s.Packets[i].Many {
			list = append(list, e.notation(&s.Packets[i]))
		}
	}
	return strings.Join(list, " or ")
}
