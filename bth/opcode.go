package bth

// Opcode is the BTH opcode: transport in bits 7:5, operation in bits 4:0
// (IBTA vol.1 table 38).
type Opcode uint8

// Transports, bits 7:5 of an opcode.
const (
	TransportRC  Opcode = 0x00
	TransportUC  Opcode = 0x20
	TransportUD  Opcode = 0x60
	TransportCNP Opcode = 0x80
)

// Operations of RC and UC, bits 4:0 of an opcode. UC has those up to
// OpWriteOnlyImm, UD only OpSendOnly and OpSendOnlyImm.
const (
	OpSendFirst      Opcode = 0x00
	OpSendMiddle     Opcode = 0x01
	OpSendLast       Opcode = 0x02
	OpSendLastImm    Opcode = 0x03
	OpSendOnly       Opcode = 0x04
	OpSendOnlyImm    Opcode = 0x05
	OpWriteFirst     Opcode = 0x06
	OpWriteMiddle    Opcode = 0x07
	OpWriteLast      Opcode = 0x08
	OpWriteLastImm   Opcode = 0x09
	OpWriteOnly      Opcode = 0x0a
	OpWriteOnlyImm   Opcode = 0x0b
	OpReadRequest    Opcode = 0x0c
	OpReadRespFirst  Opcode = 0x0d
	OpReadRespMiddle Opcode = 0x0e
	OpReadRespLast   Opcode = 0x0f
	OpReadRespOnly   Opcode = 0x10
	OpAcknowledge    Opcode = 0x11
	OpAtomicAck      Opcode = 0x12
	OpCmpSwap        Opcode = 0x13
	OpFetchAdd       Opcode = 0x14
	OpSendLastInv    Opcode = 0x16
	OpSendOnlyInv    Opcode = 0x17
	OpFlush          Opcode = 0x1c // IBTA memory placement extensions
	OpAtomicWrite    Opcode = 0x1d // IBTA memory placement extensions
)

// OpcodeCNP is the RoCEv2 congestion notification packet (IBTA annex A17.9.3).
const OpcodeCNP Opcode = 0x81

// Transport returns bits 7:5.
func (o Opcode) Transport() Opcode { return o & 0xe0 }

// Op returns bits 4:0.
func (o Opcode) Op() Opcode { return o & 0x1f }
