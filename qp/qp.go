// Package qp is the transport: the queue pair state machines of RC, UC and UD.
//
// It is sans-I/O. A QP is driven by its NIC in a fixed order:
//
//	inputs (Receive, Doorbell, Modify, OnCNP, OnTimeout)
//	-> PollTransmit until it returns false, or the NIC's budget is used up
//	-> Flushed once the polled packets have left
//	-> NextTimeout
//
// Inputs carry the time, which never goes back. A QP reads no clock, takes no
// lock, starts no goroutine and allocates nothing per packet.
//
// The requester packetizes send work requests, the completer (part of it)
// digests acknowledgements and READ responses, and the responder executes the
// peer's requests. What they share is the queue pair's state and attributes.
package qp

import (
	"roced/bth"
	"roced/ccalgo"
	"roced/mono"
	"roced/reorder"
	"roced/retrans"
)

// Profile is the set of plug-ins of one queue pair.
type Profile struct {
	Tracker    reorder.Tracker
	Recovery   retrans.Recovery
	Controller ccalgo.Controller
}

// Config describes a queue pair at its creation.
type Config struct {
	Type          Type
	QPN           bth.QPN
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInline     uint32 // bytes
	SigAll        bool   // every send completion is signaled
	HasSRQ        bool
	MaxUnacked    uint32 // PSNs that may be outstanding, a limit beside the controller's window
	Profile       Profile
	Host          Host
	Counters      *Counters
}

// RxMeta is what the encapsulation of a received packet says besides the packet.
type RxMeta struct {
	CE  bool   // ECN congestion experienced
	GRH []byte // UD: the 40 bytes placed before the payload (IBTA annex A17: for IPv4, 20 zero bytes and the IPv4 header)
}

// Transmit is one packet to send.
type Transmit struct {
	Packet bth.Packet
	AH     uint32 // UD: address handle; RC and UC packets use the connection's path
}

// Drop says what became of a received packet; anything but Accepted names why
// it changed nothing, for counters and captures.
type Drop uint8

// Verdicts on received packets.
const (
	Accepted       Drop = iota
	DropState           // the QP is in a state that receives nothing
	DropOpcode          // opcode of another transport service, or out of sequence
	DropDuplicate       // answered from saved state or ignored
	DropOutOfOrder      // beyond the expected PSN
	DropNoRecv          // no receive work request: RNR NAK, or silently for UC and UD
	DropQKey
	DropAccess          // key, bounds or rights
	DropLength
	DropStaleAck        // acknowledges nothing that is outstanding
)

// String returns the verdict in words.
func (d Drop) String() string {
	return [...]string{"accepted", "QP state does not receive", "unexpected opcode", "duplicate", "out of order",
		"no receive work request", "bad Q_Key", "remote access error", "bad length", "stale acknowledgement"}[d]
}

// QP is one queue pair.
type QP struct {
	cfg   Config
	host  Host
	ctr   *Counters
	state State
	attr  Attr
	mtu   int // path MTU in bytes, set in RTR

	req  requester
	resp responder
}

// New makes a queue pair in the RESET state. cfg has been checked by the NIC.
func New(cfg Config) *QP

// State returns the queue pair's state.
func (q *QP) State() State { return q.state }

// Attr returns the current attributes (ibv_query_qp).
func (q *QP) Attr() Attr

// Modify changes state and attributes as ibv_modify_qp does (IBTA vol.1 11.2.5.2,
// table of required and optional attributes). On error nothing has changed.
func (q *QP) Modify(now mono.Time, a Attr, m AttrMask) error

// Receive takes a packet addressed to this queue pair. The NIC has checked
// ICRC, P_Key and, for connected services, the peer's address.
func (q *QP) Receive(now mono.Time, p *bth.Packet, m RxMeta) Drop

// Doorbell tells that send work requests may have been posted.
func (q *QP) Doorbell(now mono.Time)

// OnCNP takes a congestion notification packet for this queue pair.
func (q *QP) OnCNP(now mono.Time)

// OnTimeout is called when NextTimeout has passed.
func (q *QP) OnTimeout(now mono.Time)

// PollTransmit fills t with the next packet and returns true, or returns false
// if nothing may be sent at now. t is scratch space: every field in use is set.
func (q *QP) PollTransmit(now mono.Time, t *Transmit) bool

// Flushed tells that the packets polled so far have left: views of memory in
// them are no longer referenced. Sends of UC and UD complete here.
func (q *QP) Flushed(now mono.Time)

// NextTimeout is the earliest instant at which OnTimeout is due or PollTransmit
// has something again (pacing); mono.Never if there is none.
func (q *QP) NextTimeout() mono.Time
