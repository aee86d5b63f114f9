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

// keep stores a copy of a packet for q.
func (n *NIC) keep(q *QueuePair, p *bth.Packet, m *qp.RxMeta) rxReason {
	if len(q.kept) >= maxPendingQP || n.rx.kept >= maxPendingNIC {
		return rxNoRoom
	}
	data, ok := n.append(nil, p.Payload)
	if !ok {
		return rxGone
	}
	k := pendingPacket{*p, *m}
	k.p.Payload, k.meta.GRH = data, slices.Clone(m.GRH)
	q.kept = append(q.kept, k)
	n.rx.kept++
	return rxOK
}

// resume continues q after memory that it waited for has become available.
func (n *NIC) resume(now mono.Time, q *QueuePair) {
	q.machine().Resume(now)
	done := 0
	for ; done < len(q.kept) && !q.defers.full(); done++ {
		k := &q.kept[done]
		d := q.machine().Receive(now, &k.p, k.meta)
		if d == qp.Later {
			break
		}
		if r := n.judge(now, q, &k.p, d); r != rxOK {
			n.ctr.drops[r]++
		}
	}
	n.forgetKept(q, done)
	n.sch.settle(q)
}

// forgetKept drops the first packets of q.
func (n *NIC) forgetKept(q *QueuePair, count int) {
	n.rx.kept -= count
	if q.kept = q.kept[count:]; len(q.kept) == 0 {
		q.kept = nil
	}
}
