package engine

import (
	"slices"
	"strings"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
)

// v6 reports whether the script runs over IPv6.
func (e *Engine) v6() bool { return e.o.IP == 6 || slices.Contains(e.script.Need, "ipv6") }

// build makes the frame of a packet.
func (e *Engine) build(k *script.Packet) *frame.Frame {
	op, _ := frame.Opcode(k.Name)
	s := frame.Spec{SrcMAC: e.o.TesterMAC, DstMAC: e.o.DUTMAC, Opcode: op}
	s.Src, s.Dst = e.addresses()
	if s.VLAN = e.o.VLAN != 0; s.VLAN {
		s.Fields = append(s.Fields, frame.Set{Name: "vlan.id", Value: uint64(e.o.VLAN)})
	}
	named := false
	for i := range k.Fields {
		f := &k.Fields[i]
		named = named || f.Name == "dst"
		e.setField(&s, f)
	}
	if qpn, ok := e.onlyQP(); ok && !named {
		s.Fields = append(s.Fields, frame.Set{Name: "dst", Value: qpn})
	}
	b, err := s.Build()
	if err != nil {
		e.fail(k.Pos, "%v", err)
	}
	return b
}

// setField sets a field of a frame to send. Beside header fields there are payload, padding (the bytes before the ICRC),
// trail (bytes behind the ICRC), private (private data), ip.options, icrc=bad and vlan=none.
func (e *Engine) setField(s *frame.Spec, f *script.Key) {
	switch n, _ := f.Value.(*script.Name); {
	case n != nil && f.Name == "icrc" && n.Name == "bad":
		s.BadICRC = true
		return
	case n != nil && f.Name == "vlan" && n.Name == "none":
		s.VLAN, s.Fields = false, slices.DeleteFunc(s.Fields, func(v frame.Set) bool { return v.Name == "vlan.id" })
		return
	}
	v := e.eval(f.Value)
	to := map[string]*[]byte{"payload": &s.Payload, "padding": &s.Padding, "trail": &s.Trail, "ip.options": &s.Options,
		"private": &s.Private}[f.Name]
	b := e.content(v)
	switch {
	case to != nil && b != nil:
		*to = b
	case to != nil:
		e.fail(f.Pos, "%s: %v are not bytes", f.Name, v)
	case v.kind == isBytes:
		s.Fields = append(s.Fields, frame.Set{Name: f.Name, Bytes: b})
	case v.kind != isNumber:
		e.fail(f.Pos, "%s: %v is not a number", f.Name, v)
	default:
		s.Fields = append(s.Fields, frame.Set{Name: f.Name, Value: e.fieldNumber(f.Name, f.Value)})
	}
	s.VLAN = s.VLAN || strings.HasPrefix(f.Name, "vlan.")
}

// onlyQP returns the number of the device's queue pair if there is exactly one.
func (e *Engine) onlyQP() (qpn uint64, ok bool) {
	for name := range e.objects {
		if v, is := e.env[name+".num"]; is {
			if ok {
				return 0, false
			}
			qpn, ok = v.num, true
		}
	}
	return qpn, ok
}

// pseudoFields are names that packets have beside header fields.
var pseudoFields = []string{"payload", "padding", "trail", "ip.options", "vlan", "private", "user"}
