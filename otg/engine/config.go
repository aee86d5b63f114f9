// Package engine generates RoCEv2 traffic: NICs in this process on interfaces, queue pairs with chosen numbers and
// keys, flows with rates, raw frames, counters and captures. It knows nothing about OTG's model; package model translates
// a configuration into Config.
package engine

import (
	"net/netip"
	"path"
	"slices"
	"time"

	"roced.io/roced/bth/inet"
)

// Config describes a test. Names are unique over all kinds of objects, but for a flow and its queue pair.
type Config struct {
	Ports      []Port
	Interfaces []Interface
	Peers      []Peer
	Flows      []Flow
	RawFlows   []RawFlow
	Captures   []Capture
	// AutoStart connects all peers as soon as the configuration is applied.
	AutoStart bool
}

// A LinkKind selects the driver of a port.
type LinkKind int

// Kinds of links.
const (
	Packet LinkKind = iota // packet socket on an existing interface
	XDP                    // AF_XDP socket on an existing interface
	TAP                    // TAP device, which the engine creates
	Verbs                  // NIC of a running daemon
)

// Port is a test port: one link.
type Port struct {
	Name string
	// Location is the location as configured. The engine reports it in metrics.
	Location string
	Kind     LinkKind
	// Namespace is the network namespace by name; empty means the process's own.
	Namespace string
	// Device is the interface's name, or the NIC's name for Verbs.
	Device string
	// Agent is the address of the agent that owns the port, HOST:PORT; empty means this process.
	Agent string
	// Speed in bits per second is the line rate for percentages and for the port's token bucket; 0 means the interface's
	// speed, and 10 Gb/s if the interface does not report one.
	Speed uint64
	// MTU of the link in bytes; 0 means the interface's.
	MTU int
	// Promiscuous also accepts frames for other MAC addresses than those of interfaces.
	Promiscuous bool
	RoCE        PortSettings
}

// Permitted reports whether one of the patterns (path.Match) has the port's interface: as INTERFACE, netns/NAMESPACE/INTERFACE or
// nic://NIC, and with agent://HOST:PORT/ before it for a port of an agent.
func (p *Port) Permitted(patterns []string) bool {
	name := p.Device
	switch {
	case p.Kind == Verbs:
		name = "nic://" + name
	case p.Namespace != "":
		name = "netns/" + p.Namespace + "/" + name
	}
	if p.Agent != "" {
		name = "agent://" + p.Agent + "/" + name
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// ECN is the two bits of the IP header: 0 is Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
type ECN uint8

// Marking has the traffic class of packets.
type Marking struct {
	DSCP uint8 // 0 to 63
	ECN  ECN
}

// PortSettings hold for all queue pairs of a port, passive ones included.
type PortSettings struct {
	CNP Marking
	// CNPInterval is the shortest time between two CNPs for one queue pair.
	CNPInterval time.Duration
	ACK, NAK    Marking
	// Timeout is the time without an acknowledgement after which the requester retransmits; 0 disables it. Model
	// selects one that the transport has: 4.096 us * 2^n.
	Timeout time.Duration
	// Retries is the number of retransmissions before a queue pair fails, 0 to 7.
	Retries int
	DCQCN   DCQCN
}

// DCQCN has the parameters of congestion control. Rates are fractions of the port's speed.
type DCQCN struct {
	Enable bool
	// Gain is the weight of new information in alpha: g of the DCQCN paper, 0 to 1.
	Gain float64
	// InitialAlpha is alpha when the first CNP arrives, 0 to 1.
	InitialAlpha float64
	// AlphaPeriod is the time after which alpha decays without a CNP.
	AlphaPeriod time.Duration
	// DecreasePeriod is the shortest time between two rate reductions.
	DecreasePeriod time.Duration
	// FirstRate is the rate after the first CNP; 0 means that the usual reduction applies.
	FirstRate float64
	// MinRate is the lowest rate.
	MinRate float64
	// MaxDecrease bounds one reduction as a fraction of the current rate; 0 means no bound.
	MaxDecrease float64
	// ClampTarget also sets the target rate at each reduction, not only at the first one after an increase.
	ClampTarget bool
	// IncreaseTime is the period of the increase timer.
	IncreaseTime time.Duration
	// IncreaseBytes is the period of the byte counter; 0 disables the byte counter.
	IncreaseBytes uint64
	// IncreaseSteps is the number of expiries before the next stage: fast recovery, additive, hyper.
	IncreaseSteps int
	// AdditiveRate and HyperRate are the steps of the target rate.
	AdditiveRate, HyperRate float64
}

// VLAN is one tag, outermost first in a list.
type VLAN struct {
	TPID     uint16 // 0x8100, 0x88a8, ...
	ID       uint16 // 0 to 4095
	Priority uint8  // 0 to 7
}

// Address is an address of an interface.
type Address struct {
	Name    string // peers refer to it
	Prefix  netip.Prefix
	Gateway netip.Addr // the zero Addr without one
	// GatewayMAC replaces ARP or neighbour discovery for the gateway; all zero means resolve it.
	GatewayMAC inet.MAC
}

// Interface is an emulated host on a port: a NIC with a MAC address of its own.
type Interface struct {
	Name      string
	Port      string
	MAC       inet.MAC
	MTU       int // bytes of an IP packet
	VLANs     []VLAN
	Addresses []Address
}

// Peer is a destination of an interface's address, with the queue pairs that connect to it.
type Peer struct {
	Name string
	// Address is the name of the local Address.
	Address string
	// Destination is unspecified (0.0.0.0 or ::) for queue pairs that only accept connections.
	Destination netip.Addr
	// PathMTU is the payload of one packet: 256, 512, 1024, 2048 or 4096 bytes.
	PathMTU    int
	QueuePairs []QueuePair
}

// QueuePair is an RC queue pair.
type QueuePair struct {
	Name string
	// Remote is the name of the queue pair at the other end. Empty means that the destination accepts with a queue pair of
	// its own choice.
	Remote string
	// Elsewhere says that another engine has Remote.
	Elsewhere bool
	// Active queue pairs send the connection request. The others accept one: from Remote only, if it is set.
	Active bool
	// Number is the queue pair number, 2 to 2^24-1, unique per interface.
	Number uint32
	Data   Marking
	// SourcePort is the UDP source port of its packets, any value.
	SourcePort uint16
	// PSN is the first packet sequence number, 24 bits.
	PSN uint32
	// VirtualAddress and RemoteKey are what the queue pair advertises for the memory that its peer writes and reads.
	// Keys are by queue pair: two queue pairs may have equal ones.
	VirtualAddress uint64
	RemoteKey      uint32
}

// Verb is the operation of a flow.
type Verb int

// Operations of flows.
const (
	Write Verb = iota
	WriteImm
	Send
	SendImm
	Read
)

// Flow sends messages on a queue pair, one after another, from Start to Stop.
type Flow struct {
	Name string
	// Port is the transmitting port, whose rate limit the flow shares.
	Port      string
	QueuePair string
	Verb      Verb
	Immediate uint32 // for WriteImm and SendImm, in host order
	Size      uint32 // bytes of a message, 1 to 2^31
	// LineRate is the rate of all flows of the group together, as a fraction of the port's speed. Flows of one Group share
	// it. The rate counts bytes of Ethernet frames with preamble, FCS and gap.
	LineRate float64
	Group    int
	// Far says that another engine has the flow. QueuePair is then the one at the other end, where this engine counts; if
	// the flow reads, it also sends the data, at LineRate of the queue pair's port, not shared.
	Far bool
}

// RateUnit is the unit of Rate.Value.
type RateUnit int

// Units of rates.
const (
	PacketsPerSecond RateUnit = iota
	BitsPerSecond             // of frames with FCS, as OTG counts
	LineFraction              // of the port's speed; frames with FCS, preamble and gap
)

// Rate of a raw flow.
type Rate struct {
	Unit  RateUnit
	Value float64
}

// RawFlow sends frames as they are.
type RawFlow struct {
	Name     string
	Tx       string // transmitting port; empty: another engine has it, and this one counts at Rx
	Rx       []string
	Rate     Rate
	Packets  uint64        // 0: no limit
	Duration time.Duration // 0: no limit
	Delay    time.Duration // before the first frame
	// Frame is the frame without FCS, complete with lengths and checksums; it has the size of the flow less 4.
	Frame []byte
	// Resolve asks the engine to write the destination MAC of this IP address, resolved from an interface of Tx that has
	// its network or has it as gateway; the zero Addr means the frame is complete.
	Resolve netip.Addr
	// Metrics enables counters at the receiver. A received frame belongs to the flow by its addresses, ports and the
	// signature that the engine writes to the end of the payload.
	Metrics bool
}

// Capture selects the ports whose frames are kept.
type Capture struct {
	Ports []string
	// Snap is the number of bytes kept of a frame; 0 means all.
	Snap int
	// Overwrite discards the oldest frames when the buffer is full; otherwise capturing ends.
	Overwrite bool
	PCAPNG    bool // pcapng instead of pcap
}

// TrafficState is a command to flows.
type TrafficState int

// Commands to flows. Resume continues a paused flow with its counters. Prepare lets the queue pairs of flows accept
// connections, before another engine connects to them; Start does so too.
const (
	Start TrafficState = iota
	Stop
	Pause
	Resume
	Prepare
)

// ProtocolState is a command to the queue pairs of peers.
type ProtocolState int

// Commands to queue pairs. Connect also accepts. Accept comes first if another engine has the other end.
const (
	Disconnect ProtocolState = iota
	Accept
	Connect
)

// FlowState is what a flow does.
type FlowState int

// States of flows.
const (
	Stopped FlowState = iota
	Started
	Paused
)

// after returns the state after a command that starts nothing anew.
func (s FlowState) after(c TrafficState) FlowState {
	switch {
	case c == Stop:
		return Stopped
	case c == Pause && s == Started:
		return Paused
	case c == Resume && s == Paused:
		return Started
	}
	return s
}

// PortMetric counts frames of a port since the configuration was applied. Bytes are of frames with FCS; rates are averages of
// the last second.
type PortMetric struct {
	Name, Location                     string
	Up, Capturing, Transmitting        bool
	FramesTx, FramesRx                 uint64
	BytesTx, BytesRx                   uint64
	FramesTxPerSecond, FramesRxPerSec  float64
	BytesTxPerSecond, BytesRxPerSecond float64
	LastChange                         time.Time // of Up
}

// PeerMetric counts connection messages of a peer's queue pairs.
type PeerMetric struct {
	Name                                     string
	Configured, Up, Down                     int // queue pairs
	RequestTx, RequestRx, ReplyTx, ReplyRx   uint64
	ReadyTx, ReadyRx                         uint64
	DisconnectRequestTx, DisconnectRequestRx uint64
	DisconnectReplyTx, DisconnectReplyRx     uint64
	RejectTx, RejectRx, UnknownRx            uint64
	Messages                                 bool   // the engine sees connection messages
	LastError                                string // of the last failed connection, for messages
}

// FlowMetric counts a flow since its last start. The ends are the flow's queue pair and the remote one. The data's sender is
// the former, or the latter if the flow reads.
type FlowMetric struct {
	Name, PortTx, PortRx string
	// Far says that these are the counters of a flow that another engine has.
	Far bool
	// Own and Remote say that frames are counted at the flow's queue pair and at the remote one. Counters of an end
	// without them are zero.
	Own, Remote        bool
	Read               bool
	State              FlowState
	SourceQP, DestQP   uint32
	Source, Dest       netip.Addr
	FramesTx, FramesRx uint64  // data packets; Tx includes retransmissions
	Retransmitted      uint64  // data packets
	SequenceErrors     uint64  // packets beyond the expected PSN
	BytesTx, BytesRx   uint64  // of Ethernet frames with FCS
	RateTx, RateRx     float64 // bits per second, average of the last second
	MessagesTx         uint64  // posted and sent in full
	MessagesComplete   uint64  // received in full; without a receiver that counts: completed at the flow's queue pair
	MessagesFailed     uint64  // completed in error
	// Completion is the duration from the first packet of a message to its completion, of the last message.
	Completion time.Duration
	// HasLatency: both ports have one clock. Latency* are from the send call to the receive call, of one packet in 16; 0 before the
	// first one.
	HasLatency                         bool
	LatencyAvg, LatencyMin, LatencyMax time.Duration
	MarkedRx                           uint64 // data packets with CE at the receiver
	// Tx and Rx of control packets, seen from the receiver (Tx) and from the sender (Rx) of the flow's data: the receiver
	// sends CNPs, ACKs and NAKs.
	CNPTx, CNPRx, ACKTx, ACKRx, NAKTx, NAKRx uint64
	First, Last                              time.Time // data packets sent; the zero Time without one
	LastError                                string
}

// RawFlowMetric counts a raw flow since its last start.
type RawFlowMetric struct {
	Name, PortTx, PortRx           string
	State                          FlowState
	FramesTx, FramesRx             uint64
	BytesTx, BytesRx               uint64 // of frames with FCS
	FramesTxPerSec, FramesRxPerSec float64
	First, Last                    time.Time // received
	Counted                        bool      // received frames are counted
}

// Ping is a request for an ICMP echo, from an address by name. OK says that a reply came in time.
type Ping struct {
	Source      string
	Destination netip.Addr
	OK          bool
}

// Neighbor is a resolved address.
type Neighbor struct {
	Interface string
	Addr      netip.Addr
	MAC       inet.MAC
}

// Engine runs one configuration at a time. All methods may be called from several goroutines. Commands with an empty list of
// names mean all objects of the kind. Errors join (errors.Join) one error per cause; each names the object.
type Engine interface {
	// Apply stops everything, and replaces the configuration. On error, nothing is configured. The warnings name the
	// values that the engine uses instead of configured ones.
	Apply(Config) (warnings []string, err error)
	// Protocols connects or disconnects queue pairs of peers. It returns without waiting for the connections.
	Protocols(peers []string, state ProtocolState) error
	// Traffic commands flows and raw flows by name. Start also connects queue pairs that are not connected. A started flow
	// resets its counters.
	Traffic(flows []string, state TrafficState) error
	// SetLink sets ports administratively up or down: a port that is down drops all frames.
	SetLink(ports []string, up bool) error
	// UpdateRawFlows replaces frame and rate of raw flows by name, while they run.
	UpdateRawFlows([]RawFlow) error
	// AddRawFlows and RemoveRawFlows change the list of raw flows without disturbing the others.
	AddRawFlows([]RawFlow) error
	RemoveRawFlows(names []string) error
	// StartCapture empties buffers of ports and records, StopCapture ends it.
	StartCapture(ports []string) error
	StopCapture(ports []string) error
	// Captured returns the capture file of a port.
	Captured(port string) ([]byte, error)

	PortMetrics() []PortMetric
	PeerMetrics() []PeerMetric
	FlowMetrics() []FlowMetric
	RawFlowMetrics() []RawFlowMetric
	Neighbors() []Neighbor
	// Ping sends the requests at the same time, and waits for the replies. It returns the requests with OK.
	Ping([]Ping) ([]Ping, error)
	// Err returns the reason why metrics are incomplete, such as a lost agent, nil without one.
	Err() error
	// Close stops everything and removes what the engine made.
	Close() error
}
