// Package cm is the InfiniBand connection manager (IBTA vol.1 chapter 12) of one
// NIC: REQ, REP, RTU, REJ, MRA, DREQ and DREP for connections, SIDR for datagrams.
//
// It is a state machine without I/O. Datagrams and the time go in (ReceiveMAD,
// Advance), datagrams go out through Port and events through Handler, both called
// synchronously. One goroutine owns an Agent, that of the NIC. A Handler may call
// any method of this package.
//
// An Agent is the rocev2.GSI of a NIC, and the NIC is its Port:
//
//	agent := cm.New(cm.Config{Port: nic, ...})
//	nic.SetGSI(agent)
package cm

import (
	"errors"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Port is the agent's way to others; *rocev2.NIC is one.
type Port interface {
	// SendMAD sends a datagram. m is not kept. An error counts as a lost datagram: it is
	// sent again when its timer fires.
	SendMAD(now mono.Time, to rocev2.MADRoute, m []byte) error
	// PortAttr says which path MTU the link permits.
	PortAttr() rocev2.PortAttr
}

// Config describes an Agent.
type Config struct {
	Port Port
	GUID uint64 // of the channel adapter (node GUID), as a number
	// Seed makes communication IDs unguessable in the daemon and repeatable in tests.
	Seed [32]byte
	// MaxConns bounds connections and SIDR exchanges in all states, those in
	// timewait included; 0 stands for 65536.
	MaxConns int
}

// Errors of the methods. They are programming errors of the caller or limits; what
// the peer does wrong is reported by events.
var (
	ErrState       = errors.New("cm: not possible in this state")
	ErrInUse       = errors.New("cm: service ID is in use")
	ErrLimit       = errors.New("cm: too many connections")
	ErrInvalid     = errors.New("cm: parameter out of range")
	ErrPrivateData = errors.New("cm: private data is too long")
)

// Handler takes the events of a Listener, a Conn or a SIDR exchange.
type Handler interface {
	// CMEvent reports e. c is nil for SIDR events, s for all others. e and what it
	// points to are valid during the call.
	CMEvent(now mono.Time, c *Conn, s *SIDR, e *Event)
}

// EventKind says what has happened.
type EventKind uint8

// Events of a connection, each with what is expected of the owner.
const (
	// ConnectRequest: a REQ has come for a listener; c is new and has the
	// listener's handler. Accept, Reject or Close it, at once or later.
	ConnectRequest EventKind = iota + 1
	// ConnectReply: the listener has accepted (REP). Bring the queue pair to RTR
	// and RTS and call Establish, or Reject.
	ConnectReply
	// Established: the passive side has got the RTU, or was told by
	// CommEstablished that data has come.
	Established
	// Rejected: the peer has refused (REJ, or SIDR_REP with a status). Close.
	Rejected
	// Unreachable: the peer has not answered after all retries. Close.
	Unreachable
	// DelayRequested: the peer needs more time (MRA). For information.
	DelayRequested
	// Disconnected: the peer has sent DREQ, or is gone. Bring the queue pair to the
	// error state and call DisconnectReply when DREQ is set in the event.
	Disconnected
	// DisconnectReplied: the peer has answered our DREQ, or has not after all
	// retries (TimedOut set in the event). The connection is in timewait.
	DisconnectReplied
	// TimewaitExit: no packets of the old connection live; its queue pair may be
	// used again. The last event of a connection.
	TimewaitExit
	// SIDRRequest: a SIDR_REQ has come for a listener. Reply or Close.
	SIDRRequest
	// SIDRReply: the SIDR_REP with status 0; Rejected is what another one reports.
	SIDRReply
)

// Event is what a Handler is told. Fields that its kind does not name are zero.
type Event struct {
	Kind EventKind
	// PrivateData is what the peer sent, at its full length on the wire (padded
	// with zeros). A REQ or SIDR_REQ of rdma_cm begins with the header that
	// mad.IPCM decodes.
	PrivateData []byte
	// ConnectRequest: the parameters proposed, seen from here: ResponderResources
	// is the most that we may be asked for, InitiatorDepth the most that we may ask.
	// ConnectReply: those agreed, seen from here.
	Conn ConnInfo
	// Rejected: why, and the additional information.
	Reason mad.Reason
	ARI    []byte
	// Disconnected: a DREQ waits for DisconnectReply.
	DREQ bool
	// DisconnectReplied: there was no answer.
	TimedOut bool
	// SIDRRequest and SIDRReply.
	SIDR SIDRInfo
}

// ConnInfo is what the peer's REQ or REP says.
type ConnInfo struct {
	Listener           *Listener // ConnectRequest: which one
	ServiceID          uint64    // ConnectRequest
	Type               mad.QPType
	RemoteQPN          bth.QPN
	RemoteQKey         uint32
	StartingPSN        bth.PSN // the first that the local queue pair is to send
	ResponderResources uint8   // RDMA READ and atomic operations that we must answer at a time
	InitiatorDepth     uint8   // those that we may have outstanding
	RetryCount         uint8   // ConnectRequest
	RNRRetry           uint8
	FlowControl        bool
	SRQ                bool
	PathMTU            qp.MTU // ConnectRequest
	RemoteGUID         uint64
	TargetAckDelay     uint8 // ConnectReply: 4.096 us * 2^n
}

// SIDRInfo is what a SIDR_REQ or SIDR_REP says.
type SIDRInfo struct {
	Listener  *Listener // SIDRRequest: which one
	ServiceID uint64
	PKey      uint16
	QPN       bth.QPN // SIDRReply
	QKey      uint32  // SIDRReply
	Status    mad.SIDRStatus
}

// Family is a family of addresses.
type Family uint8

// Families.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// ListenParam describes a listener.
type ListenParam struct {
	// ServiceID with Mask: bits that are zero in Mask match anything. Zero Mask
	// stands for all ones. See mad.IPServiceID.
	ServiceID, Mask uint64
	// Local confines the listener to requests sent to this address; zero: any. A
	// confined listener takes precedence over one that is not, and both may exist.
	Local rocev2.GID
	// Family confines a listener without Local to addresses of a family, also to those
	// that the port gets later. It takes precedence over one of any family.
	Family Family
	// Backlog bounds requests reported and neither accepted nor closed by the owner,
	// though the peer may have given them up; more are rejected (no resources). At least 1.
	// As many accepted ones, or 256, may wait for their peers; of more, the oldest are given up.
	Backlog int
	// Datagram listens for SIDR_REQ instead of REQ. The two do not collide.
	Datagram bool
}

// ConnectParam describes a connection to be made: the fields of REQ (IBTA vol.1
// 12.7.1 table 99) under their names there.
type ConnectParam struct {
	Route     rocev2.MADRoute // of the connection and of the CM's own datagrams
	ServiceID uint64
	Type      mad.QPType
	QPN       bth.QPN // of the local queue pair
	QKey      uint32
	// StartingPSN is the first that the remote queue pair is to send (IBTA vol.1 12.7.31).
	StartingPSN        bth.PSN
	ResponderResources uint8 // READ and atomic operations that the local queue pair answers at a time
	InitiatorDepth     uint8 // that it asks at a time
	RetryCount         uint8 // 3 bits, for the remote queue pair
	RNRRetry           uint8 // 3 bits, likewise; 7: endless
	FlowControl, SRQ   bool
	PathMTU            qp.MTU
	LocalAckTimeout    uint8 // 5 bits, 4.096 us * 2^n; of the queue pairs, and of timewait
	LocalCMTimeout     uint8 // 5 bits: the remote CM waits so long for us
	RemoteCMTimeout    uint8 // 5 bits: we wait so long for the remote CM
	MaxCMRetries       uint8 // 4 bits, for both
	PrivateData        []byte
}

// AcceptParam are the fields of REP that the owner chooses (IBTA vol.1 12.7.3).
type AcceptParam struct {
	QPN                bth.QPN
	QKey               uint32
	StartingPSN        bth.PSN // the first that the remote queue pair is to send
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 5 bits
	RNRRetry           uint8 // 3 bits
	FlowControl, SRQ   bool
	PrivateData        []byte
}

// QPAttr is what the local queue pair needs for RTR and RTS. It is complete from
// Accept on, and from ConnectReply on at the active side.
type QPAttr struct {
	Route              rocev2.MADRoute
	RemoteQPN          bth.QPN
	SQPSN, RQPSN       bth.PSN
	PathMTU            qp.MTU
	MaxRdAtomic        uint8
	MaxDestRdAtomic    uint8
	Timeout            uint8
	RetryCount         uint8
	RNRRetry           uint8
	RemoteResponseTime uint8 // of the remote CM, 4.096 us * 2^n
}

// SIDRParam describes a SIDR_REQ (IBTA vol.1 12.11.1).
type SIDRParam struct {
	Route        rocev2.MADRoute
	ServiceID    uint64
	Timeout      uint8 // 4.096 us * 2^n between tries
	MaxCMRetries uint8
	PrivateData  []byte
}

// SIDRReplyParam describes a SIDR_REP (IBTA vol.1 12.11.2).
type SIDRReplyParam struct {
	Status      mad.SIDRStatus
	QPN         bth.QPN
	QKey        uint32
	PrivateData []byte
}
