package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
)

// minRoCE is the shortest UDP payload of RoCEv2: a BTH and an ICRC.
const minRoCE = bth.BTHLen + bth.ICRCLen

// setLengths makes the IP header l3 and the UDP header udp those of a datagram
// with n bytes of UDP payload and, for IPv4, the given ID. The IPv4 header
// checksum is left as it is: the ICRC masks it.
func setLengths(l3, udp []byte, id uint16, n int) {
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen+n))
	if l3[0]>>4 == 6 {
		binary.BigEndian.PutUint16(l3[4:], uint16(udpLen+n))
		return
	}
	binary.BigEndian.PutUint16(l3[2:], uint16(len(l3)+udpLen+n))
	binary.BigEndian.PutUint16(l3[4:], id)
}

// flowSourcePort is the UDP source port of a flow label of 20 bits; it gives
// switches entropy for ECMP (IBTA annex A17.3.2; Linux rdma_flow_label_to_udp_sport).
func flowSourcePort(label uint32) uint16 {
	label &= 0xfffff
	return uint16(0xc000 | (label&0x3fff ^ label>>14))
}

// qpnFlowLabel is the flow label of a connection whose address vector has none
// (Linux rdma_calc_flow_label); it is the same in both directions.
func qpnFlowLabel(local, remote bth.QPN) uint32 {
	v := uint64(local) * uint64(remote)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v & 0xfffff)
}
