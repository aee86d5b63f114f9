package mad

// Path is a path in REQ (IBTA vol.1 12.7.10 to 12.7.36).
type Path struct {
	LocalLID, RemoteLID uint16 // 0xffff with RoCE (IBTA annex A16)
	LocalGID, RemoteGID [16]byte
	FlowLabel           uint32 // 20 bits
	PacketRate          uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	LocalAckTimeout     uint8 // 5 bits, 4.096 us * 2^n
}

const pathLen = 44

func (p *Path) decode(b []byte) {
	v := be.Uint32(b[36:])
	*p = Path{
		LocalLID: be.Uint16(b), RemoteLID: be.Uint16(b[2:]),
		LocalGID: [16]byte(b[4:20]), RemoteGID: [16]byte(b[20:36]),
		FlowLabel: v >> 12, PacketRate: uint8(v & 0x3f), TrafficClass: b[40], HopLimit: b[41],
		SL: b[42] >> 4, SubnetLocal: b[42]&8 != 0, LocalAckTimeout: b[43] >> 3,
	}
}

func (p *Path) put(b []byte) {
	be.PutUint16(b, p.LocalLID)
	be.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
	be.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.PacketRate&0x3f))
	b[40], b[41] = p.TrafficClass, p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 8)
	b[43] = p.LocalAckTimeout << 3
}

// REQ asks for a connection (IBTA vol.1 12.6.5).
type REQ struct {
	LocalCommID        uint32
	ServiceID          uint64
	LocalCAGUID        uint64
	LocalQKey          uint32
	LocalQPN           uint32 // 24 bits
	ResponderResources uint8
	LocalEECN          uint32 // 24 bits
	InitiatorDepth     uint8
	RemoteEECN         uint32 // 24 bits
	RemoteCMTimeout    uint8  // 5 bits: the receiver shall answer within 4.096 us * 2^n
	Type               QPType
	FlowControl        bool
	StartingPSN        uint32 // 24 bits
	LocalCMTimeout     uint8  // 5 bits: the sender answers within 4.096 us * 2^n
	RetryCount         uint8  // 3 bits
	PKey               uint16
	PathMTU            uint8 // 4 bits: 1 to 5 for 256 to 4096
	RDCExists          bool
	RNRRetry           uint8 // 3 bits
	MaxCMRetries       uint8 // 4 bits
	SRQ                bool
	ExtendedTransport  uint8 // 3 bits
	Primary, Alternate Path
	PrivateData        []byte // at most REQPrivateLen
}

const reqPrivate = 96 + pathLen

// Decode reads the message of the MAD m, whose header has been decoded.
func (r *REQ) Decode(m []byte) {
	b := m[HeaderLen:Len]
	r.LocalCommID, r.ServiceID, r.LocalCAGUID = be.Uint32(b), be.Uint64(b[8:]), be.Uint64(b[16:])
	r.LocalQKey, r.LocalQPN, r.ResponderResources = be.Uint32(b[28:]), get24(b[32:]), b[35]
	r.LocalEECN, r.InitiatorDepth, r.RemoteEECN = get24(b[36:]), b[39], get24(b[40:])
	r.RemoteCMTimeout, r.Type, r.FlowControl = b[43]>>3, QPType(b[43]>>1&3), b[43]&1 != 0
	r.StartingPSN, r.LocalCMTimeout, r.RetryCount = get24(b[44:]), b[47]>>3, b[47]&7
	r.PKey = be.Uint16(b[48:])
	r.PathMTU, r.RDCExists, r.RNRRetry = b[50]>>4, b[50]&8 != 0, b[50]&7
	r.MaxCMRetries, r.SRQ, r.ExtendedTransport = b[51]>>4, b[51]&8 != 0, b[51]&7
	r.Primary.decode(b[52:])
	r.Alternate.decode(b[96:])
	r.PrivateData = b[reqPrivate:]
}

// Put writes the message after the header of the MAD m.
func (r *REQ) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.LocalCommID)
	be.PutUint64(b[8:], r.ServiceID)
	be.PutUint64(b[16:], r.LocalCAGUID)
	be.PutUint32(b[28:], r.LocalQKey)
	put24(b[32:], r.LocalQPN)
	b[35] = r.ResponderResources
	put24(b[36:], r.LocalEECN)
	b[39] = r.InitiatorDepth
	put24(b[40:], r.RemoteEECN)
	b[43] = r.RemoteCMTimeout<<3 | byte(r.Type&3)<<1 | bit(r.FlowControl, 1)
	put24(b[44:], r.StartingPSN)
	b[47] = r.LocalCMTimeout<<3 | r.RetryCount&7
	be.PutUint16(b[48:], r.PKey)
	b[50] = r.PathMTU<<4 | bit(r.RDCExists, 8) | r.RNRRetry&7
	b[51] = r.MaxCMRetries<<4 | bit(r.SRQ, 8) | r.ExtendedTransport&7
	r.Primary.put(b[52:])
	r.Alternate.put(b[96:])
	copy(b[reqPrivate:], r.PrivateData)
}

// REP accepts a connection (IBTA vol.1 12.6.8).
type REP struct {
	LocalCommID, RemoteCommID uint32
	LocalQKey                 uint32
	LocalQPN                  uint32 // 24 bits
	LocalEECN                 uint32 // 24 bits
	StartingPSN               uint32 // 24 bits
	ResponderResources        uint8
	InitiatorDepth            uint8
	TargetAckDelay            uint8 // 5 bits, 4.096 us * 2^n
	FailoverAccepted          uint8 // 2 bits
	FlowControl               bool
	RNRRetry                  uint8 // 3 bits
	SRQ                       bool
	LocalCAGUID               uint64
	PrivateData               []byte // at most REPPrivateLen
}

// Decode reads the message of the MAD m, whose header has been decoded.
func (r *REP) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = REP{
		LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]),
		LocalQKey: be.Uint32(b[8:]), LocalQPN: get24(b[12:]), LocalEECN: get24(b[16:]),
		StartingPSN: get24(b[20:]), ResponderResources: b[24], InitiatorDepth: b[25],
		TargetAckDelay: b[26] >> 3, FailoverAccepted: b[26] >> 1 & 3, FlowControl: b[26]&1 != 0,
		RNRRetry: b[27] >> 5, SRQ: b[27]&0x10 != 0, LocalCAGUID: be.Uint64(b[28:]), PrivateData: b[36:],
	}
}

// Put writes the message after the header of the MAD m.
func (r *REP) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.LocalCommID)
	be.PutUint32(b[4:], r.RemoteCommID)
	be.PutUint32(b[8:], r.LocalQKey)
	put24(b[12:], r.LocalQPN)
	put24(b[16:], r.LocalEECN)
	put24(b[20:], r.StartingPSN)
	b[24], b[25] = r.ResponderResources, r.InitiatorDepth
	b[26] = r.TargetAckDelay<<3 | r.FailoverAccepted&3<<1 | bit(r.FlowControl, 1)
	b[27] = r.RNRRetry<<5 | bit(r.SRQ, 0x10)
	be.PutUint64(b[28:], r.LocalCAGUID)
	copy(b[36:], r.PrivateData)
}

// Notice is a message with the IDs of the connection and private data only: RTU (IBTA vol.1 12.6.9) and DREP (12.6.11). DREQ
// (12.6.10) also has the queue pair.
type Notice struct {
	LocalCommID, RemoteCommID uint32
	RemoteQPN                 uint32 // DREQ: 24 bits
	PrivateData               []byte // at most RTUPrivateLen, DREPPrivateLen, DREQPrivateLen
}

// noticePrivate is where the private data of a Notice begins.
func noticePrivate(a Attr) int {
	if a == AttrDREQ {
		return 12
	}
	return 8
}

// Decode reads the message of the MAD m, whose header has been decoded and says a.
func (n *Notice) Decode(a Attr, m []byte) {
	b := m[HeaderLen:Len]
	*n = Notice{LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]), PrivateData: b[noticePrivate(a):]}
	if a == AttrDREQ {
		n.RemoteQPN = get24(b[8:])
	}
}

// Put writes the message after the header of the MAD m, which says a.
func (n *Notice) Put(a Attr, m []byte) {
	b := body(m)
	be.PutUint32(b, n.LocalCommID)
	be.PutUint32(b[4:], n.RemoteCommID)
	if a == AttrDREQ {
		put24(b[8:], n.RemoteQPN)
	}
	copy(b[noticePrivate(a):], n.PrivateData)
}
