// Package stack is the network layer below RoCEv2: Ethernet, IPv4 and IPv6 headers, ARP and neighbour discovery,
// ICMP echo, multicast groups, the GID table and routes. It knows no queue pairs and no RoCE packets.
//
// A Stack is sans-I/O and deterministic. One goroutine owns it; nothing here locks.
//
//	Receive                    a frame in; a UDP datagram to the RoCEv2 port comes out, the stack handles the rest
//	NewPath, ReleasePath       the headers and the next hop for a destination
//	NextControl, NextHeld      frames that the stack sends
//	Advance, NextTimeout       timers of neighbours and groups
//
// No promise: this package may change between releases.
package stack

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// Errors of the configuration and of paths.
var (
	ErrMAC         = errors.New("rocev2: not a unicast Ethernet address")
	ErrGIDIndex    = errors.New("rocev2: no GID at this index")
	ErrFamily      = errors.New("rocev2: source and destination GID are of different families")
	ErrNoRoute     = errors.New("rocev2: no route to the destination")
	ErrBadGID      = errors.New("rocev2: not a unicast address")
	ErrAddress     = errors.New("rocev2: unusable address")
	ErrVLAN        = errors.New("rocev2: VLAN not possible on this NIC")
	ErrNeighbours  = errors.New("rocev2: neighbour table is full")
	ErrUnreachable = errors.New("rocev2: the neighbour does not answer")
	ErrNoGroups    = errors.New("rocev2: no multicast on an interface that is shared with the kernel")
	ErrNotGroup    = errors.New("rocev2: not a multicast address")
	ErrGroups      = errors.New("rocev2: too many multicast groups")
)

// Config describes a Stack.
type Config struct {
	MAC inet.MAC
	MTU int // largest IP packet of the link in bytes
	// Addrs are the stack's own addresses with their prefix lengths. Unless Shared is set, the stack adds the
	// link-local IPv6 address of MAC as the last GID.
	Addrs []netip.Prefix
	VLANs []VLAN // none on a shared interface
	// PairedGIDs gives each address two entries in the GID table, and the first two to a link-local address, as mlx5 does
	// for RoCE of versions 1 and 2. Both entries are of version 2.
	PairedGIDs bool
	// Gateways are the next hops for addresses outside the prefixes, one for each family and VLAN. A gateway
	// belongs to the VLAN whose prefix contains it.
	Gateways []netip.Addr
	// Shared: a kernel owns the interface and resolves addresses (shared.go). There are no Gateways then.
	Shared bool
	Routes []netip.Prefix // destinations that a shared interface leads to
	// Sockets: the kernel makes the IP and UDP headers too (sockets.go). It implies Shared.
	Sockets    bool
	Translated func(Translation) // called on address translation on the path; may be nil
	// Group makes the kernel join or leave a multicast group of a shared interface. Nil: no groups there.
	Group   func(group inet.GID, in bool) error
	FirstID uint16 // IP ID of the first IPv4 packet
	// UDPPort is the UDP destination port of the NIC and its peers; 0 means bth.UDPPort.
	UDPPort uint16
}

// VLAN lists the addresses of a NIC in a VLAN (IEEE 802.1Q). Packets from them are tagged, with the Priority of
// their address vector. Answers to ARP, neighbour discovery and echo requests are tagged too, with priority 0.
type VLAN struct {
	ID    uint16 // 1 to 4094
	Addrs []netip.Prefix
}

// Counters count frames that the stack drops and the conflicts that it sees.
type Counters struct {
	AddrConflicts        uint64 // frames of other stations that use one of our addresses
	TxDroppedUnreachable uint64 // the neighbour does not answer
	TxDroppedHold        uint64 // too many frames wait for a neighbour
	TxDroppedControl     uint64 // ARP, ND, ICMP or MAD: too many wait, or the answer exceeds the MTU
}

// Stack is the network layer of one NIC.
type Stack struct {
	Counters Counters

	cfg     Config
	ipID    uint16 // of the next IPv4 packet
	addrs   addrTable
	neigh   neighTable
	groups  groupTable
	ctl     controlRing
	in      Datagram // the frame being received
	sockets sockets
}

// New returns a Stack.
func New(cfg Config) (*Stack, error) {
	if !cfg.MAC.Unicast() {
		return nil, fmt.Errorf("%w: %x", ErrMAC, cfg.MAC[:])
	}
	s := &Stack{cfg: cfg, ipID: cfg.FirstID}
	s.cfg.UDPPort = cmp.Or(cfg.UDPPort, bth.UDPPort)
	var err error
	if s.addrs, err = s.addrs.from(&cfg); err != nil {
		return nil, err
	}
	s.neigh.init()
	s.groups.init()
	if cfg.Sockets {
		s.sockets.unwind = newUnwinder()
	}
	return s, nil
}

// MAC returns the Ethernet address of the stack.
func (s *Stack) MAC() inet.MAC { return s.cfg.MAC }

// Owns reports whether g is an address of the stack in a VLAN, 0 for none.
func (s *Stack) Owns(g *inet.GID, vlan uint16) bool { return s.addrs.own(g, vlan) }

// MTU returns the largest IP packet of the link in bytes.
func (s *Stack) MTU() int { return s.cfg.MTU }

// SetMTU changes the MTU.
func (s *Stack) SetMTU(mtu int) { s.cfg.MTU = mtu }

// LinkUp resumes after the link has come back: it announces the addresses and retries failed neighbours.
func (s *Stack) LinkUp(now mono.Time) {
	for _, nb := range s.neigh.list {
		if nb.State == Failed {
			nb.at = now
		}
	}
	s.announce()
}

// Advance fires the timers that are due.
func (s *Stack) Advance(now mono.Time) {
	s.advanceNeighbours(now)
	s.advanceGroups(now)
}

// NextTimeout returns when Advance is due.
func (s *Stack) NextTimeout() mono.Time { return s.neigh.next.Min(s.groups.next) }

// TakeID reserves IP IDs for n consecutive datagrams and returns the first. Frames of sockets count from 0.
func (s *Stack) TakeID(n int) uint16 {
	if s.cfg.Sockets {
		return 0
	}
	id := s.ipID
	s.ipID += uint16(n)
	return id
}

// Datagram is a received UDP datagram, or the headers and payload of a super-frame. It and its views are valid
// until the next Receive.
type Datagram struct {
	IPHeader
	SrcMAC inet.MAC
	VLAN   uint16 // 0: none
	L2     int    // length of the Ethernet header
	UDP    []byte // header
	Body   []byte // UDP payload
}

// Receive takes a frame, from the Ethernet header on and without frame check sequence. It returns a datagram for
// the RoCEv2 port of one of our addresses or groups. For any other frame it returns nil and the verdict, Accepted
// for control messages that the stack has handled.
func (s *Stack) Receive(now mono.Time, frame []byte) (*Datagram, Drop) {
	if len(frame) < inet.EthernetLen {
		return nil, DropShort
	}
	if !s.acceptMAC(frame) {
		return nil, DropMAC
	}
	d := &s.in
	d.SrcMAC = inet.MAC(frame[6:12])
	typ, l2, t := inet.EtherType(frame)
	d.L2, d.VLAN = l2, t.VLAN() // a tag with VLAN 0 carries only a priority
	switch {
	case l2 == 0:
		return nil, DropShort
	case d.VLAN != 0 && !s.addrs.inVLAN(d.VLAN):
		return nil, DropVLAN
	case typ == inet.TypeIPv4:
		if r := d.ParseIPv4(frame[l2:]); r != Accepted {
			return nil, r
		}
	case typ == inet.TypeIPv6:
		if r := d.ParseIPv6(frame[l2:]); r != Accepted {
			return nil, r
		}
	case typ == inet.TypeARP && !s.cfg.Shared: // on a shared interface the kernel answers
		return nil, s.receiveARP(now, frame[l2:])
	default:
		return nil, DropEtherType
	}
	if d.Proto == inet.ProtoUDP {
		if r := s.receiveUDP(d); r != Accepted {
			return nil, r
		}
		return d, Accepted
	}
	return nil, s.receiveControl(now, d)
}

// receiveControl handles the IP protocols other than UDP. On a shared interface they are the kernel's.
func (s *Stack) receiveControl(now mono.Time, d *Datagram) Drop {
	switch {
	case s.cfg.Shared:
	case d.Proto == inet.ProtoICMP && !d.V6:
		return s.receiveICMP(d)
	case d.Proto == inet.ProtoICMPv6 && d.V6:
		return s.receiveICMPv6(now, d)
	case d.Proto == inet.ProtoIGMP && !d.V6:
		return s.receiveIGMP(now, d)
	case d.Proto == inet.ProtoHopByHop && d.V6:
		return s.receiveMLD(now, d)
	}
	return DropProto
}

// receiveUDP checks port, destination and length. It does not verify UDP checksums: the ICRC covers more (IBTA
// annex A17.3.3).
func (s *Stack) receiveUDP(d *Datagram) Drop {
	if len(d.Payload) < inet.UDPLen {
		return DropShort
	}
	d.UDP = d.Payload[:inet.UDPLen]
	if binary.BigEndian.Uint16(d.UDP[2:]) != s.cfg.UDPPort {
		return DropPort
	}
	if !s.addrs.own(&d.Dst, d.VLAN) && s.groups.byGID[d.Dst] == nil {
		return DropAddr
	}
	end := int(binary.BigEndian.Uint16(d.UDP[4:]))
	if end < inet.UDPLen || end > len(d.Payload) {
		return DropShort
	}
	d.Body = d.Payload[inet.UDPLen:end]
	return Accepted
}
