package bth

import "math/bits"

// Headers is the set of extension headers of an opcode. The bits have the
// order of the headers on the wire (IBTA vol.1 table 38; HdrXETH: docs/reference/wire.md).
type Headers uint32

// Extension headers.
const (
	HdrXETH Headers = 1 << iota
	HdrMETH
	HdrTSETH // of packets, not of opcodes: see Packet.Headers
	HdrDETH
	HdrFETH
	HdrRETH
	HdrAtomicETH
	HdrAETH
	HdrAtomicAck
	HdrImm
	HdrIETH
	HdrSETH
	HdrCCState
	HdrNETH
	HdrPETH
	HdrERTH
	HdrEETH
)

var headerLens = [...]uint8{0, METHLen, TSETHLen, DETHLen, FETHLen, RETHLen, AtomicETHLen, AETHLen, AtomicAckLen, ImmDtLen, IETHLen,
	SETHLen, CCStateLen, NETHLen, PETHLen, ERTHLen, EETHLen}

// Len returns the total length of the headers of h in bytes, without the extension header of the extended transports,
// which has no fixed length.
func (h Headers) Len() int {
	n := 0
	for ; h != 0; h &= h - 1 {
		n += int(headerLens[bits.TrailingZeros32(uint32(h))])
	}
	return n
}

// ibtaHeaders are the bits of Headers up to HdrIETH. amd64 tests single bits of 16 faster than those of 32.
type ibtaHeaders uint16

func (i ibtaHeaders) has(h Headers) bool { return i&ibtaHeaders(h) != 0 }

type opFlags uint32

const (
	fFirst opFlags = 1 << iota
	fMiddle
	fLast
	fOnly
	fSend
	fWrite
	fReadReq
	fReadResp
	fAtomic
	fAck
	fAtomicAck
	fPayload
	fAtomicWrite
	fReadAck
	fFlush
	fSACK
	fNACK
	fProbe
	fEndpoint
	fMRC
	fExt

	fVariable = fMRC | fExt // the length of the headers depends on more than the opcode

	fRequest  = fSend | fWrite | fReadReq | fAtomic | fAtomicWrite | fFlush
	fResponse = fReadResp | fAck | fAtomicAck | fSACK | fNACK
	fSingle   = fOnly | fReadReq | fAtomic | fAtomicWrite | fFlush | fAck | fAtomicAck | fReadAck | fSACK | fNACK | fProbe | fEndpoint
)

// Info is the entry of the opcode table for one opcode.
type Info struct {
	Name      string  // the name in rxe and Wireshark, such as "RC_SEND_FIRST"
	Headers   Headers // extension headers after the BTH
	HeaderLen uint8   // bytes of the BTH and all headers of fixed length; 0 for an unknown opcode
	flags     opFlags
}

func op(name string, headers Headers, flags opFlags) Info {
	if headers&HdrXETH != 0 {
		flags |= fExt
	}
	return Info{Name: name, Headers: headers, HeaderLen: uint8(BTHLen + headers.Len()), flags: flags}
}

// infos is IBTA vol.1 table 38 for RC, UC and UD, the CNP of annex A17.9.3, MRC, and the
// extended transports.
var infos = withExtended([256]Info{
	TransportRC | OpSendFirst:      op("RC_SEND_FIRST", 0, fSend|fFirst|fPayload),
	TransportRC | OpSendMiddle:     op("RC_SEND_MIDDLE", 0, fSend|fMiddle|fPayload),
	TransportRC | OpSendLast:       op("RC_SEND_LAST", 0, fSend|fLast|fPayload),
	TransportRC | OpSendLastImm:    op("RC_SEND_LAST_WITH_IMMEDIATE", HdrImm, fSend|fLast|fPayload),
	TransportRC | OpSendOnly:       op("RC_SEND_ONLY", 0, fSend|fOnly|fPayload),
	TransportRC | OpSendOnlyImm:    op("RC_SEND_ONLY_WITH_IMMEDIATE", HdrImm, fSend|fOnly|fPayload),
	TransportRC | OpWriteFirst:     op("RC_RDMA_WRITE_FIRST", HdrRETH, fWrite|fFirst|fPayload),
	TransportRC | OpWriteMiddle:    op("RC_RDMA_WRITE_MIDDLE", 0, fWrite|fMiddle|fPayload),
	TransportRC | OpWriteLast:      op("RC_RDMA_WRITE_LAST", 0, fWrite|fLast|fPayload),
	TransportRC | OpWriteLastImm:   op("RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", HdrImm, fWrite|fLast|fPayload),
	TransportRC | OpWriteOnly:      op("RC_RDMA_WRITE_ONLY", HdrRETH, fWrite|fOnly|fPayload),
	TransportRC | OpWriteOnlyImm:   op("RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", HdrRETH|HdrImm, fWrite|fOnly|fPayload),
	TransportRC | OpReadRequest:    op("RC_RDMA_READ_REQUEST", HdrRETH, fReadReq),
	TransportRC | OpReadRespFirst:  op("RC_RDMA_READ_RESPONSE_FIRST", HdrAETH, fReadResp|fFirst|fPayload),
	TransportRC | OpReadRespMiddle: op("RC_RDMA_READ_RESPONSE_MIDDLE", 0, fReadResp|fMiddle|fPayload),
	TransportRC | OpReadRespLast:   op("RC_RDMA_READ_RESPONSE_LAST", HdrAETH, fReadResp|fLast|fPayload),
	TransportRC | OpReadRespOnly:   op("RC_RDMA_READ_RESPONSE_ONLY", HdrAETH, fReadResp|fOnly|fPayload),
	TransportRC | OpAcknowledge:    op("RC_ACKNOWLEDGE", HdrAETH, fAck),
	TransportRC | OpAtomicAck:      op("RC_ATOMIC_ACKNOWLEDGE", HdrAETH|HdrAtomicAck, fAtomicAck),
	TransportRC | OpCmpSwap:        op("RC_CMP_SWAP", HdrAtomicETH, fAtomic),
	TransportRC | OpFetchAdd:       op("RC_FETCH_ADD", HdrAtomicETH, fAtomic),
	TransportRC | OpSendLastInv:    op("RC_SEND_LAST_INV", HdrIETH, fSend|fLast|fPayload),
	TransportRC | OpSendOnlyInv:    op("RC_SEND_ONLY_INV", HdrIETH, fSend|fOnly|fPayload),
	TransportRC | OpFlush:          op("RC_FLUSH", HdrFETH|HdrRETH, fFlush),
	TransportRC | OpAtomicWrite:    op("RC_ATOMIC_WRITE", HdrRETH, fAtomicWrite|fPayload),

	TransportUC | OpSendFirst:    op("UC_SEND_FIRST", 0, fSend|fFirst|fPayload),
	TransportUC | OpSendMiddle:   op("UC_SEND_MIDDLE", 0, fSend|fMiddle|fPayload),
	TransportUC | OpSendLast:     op("UC_SEND_LAST", 0, fSend|fLast|fPayload),
	TransportUC | OpSendLastImm:  op("UC_SEND_LAST_WITH_IMMEDIATE", HdrImm, fSend|fLast|fPayload),
	TransportUC | OpSendOnly:     op("UC_SEND_ONLY", 0, fSend|fOnly|fPayload),
	TransportUC | OpSendOnlyImm:  op("UC_SEND_ONLY_WITH_IMMEDIATE", HdrImm, fSend|fOnly|fPayload),
	TransportUC | OpWriteFirst:   op("UC_RDMA_WRITE_FIRST", HdrRETH, fWrite|fFirst|fPayload),
	TransportUC | OpWriteMiddle:  op("UC_RDMA_WRITE_MIDDLE", 0, fWrite|fMiddle|fPayload),
	TransportUC | OpWriteLast:    op("UC_RDMA_WRITE_LAST", 0, fWrite|fLast|fPayload),
	TransportUC | OpWriteLastImm: op("UC_RDMA_WRITE_LAST_WITH_IMMEDIATE", HdrImm, fWrite|fLast|fPayload),
	TransportUC | OpWriteOnly:    op("UC_RDMA_WRITE_ONLY", HdrRETH, fWrite|fOnly|fPayload),
	TransportUC | OpWriteOnlyImm: op("UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", HdrRETH|HdrImm, fWrite|fOnly|fPayload),

	TransportUD | OpSendOnly:    op("UD_SEND_ONLY", HdrDETH, fSend|fOnly|fPayload),
	TransportUD | OpSendOnlyImm: op("UD_SEND_ONLY_WITH_IMMEDIATE", HdrDETH|HdrImm, fSend|fOnly|fPayload),

	OpcodeCNP:        op("CNP", 0, fPayload),
	OpcodeExtReadAck: op("EXT_READ_ACKNOWLEDGE", HdrXETH|HdrAETH, fReadAck),

	TransportMRC | OpWriteFirst:   op("MRC_RDMA_WRITE_FIRST", HdrMETH|HdrRETH, fMRC|fWrite|fFirst|fPayload),
	TransportMRC | OpWriteMiddle:  op("MRC_RDMA_WRITE_MIDDLE", HdrMETH|HdrRETH, fMRC|fWrite|fMiddle|fPayload),
	TransportMRC | OpWriteLast:    op("MRC_RDMA_WRITE_LAST", HdrMETH|HdrRETH, fMRC|fWrite|fLast|fPayload),
	TransportMRC | OpWriteLastImm: op("MRC_RDMA_WRITE_LAST_WITH_IMMEDIATE", HdrMETH|HdrRETH|HdrImm, fMRC|fWrite|fLast|fPayload),
	TransportMRC | OpWriteOnly:    op("MRC_RDMA_WRITE_ONLY", HdrMETH|HdrRETH, fMRC|fWrite|fOnly|fPayload),
	TransportMRC | OpWriteOnlyImm: op("MRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", HdrMETH|HdrRETH|HdrImm, fMRC|fWrite|fOnly|fPayload),
	TransportMRC | OpAcknowledge:  op("MRC_ACKNOWLEDGE", HdrAETH, fMRC|fAck),
	OpcodeMRCEndpointRequest:      op("MRC_ENDPOINT_REQUEST", HdrERTH, fMRC|fEndpoint),
	OpcodeMRCEndpointResponse:     op("MRC_ENDPOINT_RESPONSE", HdrEETH, fMRC|fEndpoint),
	OpcodeMRCSACK:                 op("MRC_SACK", HdrSETH|HdrCCState, fMRC|fSACK),
	OpcodeMRCNACK:                 op("MRC_NACK", HdrNETH, fMRC|fNACK),
	OpcodeMRCProbe:                op("MRC_PROBE", HdrPETH, fMRC|fProbe),
})

// withExtended adds the operations of RC behind an extension header. Unlike in RC, all packets of a WRITE have an RETH, so
// that they can be placed in any order (IRN 5.3.1).
func withExtended(t [256]Info) [256]Info {
	for o := range TransportUC {
		i := t[TransportRC|o]
		if i.Name == "" {
			continue
		}
		h := i.Headers | HdrXETH
		if i.flags&fWrite != 0 {
			h |= HdrRETH
		}
		t[TransportExt|o] = op("EXT"+i.Name[len("RC"):], h, i.flags)
	}
	return t
}
