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
	op, ok := frame.Opcode(k.Name)
	if !ok {
		e.fail(k.Pos, "%s is not a packet to send", k.Name)
	}
	s := frame.Spec{SrcMAC: e.o.TesterMAC, DstMAC: e.o.DUTMAC, Opcode: op}
	s.Src, s.Dst = e.addresses()
	if s.VLAN = e.o.VLAN != 0; s.VLAN {
		s.Fields = append(s.Fields, frame.Set{Name: "vlan.id", Value: uint64(e.o.VLAN)})
	}
	named := false
	for i := range k.Fields {
		f := &k.Fields[i]
		named = named || f.Name == "dst"
		if f.Value == nil || f.Last != nil || f.Not {
			e.fail(f.Pos, "a packet to send has one value for %s", f.Name)
		}
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
// trail (bytes behind the ICRC), ip.options, icrc=bad and vlan=none.
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
	to := map[string]*[]byte{"payload": &s.Payload, "padding": &s.Padding, "trail": &s.Trail, "ip.options": &s.Options}[f.Name]
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
var pseudoFields = []string{"payload", "padding", "trail", "ip.options", "vlan"}

// checkNames finds unknown packets, fields and verbs before the run begins.
func (e *Engine) checkNames(body []script.Stmt) (err error) {
	defer func() {
		if r, ok := recover().(*script.Error); ok {
			err = r
		}
	}()
	for _, s := range body {
		switch s := s.(type) {
		case *script.Send:
			e.checkPacket(&s.Packet)
		case *script.Ignore:
			e.checkPacket(&s.Packet)
		case *script.Expect:
			for i := range s.Packets {
				e.checkPacket(&s.Packets[i])
			}
			if len(s.Packets) == 1 && s.Packets[0].Optional && s.Time.Pos != (script.Pos{}) && s.Time.Within+s.Time.After > 0 {
				e.fail(s.Time.Pos, "an optional packet has no time: it may come at any time from here on")
			}
		case *script.Call:
			if _, ok := verbs[s.Verb]; !ok {
				e.fail(s.Pos, "there is no verb dut.%s", s.Verb)
			}
		case *script.For:
			if err := e.checkNames(s.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) checkPacket(k *script.Packet) {
	if _, ok := frame.Opcode(k.Name); !ok && k.Name != anyPacket {
		e.fail(k.Pos, "there is no packet %s", k.Name)
	}
	for _, f := range slices.Concat(k.Fields, k.Until) {
		if !frame.Known(f.Name) && !slices.Contains(pseudoFields, f.Name) {
			e.fail(f.Pos, "there is no field %s", f.Name)
		}
	}
}
