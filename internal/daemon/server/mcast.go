package server

import (
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// attachMcast attaches a queue pair to a multicast group. It ignores the group's LID, which is for InfiniBand only.
// The user's quota counts each group of a client once, for any number of attached queue pairs.
func (c *client) attachMcast(q *request) error {
	o, gid, err := c.member(q)
	if err != nil {
		return err
	}
	attached := slices.Contains(o.groups, gid)
	if !attached && !c.enterGroup(gid) {
		return unix.ENOMEM
	}
	err = c.do(func(now mono.Time, n *rocev2.NIC) error { return n.AttachGroup(now, o.q, gid) })
	switch {
	case attached:
	case err != nil:
		c.leaveGroup(gid)
	default:
		o.groups = append(o.groups, gid)
	}
	return err
}

func (c *client) detachMcast(q *request) error {
	o, gid, err := c.member(q)
	if err != nil {
		return err
	}
	if err := c.do(func(_ mono.Time, n *rocev2.NIC) error { return n.DetachGroup(o.q, gid) }); err != nil {
		return err
	}
	if i := slices.Index(o.groups, gid); i >= 0 {
		o.groups = slices.Delete(o.groups, i, i+1)
		c.leaveGroup(gid)
	}
	return nil
}

// member decodes a command that attaches or detaches a queue pair.
func (c *client) member(q *request) (*queuePair, inet.GID, error) {
	var in uverbs.AttachMcast
	if err := q.decode(&in); err != nil {
		return nil, inet.GID{}, err
	}
	o, err := c.qps.get(in.QPHandle)
	return o, in.GID, err
}

// enterGroup charges the client for a group unless the client is a member already.
func (c *client) enterGroup(gid inet.GID) bool {
	if c.groups[gid] == 0 && !c.account.Take(quota.Groups, 1) {
		return false
	}
	c.groups[gid]++
	return true
}

func (c *client) leaveGroup(gid inet.GID) {
	if c.groups[gid]--; c.groups[gid] == 0 {
		delete(c.groups, gid)
		c.account.Add(quota.Groups, -1)
	}
}
