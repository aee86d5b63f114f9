package rocev2

import (
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// A queue pair whose memory is not there yet answers a packet with qp.Later. The packet and
// those behind it are kept, in their order, until its memory is there (resume). What finds no room counts as lost
// on the way, and comes again.
const (
	maxKeptQP  = 64   // packets of a queue pair
	maxKeptNIC = 4096 // packets of all, 16 MiB
)

type keptPacket struct {
	p    bth.Packet
	meta qp.RxMeta
}

// keep stores a packet, of which nothing is the NIC's to keep, for q.
func (n *NIC) keep(q *QueuePair, p *bth.Packet, m *qp.RxMeta) rxReason {
	if len(q.kept) >= maxKeptQP || n.net.rx.kept >= maxKeptNIC {
		return rxNoRoom
	}
	k := keptPacket{*p, *m}
	k.p.Payload, k.meta.GRH = slices.Clone(p.Payload), slices.Clone(m.GRH)
	q.kept = append(q.kept, k)
	n.net.rx.kept++
	return rxOK
}

// resume tells that memory is there which q had to wait for: it goes on where it stopped.
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
	n.settle(q)
}

// forgetKept ends the keeping of the first packets of q.
func (n *NIC) forgetKept(q *QueuePair, count int) {
	n.net.rx.kept -= count
	if q.kept = q.kept[count:]; len(q.kept) == 0 {
		q.kept = nil
	}
}

// judge follows the verdict of q on a packet.
func (n *NIC) judge(now mono.Time, q *QueuePair, p *bth.Packet, d qp.Drop) rxReason {
	if d == qp.DropAccess {
		n.refused(now, q)
	}
	if d != qp.Accepted {
		return rxCore + rxReason(d)
	}
	if p.Opcode.IsResponse() && q.path.nb != nil {
		q.path.nb.confirm(now)
	}
	return rxOK
}
