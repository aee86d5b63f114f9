package frame

import "roced.io/roced/bth"

// stampedField is the bit of the BTH that says that a WRITE of MRC has a TSETH.
const stampedField = "m.ts"

// extensions returns the extension headers of an opcode in a packet with these bits in byte 8 of its BTH.
func extensions(o bth.Opcode, byte8 byte) bth.Headers {
	p := bth.Packet{Opcode: o, Stamped: byte8&0x10 != 0}
	return p.Headers()
}

// extensions returns the extension headers of the frame to build.
func (s *Spec) extensions() bth.Headers {
	byte8 := byte(0)
	for _, v := range s.Fields {
		switch v.Name {
		case stampedField:
			byte8 = byte(v.Value << 4)
		case "bth.res7":
			byte8 = byte(v.Value)
		}
	}
	return extensions(s.Opcode, byte8)
}

// migration returns the usual migration state: migrated, of connections. Datagrams, CNPs and MRC have none.
func migration(o bth.Opcode) uint64 {
	if o.IsMRC() || o.IsCNP() || o.Transport() == bth.TransportUD {
		return 0
	}
	return 1
}
