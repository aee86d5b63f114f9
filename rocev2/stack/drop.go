package stack

// Drop is the verdict on a received frame: Accepted, or the reason for dropping it.
type Drop uint8

// Verdicts.
const (
	Accepted Drop = iota
	DropShort
	DropMAC
	DropEtherType
	DropVLAN
	DropIPHeader
	DropIPChecksum
	DropFragment
	DropAddr
	DropProto
	DropPort
	DropARP
	DropND
	DropICMP
	DropConflict
	NumDrops
)

// Reason describes a Drop: the name of its counter and a comment for captures.
type Reason struct{ Counter, Comment string }

// Reasons describes all values of Drop.
var Reasons = [NumDrops]Reason{
	DropShort:      {"rx_dropped_short", "dropped: shorter than its headers say"},
	DropMAC:        {"rx_dropped_mac", "dropped: destination MAC address is not ours"},
	DropEtherType:  {"rx_dropped_ethertype", "dropped: unknown EtherType"},
	DropVLAN:       {"rx_dropped_vlan", "dropped: no address of ours is in this VLAN"},
	DropIPHeader:   {"rx_dropped_ip_header", "dropped: malformed IP header"},
	DropIPChecksum: {"rx_dropped_ip_checksum", "dropped: IPv4 header checksum"},
	DropFragment:   {"rx_dropped_fragment", "dropped: IPv4 fragment"},
	DropAddr:       {"rx_dropped_addr", "dropped: destination IP address is not ours"},
	DropProto:      {"rx_dropped_protocol", "dropped: IP protocol"},
	DropPort:       {"rx_dropped_udp_port", "dropped: UDP port"},
	DropARP:        {"rx_dropped_arp", "dropped: malformed ARP packet"},
	DropND:         {"rx_dropped_nd", "dropped: malformed neighbour discovery message"},
	DropICMP:       {"rx_dropped_icmp", "dropped: ICMP message"},
	DropConflict:   {"rx_dropped_conflict", "dropped: another station uses our address"},
}
