package frame

import "roced.io/roced/bth"

// stampedField is the bit of the BTH that says that a WRITE of MRC has a TSETH.
const stampedField = "m.ts"

// mrcFields lists the fields of MRC (docs/reference/wire.md).
var mrcFields = []Field{
	{"m.rtx", hdrBTH, 66, 1, "MRC: a retransmission"},
	{stampedField, hdrBTH, 67, 1, "MRC: a WRITE with the fields t"},
	{"m.rqmsn", hdrMETH, 0, 16, "MRC: number among the WRITEs with immediate data"},
	{"m.msn", hdrMETH, 16, 16, "MRC: number of the message"},
	{"t.time", hdrTSETH, 0, 16, "MRC: timestamp"},
	{"t.coarse", hdrTSETH, 16, 1, "MRC: unit of the timestamp is not 128 ns"},
	{"t.format", hdrTSETH, 28, 4, "MRC: 1 with a timestamp"},
	{"s.mark", hdrSETH, 9, 2, "SACK: 1 skip the entropy value once, 2 always"},
	{"s.pr", hdrSETH, 14, 1, "SACK: answers a probe"},
	{"s.ack", hdrSETH, 16, 16, "SACK: PSN of the packet that triggered it, less s.cack; or the probe"},
	{"s.ev", hdrSETH, 32, 32, "SACK: entropy value"},
	{"s.src", hdrSETH, 64, 16, "SACK: source context"},
	{"s.dst", hdrSETH, 80, 16, "SACK: destination context"},
	{"s.cack", hdrSETH, 104, 24, "SACK: cumulatively acknowledged PSN"},
	{"s.cctype", hdrSETH, 128, 4, "SACK: format of the congestion control state"},
	{"s.ccfl", hdrSETH, 132, 4, "SACK: its flags"},
	{"s.mpr", hdrSETH, 136, 8, "SACK: maximum PSN range in 128 PSNs"},
	{"s.base", hdrSETH, 144, 16, "SACK: PSN of bit 0, less s.cack"},
	{"s.bitmap", hdrSETH, 160, 64, "SACK: bitmap"},
	{"c.time", hdrCCState, 0, 16, "SACK: echoed timestamp"},
	{"c.ooo", hdrCCState, 17, 15, "SACK: out-of-order count"},
	{"c.restore", hdrCCState, 32, 1, "SACK: restore the window"},
	{"c.penalty", hdrCCState, 33, 7, "SACK: window penalty"},
	{"c.received", hdrCCState, 40, 24, "SACK: received bytes in 256 bytes"},
	{"n.reason", hdrNETH, 16, 8, "NACK: reason"},
	{"n.vendor", hdrNETH, 24, 8, "NACK: vendor information"},
	{"n.ev", hdrNETH, 32, 32, "NACK: entropy value"},
	{"n.src", hdrNETH, 64, 16, "NACK: source context"},
	{"n.dst", hdrNETH, 80, 16, "NACK: destination context"},
	{"n.psn", hdrNETH, 104, 24, "NACK: refused PSN"},
	{"n.cctype", hdrNETH, 128, 4, "NACK: 2 with a timestamp"},
	{"n.ccfl", hdrNETH, 132, 4, "NACK: flags"},
	{"n.time", hdrNETH, 144, 16, "NACK: echoed timestamp"},
	{"p.vendor", hdrPETH, 24, 8, "probe: vendor information"},
	{"p.id", hdrPETH, 32, 16, "probe: number"},
	{"p.src", hdrPETH, 64, 16, "probe: source context"},
	{"p.dst", hdrPETH, 80, 16, "probe: destination context"},
	{"p.time", hdrPETH, 96, 16, "probe: timestamp"},
	{"p.format", hdrPETH, 124, 4, "probe: 1 with a timestamp"},
	{"e.op", hdrERTH, 14, 2, "endpoint request: 0 port status, 1 probe of an entropy value"},
	{"e.vendor", hdrERTH, 24, 8, "endpoint request: vendor information"},
	{"e.ports", hdrERTH, 32, 32, "endpoint request: reachable ports"},
	{"e.time", hdrERTH, 96, 16, "endpoint request: timestamp"},
	{"e.format", hdrERTH, 124, 4, "endpoint request: 1 with a timestamp"},
	{"r.op", hdrEETH, 12, 2, "endpoint response: operation"},
	{"r.time", hdrEETH, 224, 16, "endpoint response: echoed timestamp"},
}

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

// migration returns the usual migration state: migrated. Senders of MRC leave the bit clear.
func migration(o bth.Opcode) uint64 {
	if o.IsMRC() {
		return 0
	}
	return 1
}
