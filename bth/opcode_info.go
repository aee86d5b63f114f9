package bth

import "strconv"

// Info returns the table entry of o. It is shared and must not be written to.
func (o Opcode) Info() *Info { return &infos[o] }

// Valid reports whether o is an opcode of RC, UC, UD, MRC or the extended transports, or
// the CNP.
func (o Opcode) Valid() bool { return infos[o].HeaderLen != 0 }

// String returns the name, such as "RC_RDMA_WRITE_FIRST", or "0x%02x" of an
// unknown opcode.
func (o Opcode) String() string {
	if n := infos[o].Name; n != "" {
		return n
	}
	const digits = "0123456789abcdef"
	return string([]byte{'0', 'x', digits[o>>4], digits[o&0xf]})
}

func (o Opcode) has(f opFlags) bool { return infos[o].flags&f != 0 }

// IsFirst reports whether o is a FIRST: the first of several packets of a message.
func (o Opcode) IsFirst() bool { return o.has(fFirst) }

// IsMiddle reports whether o is a MIDDLE.
func (o Opcode) IsMiddle() bool { return o.has(fMiddle) }

// IsLast reports whether o is a LAST, with or without immediate or invalidate.
func (o Opcode) IsLast() bool { return o.has(fLast) }

// IsOnly reports whether o is an ONLY, with or without immediate or invalidate.
func (o Opcode) IsOnly() bool { return o.has(fOnly) }

// Starts reports whether a packet of o begins a message: FIRST, ONLY, and operations that are never segmented (READ REQUEST,
// atomics, acknowledgements).
func (o Opcode) Starts() bool { return o.has(fFirst | fSingle) }

// Ends reports whether a packet of o ends a message: LAST, ONLY, and operations that are never segmented.
func (o Opcode) Ends() bool { return o.has(fLast | fSingle) }

// IsSend reports whether o is of a SEND, including those with immediate or invalidate.
func (o Opcode) IsSend() bool { return o.has(fSend) }

// IsWrite reports whether o is of an RDMA WRITE.
func (o Opcode) IsWrite() bool { return o.has(fWrite) }

// IsReadRequest reports whether o is RDMA READ REQUEST.
func (o Opcode) IsReadRequest() bool { return o.has(fReadReq) }

// IsReadResponse reports whether o is one of the RDMA READ RESPONSEs.
func (o Opcode) IsReadResponse() bool { return o.has(fReadResp) }

// IsAtomic reports whether o is an atomic request: CMP_SWAP or FETCH_ADD.
func (o Opcode) IsAtomic() bool { return o.has(fAtomic) }

// IsAtomicWrite reports whether o is ATOMIC WRITE.
func (o Opcode) IsAtomicWrite() bool { return o.has(fAtomicWrite) }

// IsFlush reports whether o is FLUSH.
func (o Opcode) IsFlush() bool { return o.has(fFlush) }

// IsPlacement reports whether o is FLUSH or ATOMIC WRITE, the memory placement extensions. A READ RESPONSE without data
// answers them.
func (o Opcode) IsPlacement() bool { return o.has(fFlush | fAtomicWrite) }

// IsAck reports whether o is ACKNOWLEDGE.
func (o Opcode) IsAck() bool { return o.has(fAck) }

// IsAtomicAck reports whether o is ATOMIC ACKNOWLEDGE.
func (o Opcode) IsAtomicAck() bool { return o.has(fAtomicAck) }

// IsRequest reports whether a requester sends o.
func (o Opcode) IsRequest() bool { return o.has(fRequest) }

// IsResponse reports whether a responder sends o: READ RESPONSE, ACKNOWLEDGE,
// ATOMIC ACKNOWLEDGE, or MRC's SACK or NACK.
func (o Opcode) IsResponse() bool { return o.has(fResponse) }

// IsExt reports whether packets of o have an extension header.
func (o Opcode) IsExt() bool { return o.has(fExt) }

// IsMRC reports whether o is of MRC.
func (o Opcode) IsMRC() bool { return o.has(fMRC) }

// IsSACK reports whether o is MRC's SACK.
func (o Opcode) IsSACK() bool { return o.has(fSACK) }

// IsNACK reports whether o is MRC's NACK.
func (o Opcode) IsNACK() bool { return o.has(fNACK) }

// IsProbe reports whether o is MRC's reliability probe. It has no PSN.
func (o Opcode) IsProbe() bool { return o.has(fProbe) }

// IsEndpoint reports whether o is an endpoint request or response of MRC. They belong to no connection.
func (o Opcode) IsEndpoint() bool { return o.has(fEndpoint) }

// IsReadAck reports whether o acknowledges READ responses.
func (o Opcode) IsReadAck() bool { return o.has(fReadAck) }

// IsCNP reports whether o is the congestion notification packet.
func (o Opcode) IsCNP() bool { return o == OpcodeCNP }

// HasPayload reports whether a packet of o may carry payload.
func (o Opcode) HasPayload() bool { return o.has(fPayload) }

// HasDETH reports whether o has a datagram extended transport header.
func (o Opcode) HasDETH() bool { return infos[o].Headers&HdrDETH != 0 }

// HasRETH reports whether o has an RDMA extended transport header.
func (o Opcode) HasRETH() bool { return infos[o].Headers&HdrRETH != 0 }

// HasAtomicETH reports whether o has an atomic extended transport header.
func (o Opcode) HasAtomicETH() bool { return infos[o].Headers&HdrAtomicETH != 0 }

// HasAETH reports whether o has an ACK extended transport header.
func (o Opcode) HasAETH() bool { return infos[o].Headers&HdrAETH != 0 }

// HasImm reports whether o has immediate data.
func (o Opcode) HasImm() bool { return infos[o].Headers&HdrImm != 0 }

// HasInv reports whether o has an invalidate extended transport header.
func (o Opcode) HasInv() bool { return infos[o].Headers&HdrIETH != 0 }

// nakNames are the NAK codes of IBTA vol.1 table 46.
var nakNames = [...]string{
	"NAK PSN sequence error",
	"NAK invalid request",
	"NAK remote access error",
	"NAK remote operational error",
	"NAK invalid RD request",
}

// String returns "ACK", "RNR(0x2c)", "NAK remote access error" and the like; an
// ACK with end-to-end credits shows its syndrome, "ACK(0x05)".
func (s Syndrome) String() string {
	switch {
	case s == SyndromeACK:
		return "ACK"
	case s.IsNAK() && int(s.Value()) < len(nakNames):
		return nakNames[s.Value()]
	}
	kind := [...]string{"ACK", "RNR", "reserved", "NAK"}
	name := "reserved"
	if s < 0x80 {
		name = kind[s>>5]
	}
	hex := strconv.FormatUint(uint64(s)|0x100, 16)
	return name + "(0x" + hex[1:] + ")"
}
