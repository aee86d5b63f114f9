package server

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/stack"
)

func (c *client) hello(q *request) error {
	var in uverbs.Hello
	if err := q.decode(&in); err != nil {
		return err
	}
	if in.Version != uverbs.ExtVersion {
		return unix.EPROTONOSUPPORT
	}
	s, err := c.context()
	if err != nil {
		return err
	}
	fd, err := duplicate(s.fd)
	if err != nil {
		return err
	}
	q.attach(uverbs.FD{FD: fd, Kind: uverbs.FDMemory})
	r := uverbs.HelloResp{Version: uverbs.ExtVersion}
	uverbs.SetText(r.Device[:], c.srv.cfg.Device)
	uverbs.SetText(r.Profiles[:], strings.Join(c.srv.cfg.Profiles, ","))
	q.core = r
	return nil
}

// doorbell creates the doorbells of the context. Each context has one set.
func (c *client) doorbell(q *request) error {
	if c.bell != nil {
		return unix.EEXIST
	}
	m, offset, err := c.newShared(uverbs.DoorbellSize)
	if err != nil {
		return err
	}
	ev, err := shm.Eventfd()
	if err != nil {
		m.release()
		return err
	}
	if err := c.startBell(q, m, ev); err != nil {
		unix.Close(ev)
		m.release()
		return err
	}
	q.core = uverbs.DoorbellResp{Offset: offset, Size: uverbs.DoorbellSize}
	return nil
}

// duplicate duplicates fd.
func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// startBell makes the shard poll the doorbells in m and their eventfd ev. The client gets a duplicate of ev.
func (c *client) startBell(q *request, m *mapping, ev int) error {
	dup, err := duplicate(ev)
	if err != nil {
		return err
	}
	q.attach(uverbs.FD{FD: dup, Kind: uverbs.FDEventfd})
	b, err := shard.NewBell(m.data, ev, c)
	if err != nil {
		return err
	}
	c.bellMem = m // the client does not know its offset yet
	for handle, o := range c.qps.all {
		b.Set(handle, o.q)
	}
	for handle, o := range c.cqs.all {
		b.SetCQ(handle, o.c)
	}
	if err := c.srv.cfg.Shard.AddBell(c.srv.ctx, b); err != nil {
		return err
	}
	c.bell = b
	return nil
}

func (c *client) mapMemory(q *request) error {
	var in uverbs.MapMemory
	if err := q.decode(&in); err != nil {
		return err
	}
	more, err := q.moreParts()
	if err != nil {
		return err
	}
	resp, err := c.mapParts(&in, more, q.FDs)
	if err == nil {
		q.core = resp
	}
	return err
}

// mapParts maps parts of the memfd in fds, or of the memfd sent last.
func (c *client) mapParts(in *uverbs.MapMemory, more []shm.Part, fds []int) (r uverbs.MapMemoryResp, err error) {
	fd, err := c.memory.choose(fds, in.Flags, in.Memory)
	if err != nil {
		return r, err
	}
	if c.maps.full() {
		return r, unix.ENOMEM
	}
	m, err := c.mapFD(fd, in.Base, append([]shm.Part{{Length: in.Length, Offset: in.Offset}}, more...))
	if err != nil {
		return r, err
	}
	c.memory.keep(fd)
	if len(more) == 0 {
		m.part = memoryPart{c.memory.number, in.Offset}
	}
	return uverbs.MapMemoryResp{Handle: c.maps.add(m), Memory: c.memory.number}, nil
}

// same reports whether m already maps the requested part of the memfd, possibly for another client address.
func (c *client) same(m *mapping, in *uverbs.MapMemory) bool {
	_, err := c.memory.choose(nil, in.Flags, in.Memory)
	return err == nil && m.part == memoryPart{in.Memory, in.Offset} && uint64(len(m.data)) == in.Length &&
		in.Base%shm.PageSize == 0 && in.Base+in.Length >= in.Base
}

// lastMemory is the memfd that a client has sent last. The client can map more of it without another transfer.
type lastMemory struct {
	fd     int
	have   bool
	number uint32 // of the last one; counts from 1
}

// choose returns the memfd that a map request refers to.
func (l *lastMemory) choose(fds []int, flags, number uint32) (int, error) {
	switch {
	case flags == 0 && len(fds) == 1:
		return fds[0], nil
	case flags == uverbs.MapKnown && len(fds) == 0:
		if !l.have || number != l.number {
			return -1, unix.ESTALE
		}
		return l.fd, nil
	}
	return -1, unix.EINVAL
}

// keep keeps a duplicate of a checked memfd, unless it is the one kept already.
func (l *lastMemory) keep(fd int) {
	if l.have && fd == l.fd {
		return
	}
	l.close()
	dup, err := duplicate(fd)
	l.fd, l.have = dup, err == nil
	l.number++
}

func (l *lastMemory) close() {
	if l.have {
		unix.Close(l.fd)
	}
	l.have = false
}

func (c *client) unmapMemory(q *request) error {
	var in uverbs.UnmapMemory
	if err := q.decode(&in); err != nil {
		return err
	}
	m, err := c.maps.get(in.Handle)
	if err != nil {
		return err
	}
	if err := c.takesLong(m); err != nil {
		return err
	}
	c.dropMapping(in.Handle)
	return nil
}

// dropMapping removes an existing mapping from the table. Regions keep its memory alive.
func (c *client) dropMapping(handle uint32) {
	m, _ := c.maps.get(handle)
	c.maps.remove(handle)
	m.release()
}

func (c *client) setProfile(q *request) error {
	var in uverbs.SetProfile
	if err := q.decode(&in); err != nil {
		return err
	}
	name := uverbs.Text(in.Profile[:])
	if name != "" && !slices.Contains(c.srv.cfg.Profiles, name) {
		return unix.EINVAL
	}
	if name == "" {
		name = c.srv.cfg.Profile
	}
	c.profile = name
	return nil
}

func (c *client) queryGID(q *request) error {
	var in uverbs.QueryGID
	if err := q.decode(&in); err != nil {
		return err
	}
	return c.peek(func(n *rocev2.NIC) error {
		gids := n.GIDs()
		switch {
		case in.Port != 1:
			return unix.EINVAL
		case in.Index >= uint32(len(gids)):
			return n.GIDError(stack.ErrGIDIndex, in.Index)
		}
		g := gids[in.Index]
		q.core = uverbs.QueryGIDResp{GID: g.GID, Type: uint32(g.Type)}
		return nil
	})
}

// refreshSysfs updates the files that programs read, such as counters.
func (c *client) refreshSysfs(*request) error {
	if c.srv.cfg.Refresh == nil {
		return unix.EOPNOTSUPP
	}
	return c.srv.cfg.Refresh(c.srv.ctx)
}

// maxStats is the longest answer to EXT_QUERY_STATS, in bytes.
const maxStats = uverbs.MaxMessage - uverbs.AnswerLen

// queryStats answers with the NIC's counters, starting at in.First.
func (c *client) queryStats(q *request) error {
	var in uverbs.QueryStats
	if err := q.decode(&in); err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		all := n.CounterSnapshot()
		rest := all[min(int(in.First), len(all)):]
		room := (min(q.Out, maxStats) - uverbs.Size[uverbs.QueryStatsResp]()) / uverbs.Size[uverbs.Stat]()
		part := rest[:min(len(rest), room)]
		q.answer.Body = uverbs.Append(nil, uverbs.QueryStatsResp{Count: uint32(len(part)), More: uint32(len(rest) - len(part))})
		for _, v := range part {
			st := uverbs.Stat{Value: v.Value}
			uverbs.SetText(st.Name[:], v.Name)
			q.answer.Body = uverbs.Append(q.answer.Body, st)
		}
		return nil
	})
}
