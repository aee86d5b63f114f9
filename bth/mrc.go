package bth

import "strconv"

// MRC, Multipath Reliable Connection (OCP, revision 1.0, 2026), has opcodes of the range that IBTA vol.1 table 38 reserves
// for manufacturers. The specification was not at hand: the formats follow public descriptions and decoders of it. Where
// these are silent or disagree, one constant or function holds the choice, with a comment that begins with "Choice:".
// docs/results/mrc-choices.md lists the choices.

// TransportMRC with an operation WRITE or ACKNOWLEDGE of RC is that operation of MRC.
const TransportMRC Opcode = 0xc0

// Opcodes of MRC without a counterpart in RC.
const (
	OpcodeMRCEndpointRequest  Opcode = 0xd8
	OpcodeMRCEndpointResponse Opcode = 0xd9
	OpcodeMRCSACK             Opcode = 0xdc
	OpcodeMRCNACK             Opcode = 0xdd
	OpcodeMRCProbe            Opcode = 0xde
)

// MRCEndpointQPN is the destination queue pair of endpoint requests and responses.
const MRCEndpointQPN QPN = 2

// MRCUDPPort is a second UDP destination port of MRC.
//
// Choice: two sources print 4971 and one 4791, the port of RoCEv2. MRC is sent to UDPPort unless the NIC is configured otherwise;
// decoders of captures accept both.
const MRCUDPPort = 4971

// IsUDPPort reports whether a UDP destination port is that of RoCEv2 or the second one of MRC.
func IsUDPPort(port uint16) bool { return port == UDPPort || port == MRCUDPPort }

// DSCPs of packets that a switch has trimmed. A packet that was trimmed before its last link has MRCDSCPTrimmedLastHop,
// where switches tell that apart.
//
// Choice: DSCPs are configuration. One implementation has these values.
const (
	MRCDSCPTrimmed        = 12
	MRCDSCPTrimmedLastHop = 16
)

// MRCTimestampUnit is the unit of MRC's timestamps in nanoseconds.
//
// Choice: sources agree on 128 ns for TSETH.Coarse == false, and differ about the other unit.
const MRCTimestampUnit = 128

// Lengths of MRC's headers in bytes.
const (
	METHLen    = 4
	TSETHLen   = 4
	SETHLen    = 28
	CCStateLen = 8
	NETHLen    = 20
	PETHLen    = 16
	ERTHLen    = 16
	EETHLen    = 36
)

// METH is the message extended transport header. All packets of a message have the same.
type METH struct {
	RQMSN uint16 // number among the WRITEs with immediate data, of those only
	MSN   uint16 // number of the message
}

// TSETH is the timestamp extended transport header.
type TSETH struct {
	Timestamp uint16 // time of transmission in MRCTimestampUnit
	Coarse    bool   // another unit, of the vendor's choice
	Format    uint8  // MRCFormatTimestamp; 0 in probes without timestamp. 4 bits
}

// MRCFormatTimestamp is the format of a TSETH with a timestamp.
const MRCFormatTimestamp = 1

// MRCMark is the path feedback of a SACK.
type MRCMark uint8

// Path feedback. The value 3 is not defined.
const (
	MRCMarkNone   MRCMark = iota
	MRCMarkSkip           // skip the entropy value once: the packet was marked CE
	MRCMarkRemove         // always skip the entropy value
)

// SETH is the SACK extended transport header. Offsets count from Cack.
type SETH struct {
	Mark        MRCMark
	ProbeReply  bool // AckOffset holds the number of the probe instead; see ProbeID
	AckOffset   int16
	Entropy     uint32 // of the packet that triggered the SACK
	SrcContext  uint16 // spdcid
	DestContext uint16 // dpdcid
	Cack        PSN    // cumulative acknowledgement, the value of the BTH's PSN
	CCType      uint8  // format of the congestion control state; 4 bits
	CCFlags     uint8  // 4 bits
	MPR         uint8  // maximum PSN range in units of MRCRangeUnit; 0 if it is not dynamic
	SACKOffset  int16  // see Base
	Bitmap      uint64
}

// MRCRangeUnit is the unit of SETH.MPR in PSNs.
const MRCRangeUnit = 128

// Formats of congestion control state.
const (
	MRCStateNSCC = 0 // CCState, in a SACK
	MRCStateNACK = 2 // the timestamp of a NETH
)

// ProbeID returns the number of the probe that a SACK with ProbeReply answers.
func (h *SETH) ProbeID() uint16 { return uint16(h.AckOffset) }

// AckPSN returns the PSN of the packet that triggered the SACK, if no probe did.
func (h *SETH) AckPSN() PSN { return h.Cack.Add(int(h.AckOffset)) }

// Base returns the PSN of the bitmap's bit 0, the least significant one.
//
// Choice: two sources count from the least significant bit; the example of a third is off by one.
func (h *SETH) Base() PSN { return h.Cack.Add(int(h.SACKOffset)) }

// CCState is the congestion control state behind a SETH. It is meaningless unless SETH.CCType is MRCStateNSCC.
type CCState struct {
	Timestamp  uint16 // of the packet that triggered the SACK
	OutOfOrder uint16 // 15 bits
	Restore    bool   // restore the window from before the penalty
	Penalty    uint8  // of the receiver for the window, 7 bits
	Received   uint32 // bytes received, in units of MRCReceivedUnit, rounded up; 24 bits
}

// MRCReceivedUnit is the unit of CCState.Received in bytes.
const MRCReceivedUnit = 256

// MRCReason is the reason of a NACK.
type MRCReason uint8

// Reasons of NACKs. Receivers must expect others.
const (
	MRCTrimmed        MRCReason = 0x01
	MRCTrimmedLastHop MRCReason = 0x02
	MRCNoBitmap       MRCReason = 0x06
	MRCNoPacketBuffer MRCReason = 0x07
	MRCNoResource     MRCReason = 0x0a
	MRCOutOfWindow    MRCReason = 0x0b
	MRCUnexpected     MRCReason = 0x19
)

// String returns the name, such as "TRIMMED", or "0x%02x" of an unknown reason.
func (r MRCReason) String() string {
	switch r {
	case MRCTrimmed:
		return "TRIMMED"
	case MRCTrimmedLastHop:
		return "TRIMMED_LASTHOP"
	case MRCNoBitmap:
		return "NO_BITMAP"
	case MRCNoPacketBuffer:
		return "NO_PKT_BUFFER"
	case MRCNoResource:
		return "NO_RESOURCE"
	case MRCOutOfWindow:
		return "PSN_OOR_WINDOW"
	case MRCUnexpected:
		return "UNEXP_EVENT"
	}
	return "0x" + strconv.FormatUint(uint64(r)|0x100, 16)[1:]
}

// NETH is the NACK extended transport header.
type NETH struct {
	Reason      MRCReason
	Vendor      uint8
	Entropy     uint32
	SrcContext  uint16
	DestContext uint16
	PSN         PSN    // nack_psn, the value of the BTH's PSN
	CCType      uint8  // 4 bits
	CCFlags     uint8  // 4 bits
	Timestamp   uint16 // of the packet; meaningless unless CCType is MRCStateNACK
}

// PETH is the probe extended transport header.
type PETH struct {
	Vendor      uint8
	ProbeID     uint16
	SrcContext  uint16
	DestContext uint16
	TSETH       TSETH
}

// MRCEndpointOp is the operation of an endpoint request.
type MRCEndpointOp uint8

// Endpoint operations. The values 2 and 3 are not defined.
const (
	MRCPortStatus MRCEndpointOp = iota
	MRCEVProbe
)

// ERTH is the endpoint request extended transport header. The low 16 bits of the BTH's PSN number the request.
type ERTH struct {
	Op       MRCEndpointOp // 2 bits
	Vendor   uint8
	PortMask uint32 // reachable ports of the sender, of MRCPortStatus
	TSETH    TSETH
}

// EETH is the endpoint response extended transport header. The BTH has the PSN of the request.
type EETH struct {
	Op        MRCEndpointOp // 2 bits; not reliable, see eethOpShift
	Timestamp uint16        // of the request
}

// SplitEntropy returns the UDP source port and the IPv6 flow label of an entropy value.
//
// Choice: two sources put the source port into the low half, one the flow label. Only the sender interprets an entropy value.
func SplitEntropy(ev uint32) (sport uint16, label uint32) { return uint16(ev), ev >> 16 }

// JoinEntropy is the inverse of SplitEntropy. It ignores the upper 4 bits of a flow label.
func JoinEntropy(sport uint16, label uint32) uint32 { return uint32(sport) | label<<16 }
