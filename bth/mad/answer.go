package mad

// MRA asks for more time to answer (IBTA vol.1 12.6.6).
type MRA struct {
	LocalCommID, RemoteCommID uint32
	Answers                   MsgType
	ServiceTimeout            uint8  // 5 bits, 4.096 us * 2^n
	PrivateData               []byte // at most MRAPrivateLen
}

// Decode reads the message of the MAD m, whose header has been decoded.
func (r *MRA) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = MRA{
		LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]),
		Answers: MsgType(b[8] >> 6), ServiceTimeout: b[9] >> 3, PrivateData: b[10:],
	}
}

// Put writes the message after the header of the MAD m.
func (r *MRA) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.LocalCommID)
	be.PutUint32(b[4:], r.RemoteCommID)
	b[8], b[9] = byte(r.Answers)<<6, r.ServiceTimeout<<3
	copy(b[10:], r.PrivateData)
}

// REJ refuses a message or a connection (IBTA vol.1 12.6.7).
type REJ struct {
	LocalCommID, RemoteCommID uint32 // zero where the sender has or knows none
	Answers                   MsgType
	Reason                    Reason
	ARI                       []byte // additional reject information, at most ARILen
	PrivateData               []byte // at most REJPrivateLen
}

// Decode reads the message of the MAD m, whose header has been decoded. A length of
// additional information that the message cannot hold is cut.
func (r *REJ) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = REJ{
		LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]), Answers: MsgType(b[8] >> 6),
		Reason: Reason(be.Uint16(b[10:])), ARI: b[12:][:min(b[9]>>1, ARILen)], PrivateData: b[12+ARILen:],
	}
}

// Put writes the message after the header of the MAD m.
func (r *REJ) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.LocalCommID)
	be.PutUint32(b[4:], r.RemoteCommID)
	b[8] = byte(r.Answers) << 6
	b[9] = byte(copy(b[12:12+ARILen], r.ARI)) << 1
	be.PutUint16(b[10:], uint16(r.Reason))
	copy(b[12+ARILen:], r.PrivateData)
}

// SIDRREQ asks for the queue pair of a datagram service (IBTA vol.1 12.11.1).
type SIDRREQ struct {
	RequestID   uint32
	PKey        uint16
	ServiceID   uint64
	PrivateData []byte // at most SIDRREQPrivateLen
}

// Decode reads the message of the MAD m, whose header has been decoded.
func (r *SIDRREQ) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = SIDRREQ{
		RequestID: be.Uint32(b), PKey: be.Uint16(b[4:]), ServiceID: be.Uint64(b[8:]), PrivateData: b[16:],
	}
}

// Put writes the message after the header of the MAD m.
func (r *SIDRREQ) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.RequestID)
	be.PutUint16(b[4:], r.PKey)
	be.PutUint64(b[8:], r.ServiceID)
	copy(b[16:], r.PrivateData)
}

// SIDRREP answers SIDRREQ (IBTA vol.1 12.11.2).
type SIDRREP struct {
	RequestID   uint32
	Status      SIDRStatus
	QPN         uint32 // 24 bits
	ServiceID   uint64
	QKey        uint32
	Info        []byte // additional information, at most SIDRInfoLen
	PrivateData []byte // at most SIDRREPPrivateLen
}

// Decode reads the message of the MAD m, whose header has been decoded. A length of
// additional information that the message cannot hold is cut.
func (r *SIDRREP) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = SIDRREP{
		RequestID: be.Uint32(b), Status: SIDRStatus(b[4]), QPN: get24(b[8:]), ServiceID: be.Uint64(b[12:]),
		QKey: be.Uint32(b[20:]), Info: b[24:][:min(b[5], SIDRInfoLen)], PrivateData: b[24+SIDRInfoLen:],
	}
}

// Put writes the message after the header of the MAD m.
func (r *SIDRREP) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.RequestID)
	b[4], b[5] = byte(r.Status), byte(copy(b[24:24+SIDRInfoLen], r.Info))
	put24(b[8:], r.QPN)
	be.PutUint64(b[12:], r.ServiceID)
	be.PutUint32(b[20:], r.QKey)
	copy(b[24+SIDRInfoLen:], r.PrivateData)
}

// APStatus is the status of APR (IBTA vol.1 12.8.2).
type APStatus uint8

// APUnsupported says that alternate paths are not supported.
const APUnsupported APStatus = 2

// APR answers LAP, which loads an alternate path (IBTA vol.1 12.8). LAP is decoded
// as a Notice, because a refusal needs its IDs only.
type APR struct {
	LocalCommID, RemoteCommID uint32
	Status                    APStatus
}

// Decode reads the message of the MAD m, whose header has been decoded.
func (r *APR) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*r = APR{LocalCommID: be.Uint32(b), RemoteCommID: be.Uint32(b[4:]), Status: APStatus(b[9])}
}

// Put writes the message after the header of the MAD m.
func (r *APR) Put(m []byte) {
	b := body(m)
	be.PutUint32(b, r.LocalCommID)
	be.PutUint32(b[4:], r.RemoteCommID)
	b[9] = byte(r.Status)
}
