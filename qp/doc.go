// Package qp implements the transport: the queue pair state machines of RC, UC and UD, and of the extended transports.
//
// A QP does no I/O. It reads no clock, takes no lock, starts no goroutine and allocates no memory per packet. Its
// caller, the NIC, drives it:
//
//	q := qp.New(qp.Config{Type: qp.RC, QPN: qpn, Host: host, ...})
//	q.Modify(now, attr, mask) // RESET -> INIT -> RTR -> RTS
//
//	for {
//		// 1. Inputs, each with the current time.
//		switch e := nextEvent(); {
//		case e.packet != nil:
//			if q.Receive(now, e.packet, e.meta) == qp.Later {
//				deferred = append(deferred, e)
//			}
//		case e.doorbell:
//			q.Doorbell(now) // or q.RecvPosted(now)
//		case e.cnp:
//			q.OnCNP(now)
//		case e.memoryAvailable:
//			q.Resume(now)
//			deferred = receiveAgain(deferred)
//		case now >= q.NextTimeout():
//			q.OnTimeout(now)
//		}
//		// 2. Packets.
//		for budget > 0 && q.PollTransmit(now, &t) {
//			send(&t)
//		}
//		// 3. The packets have left.
//		q.Flushed(now)
//		// 4. Sleep until the next input or deadline.
//		sleepUntil(q.NextTimeout())
//	}
//
// The caller has these obligations:
//
//  1. Time never goes back from one call to the next.
//  2. One goroutine at a time calls a QP. No method of Host or Tracer calls the QP, except that
//     CompleteRecv may call Woken.
//  3. The NIC has checked each packet: ICRC, P_Key and, for connected services, the peer's address.
//  4. The packet of Receive and its payload belong to the caller. The QP keeps no reference to them.
//  5. If Receive returns Later, nothing has changed. The caller keeps a copy of the packet and of all packets behind
//     it. After Resume it calls Receive with them again, in the same order.
//  6. After each input the caller polls until PollTransmit returns false, or later if its budget is used up. Runnable
//     reports whether polling is worthwhile.
//  7. A Transmit is valid until Flushed. Its payload may be a view of memory that programs change. The caller copies
//     the payload before it computes the ICRC if Snapshot is set.
//  8. The caller calls Flushed after the polled packets have left: with it UC and UD requests complete.
//  9. NextTimeout may change with every input and every poll. The caller calls OnTimeout when that instant has passed,
//     and polls.
//  10. Completions and events come through Host, during an input or PollTransmit. No call polls for them.
//     CompleteRecv calls Woken if the completion wakes a program.
//  11. The NIC calls RecvPosted and Doorbell after work requests have been posted. The QP takes them through Host when
//     it needs them.
//  12. The NIC calls Free for a QP that is not used again if its plug-ins share memory.
//
// The requester sends work requests in packets and processes acknowledgements and responses (completer.go). Its
// senderPolicy holds the rules in which standard RC and the extended transports differ. The responder executes the
// peer's requests. Its admission decides which packets it takes, and in which order. Both share the state and the
// attributes of the queue pair.
package qp
