package rocev2

import (
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Multicast of datagrams (IBTA vol.1 10.5; annex A17.4.4): a group is an IP multicast address,
// as a GID IPv4-mapped or IPv6, as Linux's rdma_cm has it. Its packets go to queue pair
// 0xffffff and are given to each UD queue pair that is attached to the group, on the sending
// NIC too, but not to the one that has sent them.

// multicastQPN is the destination of multicast packets (IBTA vol.1 3.5.3).
const multicastQPN bth.QPN = 0xffffff

// Bounds of groups, which QUERY_DEVICE tells.
const (
	MaxGroups       = 1024
	MaxGroupMembers = 256
)

// group is an IP multicast group that the NIC is in.
type group struct {
	gid   GID
	qps   []*QueuePair
	joins int // by JoinGroup
	// reports of the membership that are still to be sent unasked, and when the next one is due.
	reports int
	due     mono.Time
}

func (g *group) used() bool { return g.joins+len(g.qps) > 0 }

// multicast are the groups of a NIC.
type multicast struct {
	groups map[GID]*group
	list   []*group    // in the order of their coming
	macs   map[MAC]int // of how many groups
	next   mono.Time   // the first report that is due
	// A frame to a group comes back to the other queue pairs here: it waits until it has left.
	own     []byte
	ownSize int        // segment size
	ownFrom *QueuePair // has sent it
	sender  *QueuePair // while it is given out
}

func (m *multicast) init() { m.groups, m.macs, m.next = map[GID]*group{}, map[MAC]int{}, mono.Never }

// multicast reports whether g is the address of a group.
func (g *GID) multicast() bool { return g[0] == 0xff || g.is4() && g[12]>>4 == 0xe }

// groupMAC is the Ethernet address of a group (RFC 1112 6.4, RFC 2464 section 7).
func groupMAC(g *GID) MAC {
	if g.is4() {
		return MAC{1, 0, 0x5e, g[13] & 0x7f, g[14], g[15]}
	}
	return MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// AttachGroup makes q receive what is sent to a group (IBTA vol.1 11.3.1.1). Being attached
// already is no error.
func (n *NIC) AttachGroup(now mono.Time, q *QueuePair, gid GID) error {
	const verb = "attach_mcast"
	if !n.ownsQP(q) || q.typ != qp.UD {
		return fail(verb, "qp", ErrInvalid)
	}
	g, err := n.enter(verb, gid)
	if err != nil || slices.Contains(g.qps, q) {
		return err
	}
	if len(g.qps) == MaxGroupMembers {
		return fail(verb, "queue pairs of the group", ErrLimit)
	}
	g.qps = append(g.qps, q)
	n.entered(now, g)
	return nil
}

// DetachGroup ends what AttachGroup has begun; it is an error if q is not attached.
func (n *NIC) DetachGroup(q *QueuePair, gid GID) error {
	g := n.net.mcast.groups[gid]
	i := -1
	if g != nil {
		i = slices.Index(g.qps, q)
	}
	if i < 0 {
		return fail("detach_mcast", "gid", ErrInvalid)
	}
	g.qps = slices.Delete(g.qps, i, i+1)
	n.leaveUnused(g)
	return nil
}

// JoinGroup makes the NIC a member of a group for who sends to it or attaches queue pairs.
// LeaveGroup is to be called as often.
func (n *NIC) JoinGroup(now mono.Time, gid GID) error {
	g, err := n.enter("join_mcast", gid)
	if err != nil {
		return err
	}
	g.joins++
	n.entered(now, g)
	return nil
}

// LeaveGroup ends what JoinGroup has begun.
func (n *NIC) LeaveGroup(gid GID) {
	if g := n.net.mcast.groups[gid]; g != nil && g.joins > 0 {
		g.joins--
		n.leaveUnused(g)
	}
}

// enter returns the group of an address, which may be new and unused.
func (n *NIC) enter(verb string, gid GID) (*group, error) {
	m := &n.net.mcast
	switch {
	case n.withoutGroups():
		return nil, failWith(verb, "gid", ErrInvalid, ErrNoGroups)
	case !gid.multicast():
		return nil, fail(verb, "gid", ErrInvalid)
	case m.groups[gid] != nil:
		return m.groups[gid], nil
	case len(m.groups) == MaxGroups:
		return nil, fail(verb, "groups", ErrLimit)
	case n.cfg.Group == nil:
	default:
		if err := n.cfg.Group(gid, true); err != nil {
			return nil, failWith(verb, "gid", ErrInvalid, err)
		}
	}
	return &group{gid: gid}, nil
}

// withoutGroups reports whether somebody else owns the link and cannot be asked to join groups.
func (n *NIC) withoutGroups() bool { return n.cfg.Shared && n.cfg.Group == nil }

// entered makes a new member of the group known to the link.
func (n *NIC) entered(now mono.Time, g *group) {
	m := &n.net.mcast
	if m.groups[g.gid] != nil {
		return
	}
	m.groups[g.gid] = g
	m.list = append(m.list, g)
	m.macs[groupMAC(&g.gid)]++
	if n.cfg.Group == nil { // else the kernel reports
		g.reports, g.due = robustness, now
		m.next = m.next.Min(now)
	}
}

// leaveUnused leaves a group that nobody uses any more.
func (n *NIC) leaveUnused(g *group) {
	if g.used() {
		return
	}
	m := &n.net.mcast
	delete(m.groups, g.gid)
	m.list = slices.DeleteFunc(m.list, func(o *group) bool { return o == g })
	mac := groupMAC(&g.gid)
	if m.macs[mac]--; m.macs[mac] == 0 {
		delete(m.macs, mac)
	}
	if n.cfg.Group == nil {
		n.sendReport(&g.gid, true)
		return
	}
	_ = n.cfg.Group(g.gid, false) // what cannot be left is not there
}

// detachAll takes a queue pair that ends out of its groups.
func (n *NIC) detachAll(q *QueuePair) {
	if n.net.mcast.ownFrom == q {
		n.net.mcast.ownFrom = nil
	}
	if q.typ != qp.UD {
		return
	}
	for _, g := range slices.Clone(n.net.mcast.list) {
		if i := slices.Index(g.qps, q); i >= 0 {
			g.qps = slices.Delete(g.qps, i, i+1)
			n.leaveUnused(g)
		}
	}
}

// groupPath returns the path to a group: its Ethernet address needs no resolution.
func (n *NIC) groupPath(av AddressVector) (path, error) {
	from := n.net.addrs.at(av.SGIDIndex)
	switch {
	case from == nil:
		return path{}, ErrGIDIndex
	case from.GID.is4() != av.DGID.is4():
		return path{}, ErrFamily
	case n.withoutGroups():
		return path{}, ErrNoGroups
	}
	p := path{src: from.GID, dst: av.DGID, flow: av.FlowLabel & 0xfffff, group: true}
	av.HopLimit = max(av.HopLimit, 1)
	p.makeHeaders(&n.cfg.MAC, newTag(from.VLAN, av.Priority()), &av)
	mac := groupMAC(&p.dst)
	copy(p.hdr[:], mac[:])
	return p, nil
}

// keepOwn keeps a copy of a frame to a group for the other queue pairs of this NIC.
func (n *NIC) keepOwn(f *Frame) {
	m, b := &n.net.mcast, &n.net.tx
	if g := m.groups[b.path.dst]; g == nil || len(g.qps) == 0 {
		return
	}
	m.own, m.ownSize, m.ownFrom = f.AppendTo(m.own[:0]), f.SegSize, b.queue
}

// deliverOwn gives the frame to a group out that has just left.
func (n *NIC) deliverOwn(now mono.Time) {
	m := &n.net.mcast
	if len(m.own) == 0 {
		return
	}
	frame := m.own
	m.own, m.sender, m.ownFrom = m.own[:0], m.ownFrom, nil
	n.Receive(now, frame, m.ownSize)
	m.sender = nil
}

// receiveGroup gives a packet to the queue pairs of the group that it was sent to. It
// returns why the last one has not taken it, if none has.
func (n *NIC) receiveGroup(now mono.Time, l3 []byte, meta qp.RxMeta) rxReason {
	rx := &n.net.rx
	g := n.net.mcast.groups[rx.ip.dst]
	if g == nil || rx.pkt.DestQP != multicastQPN {
		return rxQPN
	}
	meta.GRH = rx.makeGRH(l3)
	result, taken := rxQPN, false
	for _, q := range g.qps {
		switch {
		case q == n.net.mcast.sender:
			taken = true // it is not for the sender
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
		n.settle(q)
	}
	if taken {
		return rxOK
	}
	return result
}
