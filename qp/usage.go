package qp

import "roced.io/roced/bth"

// Operations is the number of operations, which are numbered from 0 on.
const Operations = int(numOperations)

// Usage counts the messages of some queue pairs by Operation, for example those of one program.
type Usage struct {
	Requested [Operations]Work // successful work requests of the queue pairs
	Served    [Operations]Work // requests of their peers
}

// Work counts messages and the bytes of their payload.
type Work struct{ Messages, Bytes uint64 }

func (w *Work) add(o Operation, n uint32) {
	switch o {
	case OpAtomic:
		n = atomicWriteLen // the length of all operands
	case OpFlush:
		n = 0 // n bytes are flushed, not sent
	}
	w.Messages++
	w.Bytes += uint64(n)
}

// countRequest counts a successful work request. Local ones move no data.
func (q *QP) countRequest(s *slot) {
	if q.usage != nil && s.kind != kindLocal {
		o := operations[workOps[s.wqe.Opcode].completion]
		q.usage.Requested[o].add(o, s.wqe.Length)
	}
}

// countServed counts a request of the peer with n bytes.
func (q *QP) countServed(op bth.Opcode, n uint32) {
	if q.usage == nil {
		return
	}
	o := OpAtomic
	switch {
	case op.IsSend():
		o = OpSend
	case op.IsWrite():
		o = OpWrite
	case op.IsReadRequest():
		o = OpRead
	case op.IsFlush():
		o = OpFlush
	}
	q.usage.Served[o].add(o, n)
}
