package server

import (
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

func (c *client) attachMcast(q *request) error {
	return c.mcast(q, func(now mono.Time, n *rocev2.NIC, p *rocev2.QueuePair, gid rocev2.GID) error {
		return n.AttachGroup(now, p, gid)
	})
}

func (c *client) detachMcast(q *request) error {
	return c.mcast(q, func(_ mono.Time, n *rocev2.NIC, p *rocev2.QueuePair, gid rocev2.GID) error {
		return n.DetachGroup(p, gid)
	})
}

// mcast carries out a command on the membership of a queue pair. The LID of the group is
// InfiniBand's and means nothing here.
func (c *client) mcast(q *request, do func(mono.Time, *rocev2.NIC, *rocev2.QueuePair, rocev2.GID) error) error {
	var in uverbs.AttachMcast
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	return c.do(func(now mono.Time, n *rocev2.NIC) error { return do(now, n, o.q, in.GID) })
}
