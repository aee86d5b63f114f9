package server

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// memoryRegion is a registered region and the reference to its memory.
type memoryRegion struct {
	Owner
	mr   *rocev2.MR
	keep keep
	// Parameters of the registration, for REREG_MR.
	start, length uint64
	access        qp.Access
}

func (c *client) allocPD(q *request) error {
	if c.pds.full() {
		return unix.ENOMEM
	}
	own := c.owner()
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		p, err := n.AllocPD(&own)
		if err != nil {
			return err
		}
		q.core = uverbs.AllocPDResp{PDHandle: c.pds.add(p)}
		return nil
	})
}

func (c *client) deallocPD(q *request) error {
	var handle uint32
	if err := q.decode(&handle); err != nil {
		return err
	}
	p, err := c.pds.get(handle)
	if err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		err := n.DeallocPD(p)
		if err == nil {
			c.pds.remove(handle)
		}
		return err
	})
}

// pageMask masks the offset in a page. A region's memory address and wire address must have the same offset.
const pageMask = 4095

func (c *client) regMR(q *request) error {
	var in uverbs.RegMR
	if err := q.decode(&in); err != nil {
		return err
	}
	pd, err := c.pds.get(in.PDHandle)
	if err != nil {
		return err
	}
	if (in.Start^in.HCAVA)&pageMask != 0 {
		return unix.EINVAL
	}
	if c.mrs.full() {
		return unix.ENOMEM
	}
	src, err := q.source(in)
	if err != nil {
		return err
	}
	if src.Kind == uverbs.SourceMap {
		return c.mapAndReg(q, &in, pd, src.Handle)
	}
	return c.regFrom(q, &in, pd, src)
}

// mapAndReg maps memory, registers it, and drops the mapping old. One command replaces three round trips.
func (c *client) mapAndReg(q *request, in *uverbs.RegMR, pd *rocev2.PD, old uint32) error {
	if q.Out < uverbs.Size[uverbs.RegMRResp]()+uverbs.Size[uverbs.MapMemoryResp]() {
		return unix.ENOSPC
	}
	m, err := q.toMap(*in)
	if err != nil {
		return err
	}
	var given *mapping
	if old != uverbs.NoHandle {
		if given, err = c.maps.get(old); err != nil {
			return err
		}
	}
	if given != nil && c.same(given, &m) {
		return c.moveAndReg(q, in, pd, old, &m)
	}
	if err := c.takesLong(given); err != nil {
		return err
	}
	mapped, err := c.mapParts(&m, nil, nil)
	if err != nil {
		return err
	}
	if err := c.regFrom(q, in, pd, inMapping(mapped.Handle)); err != nil {
		c.dropMapping(mapped.Handle)
		return err
	}
	if given != nil {
		c.dropMapping(old)
	}
	q.provider = mapped
	return nil
}

// inMapping is the source of a region in a mapping.
func inMapping(handle uint32) source {
	return source{MRSource: uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: handle}}
}

// moveAndReg reuses the old mapping for the new one: it has the same memory, now at another address of the client.
func (c *client) moveAndReg(q *request, in *uverbs.RegMR, pd *rocev2.PD, handle uint32, asked *uverbs.MapMemory) error {
	m, _ := c.maps.get(handle)
	was := m.base
	m.base = asked.Base
	if err := c.regFrom(q, in, pd, inMapping(handle)); err != nil {
		m.base = was
		return err
	}
	q.provider = uverbs.MapMemoryResp{Handle: handle, Memory: asked.Memory}
	return nil
}

// regFrom registers the memory that src describes.
func (c *client) regFrom(q *request, in *uverbs.RegMR, pd *rocev2.PD, src source) error {
	access := qp.Access(in.AccessFlags)
	mem, kept, err := c.region(in.Start, in.Length, access, src)
	if err != nil {
		return err
	}
	r := &memoryRegion{Owner: c.owner(), keep: kept, start: in.Start, length: in.Length, access: access}
	err = c.do(func(_ mono.Time, n *rocev2.NIC) (err error) {
		r.mr, err = n.RegMR(pd, rocev2.MRAttr{VA: in.HCAVA, Length: in.Length, Access: access, Mem: mem, Ctx: r})
		if err == nil {
			q.core = uverbs.RegMRResp{MRHandle: c.mrs.add(r), LKey: r.mr.LKey, RKey: r.mr.RKey}
		}
		return err
	})
	if r.mr == nil {
		kept.release()
		return err
	}
	c.traffic.register(kept, in.Length)
	return nil
}

func (c *client) reregMR(q *request) error {
	var in uverbs.ReregMR
	if err := q.decode(&in); err != nil {
		return err
	}
	r, err := c.mrs.get(in.MRHandle)
	if err != nil {
		return err
	}
	flags := rocev2.ReregFlags(in.Flags)
	var pd *rocev2.PD
	if flags&rocev2.ReregPD != 0 {
		if pd, err = c.pds.get(in.PDHandle); err != nil {
			return err
		}
	}
	src, err := q.source(in)
	if err != nil {
		return err
	}
	next, mem, err := c.retranslate(r, &in, src)
	if err != nil {
		return err
	}
	var old keep
	changed := false
	err = c.do(func(_ mono.Time, n *rocev2.NIC) error {
		err := n.ReregMR(r.mr, flags, pd, rocev2.MRAttr{VA: in.HCAVA, Length: in.Length, Access: qp.Access(in.AccessFlags), Mem: mem})
		if err != nil {
			return err
		}
		if changed = true; flags&rocev2.ReregTranslation != 0 {
			old, r.keep = r.keep, next.keep
		}
		r.start, r.length, r.access = next.start, next.length, next.access
		q.core = uverbs.ReregMRResp{LKey: r.mr.LKey, RKey: r.mr.RKey}
		return nil
	})
	if !changed {
		old = next.keep
	}
	old.end()
	return err
}

// retranslate returns the state of r after REREG_MR: its memory, if the command changes it, and the server's own
// fields. Unshared memory must permit the new access.
func (c *client) retranslate(r *memoryRegion, in *uverbs.ReregMR, src source) (next memoryRegion, mem rocev2.Memory, err error) {
	flags := rocev2.ReregFlags(in.Flags)
	next.start, next.length, next.access = r.start, r.length, r.access
	if flags&rocev2.ReregAccess != 0 {
		next.access = qp.Access(in.AccessFlags)
	}
	switch {
	case flags&rocev2.ReregTranslation != 0:
		if (in.Start^in.HCAVA)&pageMask != 0 {
			return next, nil, unix.EINVAL
		}
		next.start, next.length = in.Start, in.Length
		mem, next.keep, err = c.region(in.Start, in.Length, next.access, src)
	case r.keep.proc != nil:
		err = c.check(r.keep.proc, r.start, r.length, next.access)
	case r.keep.mapping != nil:
		err = r.keep.mapping.permits(next.access)
	}
	return next, mem, err
}

func (c *client) deregMR(q *request) error {
	var handle uint32
	if err := q.decode(&handle); err != nil {
		return err
	}
	r, err := c.mrs.get(handle)
	if err != nil {
		return err
	}
	if err := c.takesLong(r.keep.mapping); err != nil {
		return err
	}
	if c.here != nil && r.keep.remote != nil {
		return unix.EAGAIN // the worker must finish first
	}
	if err := c.do(func(_ mono.Time, n *rocev2.NIC) error { return n.DeregMR(r.mr) }); err != nil {
		return err
	}
	c.mrs.remove(handle)
	r.keep.end()
	return nil
}

func (c *client) allocMW(q *request) error {
	var in uverbs.AllocMW
	if err := q.decode(&in); err != nil {
		return err
	}
	pd, err := c.pds.get(in.PDHandle)
	if err != nil {
		return err
	}
	if c.mws.full() {
		return unix.ENOMEM
	}
	own := c.owner()
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		w, err := n.AllocMW(pd, rocev2.MWType(in.MWType), &own)
		if err == nil {
			q.core = uverbs.AllocMWResp{MWHandle: c.mws.add(w), RKey: w.RKey}
		}
		return err
	})
}

func (c *client) deallocMW(q *request) error {
	var handle uint32
	if err := q.decode(&handle); err != nil {
		return err
	}
	w, err := c.mws.get(handle)
	if err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		err := n.DeallocMW(w)
		if err == nil {
			c.mws.remove(handle)
		}
		return err
	})
}

// maxSL is the highest service level (IBTA vol.1 7.7.5).
const maxSL = 15

// vector makes an address vector from path fields, which come in two layouts.
func vector(dgid [16]byte, flow uint32, sgid, hop, class uint8) rocev2.AddressVector {
	return rocev2.AddressVector{DGID: inet.GID(dgid), SGIDIndex: sgid, TrafficClass: class, HopLimit: hop,
		FlowLabel: flow & 0xfffff}
}
