package ucma

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// membership is the membership of an identifier in a group, made by rdma_join_multicast. The server's lock guards it.
type membership struct {
	num      uint32
	uid      uint64
	gid      inet.GID
	joined   bool // the NIC is in the group; a pure sender need not be
	reported uint32
}

func (c *device) joinIPMcast(q *request, r *rdmacm.JoinIPMcast) error {
	return c.join(q, r.ID, r.UID, r.Addr[:], rdmacm.JoinFullMember)
}

func (c *device) joinMcast(q *request, r *rdmacm.JoinMcast) error {
	if int(r.AddrSize) > len(r.Addr) {
		return unix.EINVAL
	}
	return c.join(q, r.ID, r.UID, r.Addr[:r.AddrSize], r.JoinFlags)
}

// join makes an identifier that is bound to a NIC a member of a group. MULTICAST_JOIN follows. The group's GID is its
// IP address, as in Linux for RoCEv2.
func (c *device) join(q *request, num uint32, uid uint64, sockaddr []byte, flags uint16) error {
	dst, err := parseSockaddr(sockaddr)
	if err != nil {
		return err
	}
	i, err := c.find(num)
	switch {
	case err != nil:
		return err
	case i.nic == nil, i.qpType != qpUD, flags > rdmacm.JoinSendOnly, !dst.Addr().IsMulticast(), dst.Addr().Is4() != i.route.SGID.Addr().Is4():
		return unix.EINVAL
	}
	m := &membership{uid: uid, gid: inet.GIDOf(dst.Addr()), joined: flags == rdmacm.JoinFullMember}
	for _, o := range i.groups {
		if o.gid == m.gid {
			return unix.EADDRINUSE
		}
	}
	if !i.owner.Take(quota.Groups, 1) {
		return unix.ENOMEM
	}
	if m.joined {
		if err := i.nic.do(func(now mono.Time, core *rocev2.NIC) error { return core.JoinGroup(now, m.gid) }); err != nil {
			i.owner.Add(quota.Groups, -1)
			return err
		}
	}
	c.srv.lastGroup++
	m.num = c.srv.lastGroup
	i.groups = append(i.groups, m)
	e := i.emit(rdmacm.EventMulticastJoin, 0)
	e.member, e.resp.UID, e.resp.ID = m, uid, m.num
	route := i.route
	route.DGID, route.HopLimit, route.TrafficClass = m.gid, 1, i.tos
	if i.qkey == 0 {
		i.setQKey(0)
	}
	e.put(rdmacm.UDParam{QPNum: groupQPN, QKey: i.qkey, AHAttr: ahAttr(&route, i.sgid)})
	q.resp = rdmacm.CreateIDResp{ID: m.num}
	return nil
}

// groupQPN is the destination queue pair number of multicast packets.
const groupQPN = 0xffffff

// leaveMcast ends a membership and drops its waiting events.
func (c *device) leaveMcast(q *request, r *rdmacm.DestroyID) error {
	for _, i := range c.srv.ids {
		for at, m := range i.groups {
			if m.num != r.ID || i.ctx != c {
				continue
			}
			i.groups = append(i.groups[:at:at], i.groups[at+1:]...)
			i.leave(m)
			q.resp = rdmacm.DestroyIDResp{EventsReported: m.reported}
			return nil
		}
	}
	return unix.ENOENT
}

// leave removes the NIC from the group, and drops the events of the membership.
func (i *id) leave(m *membership) {
	kept := i.ctx.events[:0:0]
	for _, e := range i.ctx.events {
		if e.member != m {
			kept = append(kept, e)
		}
	}
	i.ctx.events = kept
	i.owner.Add(quota.Groups, -1)
	if m.joined {
		_ = i.nic.do(func(_ mono.Time, core *rocev2.NIC) error { core.LeaveGroup(m.gid); return nil })
	}
}

// leaveAll ends all memberships of an identifier.
func (i *id) leaveAll() {
	for _, m := range i.groups {
		i.leave(m)
	}
	i.groups = nil
}
