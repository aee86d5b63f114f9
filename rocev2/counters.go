package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// Counters are the NIC's own counters beside those of the stack. Those of the queue pairs are embedded.
type Counters struct {
	qp.Counters

	SentPkts         uint64 // RoCE packets built
	RcvdPkts         uint64 // RoCE packets with a valid ICRC
	LinkDowned       uint64
	RPCNPHandled     uint64
	RPCNPIgnored     uint64
	NPCNPSent        uint64
	NPECNMarked      uint64 // RoCE packets received with congestion experienced
	PortXmitDiscards uint64 // frames not sent because the link was down
	MemoryFaults     uint64 // failed accesses to a client's memory, which has gone
	RKeyGuesses      uint64 // queue pairs broken because their peers guessed keys
	MRCAttrErrors    uint64 // refused changes of attributes of MRC
	TxDroppedNoPath  uint64 // no path, or no such address handle
	TxDroppedMTU     uint64 // longer than the link's MTU

	xmit, rcv traffic
	drops     [numRxReasons]uint64
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

// countTx counts a sent frame of segs datagrams.
func (c *Counters) countTx(f *link.Frame, segs int) {
	c.xmit.count(f.Bufs[0][0]&1 != 0, segs, f.Len+(segs-1)*f.HdrLen)
}

// countPacket counts a RoCE packet built.
func (c *Counters) countPacket(op bth.Opcode) {
	c.SentPkts++
	if op.IsCNP() {
		c.NPCNPSent++
	}
}

// RxDropped returns the number of dropped received frames and packets.
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

// CounterSnapshot returns the NIC's counters in a fixed order: those of rxe and mlx5 in hw_counters, those of the port
// in counters, our own, and those of the GSI.
func (n *NIC) CounterSnapshot() []Counter {
	s := make([]Counter, 0, 128)
	s = n.ctr.appendRxe(s)
	s = n.ctr.appendMlx5(s)
	s = n.appendPort(s)
	for r, v := range n.ctr.drops {
		if name := rxReason(r).describe().Counter; name != "" {
			s = append(s, Counter{name, v})
		}
	}
	if g := n.gsi.agent; g != nil {
		s = g.AppendCounters(s)
	}
	return s
}

// Distributions returns a copy of the distributions of times and degrees, nil if the NIC does not keep them.
func (n *NIC) Distributions() *qp.Distributions {
	if n.ctr.Distributions == nil {
		return nil
	}
	return n.ctr.Distributions.Clone()
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

// appendMlx5 omits duplicate_request, which rxe has too.
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

// appendPort gives data in words of four bytes (IBTA vol.1 16.1.4.5).
func (n *NIC) appendPort(s []Counter) []Counter {
	c, net := &n.ctr, &n.net.Counters
	malformed := c.drops[stack.DropShort] + c.drops[stack.DropIPHeader] + c.drops[stack.DropIPChecksum] +
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
		Counter{"address_conflicts", net.AddrConflicts},
		Counter{"memory_faults", c.MemoryFaults},
		Counter{"rkey_guess_errors", c.RKeyGuesses},
		Counter{"mrc_attr_errors", c.MRCAttrErrors},
		Counter{"tx_dropped_no_path", c.TxDroppedNoPath},
		Counter{"tx_dropped_mtu", c.TxDroppedMTU},
		Counter{"tx_dropped_unreachable", net.TxDroppedUnreachable},
		Counter{"tx_dropped_hold", net.TxDroppedHold},
		Counter{"tx_dropped_control", net.TxDroppedControl},
	)
}
