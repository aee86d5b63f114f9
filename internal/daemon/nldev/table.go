package nldev

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/api"
)

// table describes the answers about one kind of object.
type table struct {
	kind        string // in api
	list, entry uint16 // attributes
	number      uint16 // attribute that names an object
	// put adds the attributes of an object, and returns its number.
	put func(*api.Resource, *message) uint32
}

// chunk is the length after which a list continues in another message. Readers have buffers of 4096 bytes at least.
const chunk = 3500

// answer answers a request for the objects of devices: a list, or the one that the request names.
func (t *table) answer(a *answerer, r *request) error {
	devices, err := a.selected(r)
	if err != nil {
		return err
	}
	for i := range devices {
		objects, err := a.view.Resources(a.ctx, devices[i].Name, t.kind)
		if err != nil {
			return unix.EIO
		}
		if r.dump() {
			err = t.all(a, r, &devices[i], objects)
		} else {
			err = t.one(a, r, &devices[i], objects)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// all sends a list in messages of limited length.
func (t *table) all(a *answerer, r *request, d *Device, objects []api.Resource) error {
	for len(objects) > 0 {
		m := a.begin(r, d)
		m.nest(t.list, func(m *message) {
			for len(objects) > 0 && len(*m) < chunk {
				m.nest(t.entry, func(m *message) { t.fill(&objects[0], m) })
				objects = objects[1:]
			}
		})
		if err := a.send(m.done()); err != nil {
			return sendError{err}
		}
	}
	return nil
}

// one sends the object that the request names.
func (t *table) one(a *answerer, r *request, d *Device, objects []api.Resource) error {
	number, named := r.number(t.number)
	if !named {
		return unix.EINVAL
	}
	for i := range objects {
		m := a.begin(r, d)
		if t.fill(&objects[i], &m) != number {
			continue
		}
		if err := a.send(m.done()); err != nil {
			return sendError{err}
		}
		return nil
	}
	return unix.ENOENT
}

// fill adds an object.
func (t *table) fill(o *api.Resource, m *message) uint32 {
	n := t.put(o, m)
	m.u32(t.number, n)
	m.u32(attrPID, uint32(o.PID))
	return n
}

// Types and states in the order of their numbers (enum ib_qp_type, ib_qp_state, rdma_cm_state).
var (
	qpTypes  = []string{"SMI", "GSI", "RC", "UC", "UD"}
	qpStates = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	cmStates = []string{"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND", "LISTEN"}
)

// number returns the number of a name in one of these lists.
func number(list []string, name string) uint8 { return uint8(max(slices.Index(list, name), 0)) }

var qpTable = &table{"qp", attrQP, attrQPEntry, attrLocalQPN, func(o *api.Resource, m *message) uint32 {
	q := o.QP
	m.u32(attrPortIndex, port)
	if q.Type != "UD" {
		m.u32(attrRemoteQPN, q.Dest)
		m.u32(attrReceivePSN, q.RQPSN)
	}
	m.u32(attrSendPSN, q.SQPSN)
	m.u8(attrType, number(qpTypes, q.Type))
	m.u8(attrState, number(qpStates, q.State))
	m.u32(attrPDNumber, q.PD)
	return q.Num
}}

var cqTable = &table{"cq", attrCQ, attrCQEntry, attrCQNumber, func(o *api.Resource, m *message) uint32 {
	m.u32(attrCQE, uint32(o.CQ.CQE))
	m.u64(attrUsers, uint64(o.CQ.Users))
	return o.CQ.ID
}}

// mrTable has no keys, because they are secrets of the owner.
var mrTable = &table{"mr", attrMR, attrMREntry, attrMRNumber, func(o *api.Resource, m *message) uint32 {
	m.u64(attrMRLength, o.MR.Length)
	m.u32(attrPDNumber, o.MR.PD)
	return o.MR.ID
}}

var pdTable = &table{"pd", attrPD, attrPDEntry, attrPDNumber, func(o *api.Resource, m *message) uint32 {
	m.u64(attrUsers, uint64(o.PD.Users))
	return o.PD.ID
}}

// portSpace returns the number of a port space, 0 for an unknown name.
func portSpace(name string) uint32 {
	for _, ps := range []rdmacm.PortSpace{rdmacm.PSIPoIB, rdmacm.PSTCP, rdmacm.PSUDP, rdmacm.PSIB} {
		if ps.String() == name {
			return uint32(ps)
		}
	}
	return 0
}

var cmTable = &table{"cm_id", attrCMID, attrCMIDEntry, attrCMIDNumber, func(o *api.Resource, m *message) uint32 {
	c := o.CMID
	m.u32(attrPortIndex, port)
	if c.QPN != 0 {
		m.u32(attrLocalQPN, c.QPN)
	}
	m.u8(attrState, number(cmStates, c.State))
	m.u32(attrPortSpace, portSpace(c.PS))
	address(m, attrSource, c.Src)
	address(m, attrDestination, c.Dst)
	return c.ID
}}

// address adds a struct sockaddr_storage, unless the identifier has no such address.
func address(m *message, attr uint16, text string) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return
	}
	b := make([]byte, 128) // sizeof(struct sockaddr_storage)
	b[2], b[3] = byte(a.Port()>>8), byte(a.Port())
	if ip := a.Addr().Unmap(); ip.Is4() {
		native.PutUint16(b, unix.AF_INET)
		copy(b[4:], ip.AsSlice())
	} else {
		native.PutUint16(b, unix.AF_INET6)
		copy(b[8:], ip.AsSlice())
	}
	m.put(attr, b)
}
