package rocev2

import (
	"errors"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// Multicast of datagrams (IBTA vol.1 10.5; annex A17.4.4): a group is an IP multicast address, as a GID IPv4-mapped or
// IPv6, as in Linux's rdma_cm. Its packets go to queue pair 0xffffff and reach each UD queue pair that is attached to
// the group, on the sending NIC too. As with mlx4 and mlx5 these include the sender, unless it is created with
// IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: IPoIB drops "packets that the HCA has replicated" (ipoib_ib_handle_rx_wc), and rdma-core's
// mckey has an option against its own copies. rdma_rxe returns no copy to the sending host.

// multicastQPN is the destination of multicast packets (IBTA vol.1 3.5.3).
const multicastQPN bth.QPN = 0xffffff

// MaxGroupMembers bounds the queue pairs of a group, as QUERY_DEVICE reports.
const MaxGroupMembers = 256

// group is a multicast group that the NIC is a member of.
type group struct {
	gid   inet.GID
	qps   []*QueuePair
	joins int // by JoinGroup
}

// multicast holds the groups of a NIC.
type multicast struct {
	groups map[inet.GID]*group
	list   []*group // in the order of joining
	// A frame to a group returns to the queue pairs of this NIC. It waits until it has left.
	own     []byte
	ownSize int        // segment size
	ownFrom *QueuePair // sender
	sender  *QueuePair // during delivery
}

// AttachGroup makes q receive the packets of a group (IBTA vol.1 11.3.1.1). Attaching again is no error.
func (n *NIC) AttachGroup(now mono.Time, q *QueuePair, gid inet.GID) error {
	const verb = "attach_mcast"
	if !n.ownsQP(q) || q.typ != qp.UD {
		return fail(verb, "qp", ErrInvalid)
	}
	g, err := n.enter(now, verb, gid)
	if err != nil || slices.Contains(g.qps, q) {
		return err
	}
	if len(g.qps) == MaxGroupMembers {
		return fail(verb, "queue pairs of the group", ErrLimit)
	}
	g.qps = append(g.qps, q)
	return nil
}

// DetachGroup undoes AttachGroup. It is an error if q is not attached.
func (n *NIC) DetachGroup(q *QueuePair, gid inet.GID) error {
	if !n.detach(q, n.mcast.groups[gid]) {
		return fail("detach_mcast", "gid", ErrInvalid)
	}
	return nil
}

// detach removes q from a group and reports whether it was there.
func (n *NIC) detach(q *QueuePair, g *group) bool {
	if g == nil {
		return false
	}
	i := slices.Index(g.qps, q)
	if i < 0 {
		return false
	}
	g.qps = slices.Delete(g.qps, i, i+1)
	n.leaveUnused(g)
	return true
}

// JoinGroup makes the NIC a member of a group, for clients that send to it or attach queue pairs. The caller calls
// LeaveGroup as often.
func (n *NIC) JoinGroup(now mono.Time, gid inet.GID) error {
	g, err := n.enter(now, "join_mcast", gid)
	if err == nil {
		g.joins++
	}
	return err
}

// LeaveGroup undoes JoinGroup.
func (n *NIC) LeaveGroup(gid inet.GID) {
	if g := n.mcast.groups[gid]; g != nil && g.joins > 0 {
		g.joins--
		n.leaveUnused(g)
	}
}

// enter returns the group of an address. The NIC becomes a member if it is not.
func (n *NIC) enter(now mono.Time, verb string, gid inet.GID) (*group, error) {
	if g := n.mcast.groups[gid]; g != nil {
		return g, nil
	}
	switch err := n.net.Join(now, gid); {
	case errors.Is(err, stack.ErrGroups):
		return nil, fail(verb, "groups", ErrLimit)
	case err != nil:
		return nil, failWith(verb, "gid", ErrInvalid, err)
	}
	g := &group{gid: gid}
	n.mcast.groups[gid] = g
	n.mcast.list = append(n.mcast.list, g)
	return g, nil
}

// leaveUnused leaves a group without users.
func (n *NIC) leaveUnused(g *group) {
	if g.joins+len(g.qps) > 0 {
		return
	}
	delete(n.mcast.groups, g.gid)
	n.mcast.list = slices.DeleteFunc(n.mcast.list, func(o *group) bool { return o == g })
	n.net.Leave(g.gid)
}

// detachAll removes a queue pair from its groups.
func (n *NIC) detachAll(q *QueuePair) {
	if n.mcast.ownFrom == q {
		n.mcast.ownFrom = nil
	}
	if q.typ != qp.UD {
		return
	}
	for _, g := range slices.Clone(n.mcast.list) {
		n.detach(q, g)
	}
}

// keepOwn keeps a copy of a frame to a group for the queue pairs of this NIC.
func (n *NIC) keepOwn(f *link.Frame) {
	m, b := &n.mcast, &n.tx
	if g := m.groups[b.path.Dst]; g == nil || len(g.qps) == 0 {
		return
	}
	m.own, m.ownSize, m.ownFrom = f.AppendTo(m.own[:0]), f.SegSize, b.queue
}

// deliverOwn delivers the frame to a group that has just left.
func (n *NIC) deliverOwn(now mono.Time) {
	m := &n.mcast
	if len(m.own) == 0 {
		return
	}
	frame := m.own
	m.own, m.sender, m.ownFrom = m.own[:0], m.ownFrom, nil
	n.Receive(now, frame, m.ownSize)
	m.sender = nil
}

// receiveGroup delivers a packet to the queue pairs of its group. If none takes it, it returns the reason of the last
// one.
func (n *NIC) receiveGroup(now mono.Time, l3 []byte, meta qp.RxMeta) rxReason {
	rx := &n.rx
	g := n.mcast.groups[rx.in.Dst]
	if g == nil || rx.pkt.DestQP != multicastQPN {
		return rxQPN
	}
	meta.GRH = rx.makeGRH(l3)
	result, taken := rxQPN, false
	for _, q := range g.qps {
		switch {
		case q == n.mcast.sender && q.blockOwn:
			taken = true
			continue
		case !pkeyMatch(rx.pkt.PKey, q.pkey):
			result = rxPKey
			continue
		}
		if d := q.machine().Receive(now, &rx.pkt, meta); d != qp.Accepted {
			result = rxCore + rxReason(d)
			continue
		}
		taken = true
		n.sch.settle(q)
	}
	if taken {
		return rxOK
	}
	return result
}
