// Package cm is the InfiniBand connection manager (IBTA vol.1 chapter 12) of one NIC: REQ, REP, RTU, REJ, MRA, DREQ and
// DREP for connections, SIDR for datagrams.
//
// It is a state machine without I/O. Datagrams and the time go in (ReceiveMAD, Advance). Datagrams go out through Port and
// events through Handler, both called synchronously. The goroutine of the NIC owns the Agent. A Handler may call any
// method of this package.
//
// An Agent is the rocev2.GSI of a NIC, and the NIC is its Port:
//
//	agent := cm.New(cm.Config{Port: nic, ...})
//	nic.SetGSI(agent)
package cm

import (
	"errors"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Port sends the agent's datagrams; *rocev2.NIC is one.
type Port interface {
	// SendMAD sends a datagram. It does not keep m. An error counts as a lost datagram: the timer retransmits it.
	SendMAD(now mono.Time, to rocev2.MADRoute, m []byte) error
	// PortAttr returns the path MTU of the link.
	PortAttr() rocev2.PortAttr
}

// Config describes an Agent.
type Config struct {
	Port Port
	GUID uint64 // of the channel adapter (node GUID), as a number
	// Seed makes communication IDs unpredictable in the daemon and repeatable in tests.
	Seed [32]byte
	// MaxConns bounds connections and SIDR exchanges in all states, including timewait; 0 means 65536.
	MaxConns int
}

// Errors of the methods. They are programming errors of the caller or limits. Events report errors of the peer.
var (
	ErrState       = errors.New("cm: not possible in this state")
	ErrInUse       = errors.New("cm: service ID is in use")
	ErrLimit       = errors.New("cm: too many connections")
	ErrInvalid     = errors.New("cm: parameter out of range")
	ErrPrivateData = errors.New("cm: private data is too long")
)

// Handler receives the events of a Listener, a Conn or a SIDR exchange.
type Handler interface {
	// CMEvent reports e. c is nil for SIDR events, s for all others. e and its slices are valid during the call.
	CMEvent(now mono.Time, c *Conn, s *SIDR, e *Event)
}

// EventKind is the kind of an Event.
type EventKind uint8

// Events of a connection, each with the required reaction of the owner.
const (
	// ConnectRequest: a listener has received a REQ. c is new and has the listener's handler. Accept, Reject or Close
	// it, at once or later.
	ConnectRequest EventKind = iota + 1
	// ConnectReply: the peer has accepted (REP). Bring the queue pair to RTR and RTS and call Establish, or Reject.
	ConnectReply
	// Established: the passive side has received the RTU, or CommEstablished has reported data.
	Established
	// Rejected: the peer has rejected the request (REJ, or SIDR_REP with a status). Close.
	Rejected
	// Unreachable: the peer has not answered after all retries. Close.
	Unreachable
	// DelayRequested: the peer needs more time (MRA). Informational.
	DelayRequested
	// Disconnected: the peer has sent DREQ, or has gone. Bring the queue pair to the error state and call
	// DisconnectReply if DREQ is set in the event.
	Disconnected
	// DisconnectReplied: the peer has answered our DREQ, or all retries have timed out (TimedOut set in the event).
	// The connection is in timewait.
	DisconnectReplied
	// TimewaitExit: no packets of the connection remain in the network, and its queue pair may be reused. It is the
	// last event of a connection.
	TimewaitExit
	// SIDRRequest: a listener has received a SIDR_REQ. Reply or Close.
	SIDRRequest
	// SIDRReply: a SIDR_REP with status 0. Rejected reports any other status.
	SIDRReply
)

// Event is the argument of a Handler. Fields that do not belong to its kind are zero.
type Event struct {
	Kind EventKind
	// PrivateData comes from the peer, at its full length on the wire (padded with zeros). A REQ or SIDR_REQ of rdma_cm
	// begins with the header that mad.IPCM decodes.
	PrivateData []byte
	// ConnectRequest: the proposed parameters, seen from this side. ResponderResources bounds the peer's requests to us,
	// InitiatorDepth our requests to the peer. ConnectReply: the agreed parameters, seen from this side.
	Conn ConnInfo
	// Rejected: the reason and the additional information.
	Reason mad.Reason
	ARI    []byte
	// Disconnected: a DREQ waits for DisconnectReply.
	DREQ bool
	// DisconnectReplied: no answer arrived.
	TimedOut bool
	// SIDRRequest and SIDRReply.
	SIDR SIDRInfo
}

// ConnInfo holds the fields of the peer's REQ or REP.
type ConnInfo struct {
	Listener           *Listener // ConnectRequest
	ServiceID          uint64    // ConnectRequest
	Type               mad.QPType
	RemoteQPN          bth.QPN
	ResponderResources uint8 // RDMA READ and atomic operations from the peer in flight
	InitiatorDepth     uint8 // those to the peer in flight
	RetryCount         uint8 // ConnectRequest
	RNRRetry           uint8
	FlowControl        bool
	SRQ                bool
	PathMTU            qp.MTU // ConnectRequest
}

// SIDRInfo holds the fields of a SIDR_REQ or SIDR_REP.
type SIDRInfo struct {
	Listener  *Listener // SIDRRequest
	ServiceID uint64
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
	// ServiceID with Mask: bits that are zero in Mask match anything. Zero Mask means all ones. See mad.IPServiceID.
	ServiceID, Mask uint64
	// Local restricts the listener to requests for this address; zero: any. A restricted listener takes precedence over
	// an unrestricted one, and both may exist.
	Local inet.GID
	// Family restricts a listener without Local to addresses of a family, including later addresses of the port. It
	// takes precedence over one of any family.
	Family Family
	// Backlog bounds reported requests that the owner has neither accepted nor closed, even if the peer has given them
	// up. More are rejected (no resources). It is at least 1. It also bounds accepted requests that wait for their
	// peers, with a minimum of 256; beyond that, the agent gives up the oldest.
	Backlog int
	// Datagram listens for SIDR_REQ instead of REQ. Both may exist for one service.
	Datagram bool
}

// ConnectParam describes a new connection: the fields of REQ (IBTA vol.1 12.7.1 table 99) under their names there.
type ConnectParam struct {
	Route     rocev2.MADRoute // of the connection and of the CM's own datagrams
	ServiceID uint64
	Type      mad.QPType
	QPN       bth.QPN // of the local queue pair
	QKey      uint32
	// StartingPSN is the first PSN of the remote queue pair's requests (IBTA vol.1 12.7.31).
	StartingPSN        bth.PSN
	ResponderResources uint8 // READ and atomic operations from the peer in flight
	InitiatorDepth     uint8 // those to the peer in flight
	RetryCount         uint8 // 3 bits, for the remote queue pair
	RNRRetry           uint8 // 3 bits, likewise; 7: endless
	FlowControl, SRQ   bool
	PathMTU            qp.MTU
	LocalAckTimeout    uint8 // 5 bits, 4.096 us * 2^n; of the queue pairs, and of timewait
	LocalCMTimeout     uint8 // 5 bits: how long the remote CM waits for us
	RemoteCMTimeout    uint8 // 5 bits: how long we wait for the remote CM
	MaxCMRetries       uint8 // 4 bits, for both
	PrivateData        []byte
}

// AcceptParam are the fields of REP that the owner chooses (IBTA vol.1 12.7.3).
type AcceptParam struct {
	QPN                bth.QPN
	QKey               uint32
	StartingPSN        bth.PSN // first PSN of the remote queue pair's requests
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 5 bits
	RNRRetry           uint8 // 3 bits
	FlowControl, SRQ   bool
	PrivateData        []byte
}

// QPAttr holds the attributes of the local queue pair for RTR and RTS. It is complete from Accept on, and from ConnectReply
// on at the active side.
type QPAttr struct {
	Route           rocev2.MADRoute
	RemoteQPN       bth.QPN
	SQPSN, RQPSN    bth.PSN
	PathMTU         qp.MTU
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	Timeout         uint8
	RetryCount      uint8
	RNRRetry        uint8
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
