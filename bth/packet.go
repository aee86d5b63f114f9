package bth

// Packet is one decoded transport packet: the BTH, the extension headers of the opcode, and a view of the payload. It is
// passed by pointer and reused, and needs no allocation per packet. Fields of headers that the opcode does not have are
// meaningless.
type Packet struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	FECN      bool
	BECN      bool
	AckReq    bool
	PKey      uint16
	DestQP    QPN
	PSN       PSN

	Ext       XETH      // extended transports
	FETH      FETH      // FLUSH
	RETH      RETH      // WRITE FIRST/ONLY, READ REQUEST, ATOMIC WRITE and FLUSH; every WRITE of extended transports and MRC
	AETH      AETH      // ACKNOWLEDGE, READ RESPONSE FIRST/LAST/ONLY, ATOMIC ACKNOWLEDGE
	AtomicETH AtomicETH // CMP_SWAP and FETCH_ADD
	AtomicAck uint64    // original value, ATOMIC ACKNOWLEDGE
	Imm       uint32    // immediate data, in network order on the wire
	IETH      uint32    // rkey to invalidate, SEND_WITH_INV
	DETH      DETH      // UD

	// Payload is the data without pad bytes: a view of the frame on receive, of the sender's memory on transmit.
	Payload []byte

	// Headers of MRC. They follow the payload so that packets of other transports touch no more memory.
	ReTx    bool    // a retransmission
	Stamped bool    // a WRITE with TSETH
	METH    METH    // WRITE
	TSETH   TSETH   // WRITE that is Stamped
	SETH    SETH    // SACK
	CCState CCState // SACK
	NETH    NETH    // NACK
	PETH    PETH    // probe
	ERTH    ERTH    // endpoint request
	EETH    EETH    // endpoint response
}

// RETH is the RDMA extended transport header (IBTA vol.1 9.3.3), 16 bytes.
type RETH struct {
	VA     uint64
	RKey   uint32
	Length uint32 // bytes of the whole message; of extended transports, bytes from this packet on
}

// FETH is the FLUSH extended transport header (IBTA vol.1 annex A19), 4 bytes.
type FETH struct {
	Type  uint8 // FlushGlobal, FlushPersistent or both; 4 bits
	Level uint8 // FlushRange or FlushMR; 2 bits
}

// Placement types and selectivity levels of a FLUSH, with the values of ib_placement_type and ib_selectivity_level.
const (
	FlushGlobal     = 1 << 0 // written data is globally visible
	FlushPersistent = 1 << 1 // written data survives a loss of power
	FlushRange      = 0      // the range in the RETH
	FlushMR         = 1      // the whole region
)

// AETH is the ACK extended transport header (IBTA vol.1 9.3.5), 4 bytes.
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // 24 bits
}

// AtomicETH is the atomic extended transport header (IBTA vol.1 9.3.4), 28 bytes.
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64 // swap value of CMP_SWAP, addend of FETCH_ADD
	Compare uint64 // compare value of CMP_SWAP
}

// DETH is the datagram extended transport header (IBTA vol.1 9.3.2), 8 bytes.
type DETH struct {
	QKey  uint32
	SrcQP QPN
}

// Syndrome is the AETH syndrome byte (IBTA vol.1 9.7.5.2.1): bits 6:5 choose
// ACK, RNR NAK or NAK, bits 4:0 hold credits, RNR timer or NAK code.
type Syndrome uint8

// Syndromes. RNR NAKs are SyndromeRNR plus the 5-bit timer code.
const (
	SyndromeACK             Syndrome = 0x1f // ACK, credit field "invalid": no end-to-end flow control
	SyndromeRNR             Syndrome = 0x20
	SyndromePSNSeqErr       Syndrome = 0x60
	SyndromeInvalidRequest  Syndrome = 0x61
	SyndromeRemoteAccessErr Syndrome = 0x62
	SyndromeRemoteOpErr     Syndrome = 0x63
	SyndromeInvalidRDReq    Syndrome = 0x64
)

// IsACK reports whether s acknowledges.
func (s Syndrome) IsACK() bool { return s>>5 == 0 }

// IsRNR reports whether s is a receiver-not-ready NAK.
func (s Syndrome) IsRNR() bool { return s>>5 == 1 }

// IsNAK reports whether s is a negative acknowledgement other than RNR.
func (s Syndrome) IsNAK() bool { return s>>5 == 3 }

// Value returns bits 4:0: credits, RNR timer code or NAK code.
func (s Syndrome) Value() uint8 { return uint8(s) & 0x1f }
