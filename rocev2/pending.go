package rocev2

import (
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// A queue pair whose memory is not available yet answers a packet with qp.Later. The NIC keeps the packet and those
// behind it, in order, until the memory is available (resume). It drops packets without room; the peer retransmits
// them.
const (
	maxPendingQP  = 64   // packets of a queue pair
	maxPendingNIC = 4096 // packets of all queue pairs, 16 MiB
)

type pendingPacket struct {
	p    bth.Packet
	meta qp.RxMeta
}

// hold stores a copy of a packet for q.
func (n *NIC) hold(q *QueuePair, p *bth.Packet, m *qp.RxMeta) rxReason {
	if len(q.pending) >= maxPendingQP || n.rx.pending >= maxPendingNIC {
		return rxNoRoom
	}
	data, ok := n.append(nil, p.Payload)
	if !ok {
		return rxGone
	}
	k := pendingPacket{*p, *m}
	k.p.Payload, k.meta.GRH = data, slices.Clone(m.GRH)
	q.pending = append(q.pending, k)
	n.rx.pending++
	return rxOK
}

// resume continues q after memory that it waited for has become available.
func (n *NIC) resume(now mono.Time, q *QueuePair) {
	q.machine().Resume(now)
	done := 0
	for ; done < len(q.pending) && !q.defers.full(); done++ {
		k := &q.pending[done]
		d := q.machine().Receive(now, &k.p, k.meta)
		if d == qp.Later {
			break
		}
		if r := n.judge(now, q, &k.p, d); r != rxOK {
			n.ctr.drops[r]++
		}
	}
	n.dropPending(q, done)
	n.sch.settle(q)
}

// dropPending drops the first packets of q.
func (n *NIC) dropPending(q *QueuePair, count int) {
	n.rx.pending -= count
	if q.pending = q.pending[count:]; len(q.pending) == 0 {
		q.pending = nil
	}
}
