package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/qp"
)

// Counters count what a NIC does. Those of the queue pairs are embedded.
type Counters struct {
	qp.Counters

	SentPkts     uint64 // RoCE packets built
	RcvdPkts     uint64 // RoCE packets with a valid ICRC
	LinkDowned   uint64
	RPCNPHandled uint64
	RPCNPIgnored uint64
	NPCNPSent    uint64
	NPECNMarked  uint64 // RoCE packets received with congestion experienced

	xmit, rcv        traffic
	PortXmitDiscards uint64 // frames not sent because the link was down
	AddrConflicts    uint64 // others seen with one of our addresses
	MemoryFaults     uint64 // accesses to a client's memory that failed: it is not there any more

	RKeyGuesses          uint64 // queue pairs broken because their peers guessed at keys
	TxDroppedNoPath      uint64 // no path, or no such address handle
	TxDroppedMTU         uint64 // longer than the link's MTU
	TxDroppedUnreachable uint64 // the neighbour does not answer
	TxDroppedHold        uint64 // too many wait for a neighbour
	TxDroppedControl     uint64 // ARP, ND or ICMP: too many wait, or too long

	drops [numRxReasons]uint64
}

// traffic counts the frames of one direction, super-frames by their datagrams.
type traffic struct{ bytes, unicast, multicast uint64 }

func (t *traffic) count(group bool, frames int, bytes int) {
	t.bytes += uint64(bytes)
	if group {
		t.multicast += uint64(frames)
	} else {
		t.unicast += uint64(frames)
	}
}

// countRx counts a received frame or a datagram of a super-frame.
func (c *Counters) countRx(frame []byte, size int) {
	c.rcv.count(len(frame) > 0 && frame[0]&1 != 0, 1, size)
}

// countTx counts a frame sent, of segs datagrams.
func (c *Counters) countTx(f *Frame, segs int) {
	c.xmit.count(f.Bufs[0][0]&1 != 0, segs, f.Len+(segs-1)*f.HdrLen)
}

// countPacket counts a RoCE packet built.
func (c *Counters) countPacket(op bth.Opcode) {
	c.SentPkts++
	if op.IsCNP() {
		c.NPCNPSent++
	}
}

// RxDropped returns the number of received frames and packets that were refused.
func (c *Counters) RxDropped() uint64 {
	n := uint64(0)
	for _, v := range c.drops {
		n += v
	}
	return n
}

// Counter is one counter under the name that Linux gives it, or our own.
type Counter struct {
	Name  string
	Value uint64
}

// CounterSnapshot returns the NIC's counters, and those of its GSI, in a fixed order.
func (n *NIC) CounterSnapshot() []Counter {
	s := n.ctr.Snapshot()
	if g := n.net.gsi.agent; g != nil {
		s = g.AppendCounters(s)
	}
	return s
}

// Distributions returns a copy of those of times and degrees; nil if they are not kept.
func (n *NIC) Distributions() *qp.Distributions {
	if n.ctr.Distributions == nil {
		return nil
	}
	return n.ctr.Distributions.Clone()
}

// Snapshot returns the counters: those of rxe and mlx5 in hw_counters, those of
// the port in counters, and our own.
func (c *Counters) Snapshot() []Counter {
	s := make([]Counter, 0, 128)
	s = c.appendRxe(s)
	s = c.appendMlx5(s)
	s = c.appendPort(s)
	return c.appendDrops(s)
}

func (c *Counters) appendRxe(s []Counter) []Counter {
	return append(s,
		Counter{"sent_pkts", c.SentPkts},
		Counter{"rcvd_pkts", c.RcvdPkts},
		Counter{"duplicate_request", c.DuplicateRequest},
		Counter{"out_of_seq_request", c.OutOfSeqRequest},
		Counter{"rcvd_rnr_err", c.RcvdRNRErr},
		Counter{"send_rnr_err", c.SendRNRErr},
		Counter{"rcvd_seq_err", c.RcvdSeqErr},
		Counter{"ack_deferred", c.AckDeferred},
		Counter{"retry_exceeded_err", c.RetryExceededErr},
		Counter{"retry_rnr_exceeded_err", c.RetryRNRExceededErr},
		Counter{"completer_retry_err", c.CompleterRetry},
		Counter{"send_err", c.SendErr},
		Counter{"link_downed", c.LinkDowned},
		Counter{"rdma_sends", c.RDMASends},
		Counter{"rdma_recvs", c.RDMARecvs},
	)
}

// appendMlx5 leaves out duplicate_request, which rxe has too.
func (c *Counters) appendMlx5(s []Counter) []Counter {
	return append(s,
		Counter{"rx_write_requests", c.RxWriteRequests},
		Counter{"rx_read_requests", c.RxReadRequests},
		Counter{"rx_atomic_requests", c.RxAtomicRequests},
		Counter{"out_of_buffer", c.OutOfBuffer},
		Counter{"out_of_sequence", c.OutOfSequence},
		Counter{"rnr_nak_retry_err", c.RcvdRNRErr},
		Counter{"packet_seq_err", c.PacketSeqErr},
		Counter{"implied_nak_seq_err", c.ImpliedNAKSeqErr},
		Counter{"local_ack_timeout_err", c.LocalAckTimeoutErr},
		Counter{"resp_local_length_error", c.RespLocalLengthError},
		Counter{"resp_cqe_error", c.RespCQEError},
		Counter{"req_cqe_error", c.ReqCQEError},
		Counter{"req_remote_invalid_request", c.ReqRemoteInvalidRequest},
		Counter{"req_remote_access_errors", c.ReqRemoteAccessErrors},
		Counter{"resp_remote_access_errors", c.RespRemoteAccessErrors},
		Counter{"resp_cqe_flush_error", c.RespCQEFlushError},
		Counter{"req_cqe_flush_error", c.ReqCQEFlushError},
		Counter{"rx_icrc_encapsulated", c.drops[rxICRC]},
		Counter{"rp_cnp_handled", c.RPCNPHandled},
		Counter{"rp_cnp_ignored", c.RPCNPIgnored},
		Counter{"np_cnp_sent", c.NPCNPSent},
		Counter{"np_ecn_marked_roce_packets", c.NPECNMarked},
		Counter{"resp_remote_invalid_request", c.RespRemoteInvalidRequest},
		Counter{"retransmitted_packets", c.RetransmittedPackets},
		Counter{"uc_dropped_messages", c.UCDroppedMessages},
		Counter{"ud_dropped", c.UDDropped},
	)
}

// appendPort has data in words of four bytes (IBTA vol.1 16.1.4.5).
func (c *Counters) appendPort(s []Counter) []Counter {
	malformed := c.drops[rxShort] + c.drops[rxIPHeader] + c.drops[rxIPChecksum] +
		c.drops[rxICRC] + c.drops[rxTransport]
	return append(s,
		Counter{"port_xmit_data", c.xmit.bytes / 4},
		Counter{"port_rcv_data", c.rcv.bytes / 4},
		Counter{"port_xmit_packets", c.xmit.unicast + c.xmit.multicast},
		Counter{"port_rcv_packets", c.rcv.unicast + c.rcv.multicast},
		Counter{"unicast_xmit_packets", c.xmit.unicast},
		Counter{"unicast_rcv_packets", c.rcv.unicast},
		Counter{"multicast_xmit_packets", c.xmit.multicast},
		Counter{"multicast_rcv_packets", c.rcv.multicast},
		Counter{"port_rcv_errors", malformed},
		Counter{"port_xmit_discards", c.PortXmitDiscards},
		Counter{"address_conflicts", c.AddrConflicts},
		Counter{"memory_faults", c.MemoryFaults},
		Counter{"rkey_guess_errors", c.RKeyGuesses},
		Counter{"tx_dropped_no_path", c.TxDroppedNoPath},
		Counter{"tx_dropped_mtu", c.TxDroppedMTU},
		Counter{"tx_dropped_unreachable", c.TxDroppedUnreachable},
		Counter{"tx_dropped_hold", c.TxDroppedHold},
		Counter{"tx_dropped_control", c.TxDroppedControl},
	)
}

// dropNames name the reasons in Snapshot; those without a name are left out.
var dropNames = [numRxReasons]string{
	rxShort:       "rx_dropped_short",
	rxMAC:         "rx_dropped_mac",
	rxEtherType:   "rx_dropped_ethertype",
	rxVLAN:        "rx_dropped_vlan",
	rxIPHeader:    "rx_dropped_ip_header",
	rxIPChecksum:  "rx_dropped_ip_checksum",
	rxFragment:    "rx_dropped_fragment",
	rxAddr:        "rx_dropped_addr",
	rxProto:       "rx_dropped_protocol",
	rxPort:        "rx_dropped_udp_port",
	rxARP:         "rx_dropped_arp",
	rxND:          "rx_dropped_nd",
	rxICMP:        "rx_dropped_icmp",
	rxConflict:    "rx_dropped_conflict",
	rxICRC:        "rx_dropped_icrc",
	rxTransport:   "rx_dropped_transport",
	rxQPN:         "rx_dropped_qpn",
	rxQP0:         "rx_dropped_qp0",
	rxMAD:         "rx_dropped_mad",
	rxPKey:        "rx_dropped_pkey",
	rxPeer:        "rx_dropped_peer",
	rxUnconnected: "rx_dropped_unconnected",
	rxCNP:         "rx_dropped_cnp",
	rxNoRoom:      "rx_dropped_no_room",

	rxCore + rxReason(qp.DropState):      "rx_dropped_qp_state",
	rxCore + rxReason(qp.DropOpcode):     "rx_dropped_opcode",
	rxCore + rxReason(qp.DropDuplicate):  "rx_dropped_duplicate",
	rxCore + rxReason(qp.DropOutOfOrder): "rx_dropped_out_of_order",
	rxCore + rxReason(qp.DropNoRecv):     "rx_dropped_no_recv",
	rxCore + rxReason(qp.DropQKey):       "rx_dropped_qkey",
	rxCore + rxReason(qp.DropAccess):     "rx_dropped_access",
	rxCore + rxReason(qp.DropLength):     "rx_dropped_length",
	rxCore + rxReason(qp.DropStaleAck):   "rx_dropped_stale_ack",
	rxCore + rxReason(qp.DropProfile):    "rx_dropped_profile",
}

func (c *Counters) appendDrops(s []Counter) []Counter {
	for r, name := range dropNames {
		if name != "" {
			s = append(s, Counter{name, c.drops[r]})
		}
	}
	return s
}
