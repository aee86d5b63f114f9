package ucma

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/abi/rdmacm"
)

// noIndex stands for the device index, which only RDMA netlink provides. Programs then find the device by its GUID.
// librdmacm 33 takes any other number for an index.
const noIndex = math.MaxUint32

// Values of path records (IBTA vol.1 15.2.5.16).
const (
	packetLifeTime = 18             // 4.096 us * 2^n; Linux assumes this value for RoCE
	exactly        = 2              // selector of MTU, rate and packet life time
	pathFlags      = 1 | 2 | 8 | 32 // GMP, primary, bidirectional
)

// ackTimeout returns the local ACK timeout of connections of i: twice the packet life time.
func (i *id) ackTimeout() uint8 {
	if i.timeout != 0 {
		return i.timeout
	}
	return packetLifeTime + 1
}

// hasRoute reports whether the path is known.
func (i *id) hasRoute() bool { return i.mtu != 0 }

func (i *id) queryRoute(q *request, r *rdmacm.Query) error {
	var a rdmacm.QueryRouteResp
	i.src.putSockaddr(a.SrcAddr[:])
	i.dst.putSockaddr(a.DstAddr[:])
	if i.nic != nil {
		a.NodeGUID, a.PortNum, a.IBDevIndex = i.nic.GUID, 1, noIndex
		p := &a.IBRoute[0]
		p.DGID, p.SGID = i.route.DGID, i.route.SGID
		be.PutUint16(p.PKey[:], bth.DefaultPKey)
		if i.hasRoute() {
			a.NumPaths = 1
			be.PutUint32(p.FlowLabel[:], i.route.FlowLabel)
			p.Reversible, p.NumbPath, p.HopLimit, p.TrafficClass = 1, 1, i.route.HopLimit, i.route.TrafficClass
			p.MTU, p.MTUSelector, p.RateSelector = uint32(i.mtu), exactly, exactly
			p.PacketLifeTime, p.PacketLifeTimeSelector = i.ackTimeout()-1, exactly
		}
	}
	q.resp = a
	return nil
}

func (i *id) query(q *request, r *rdmacm.Query) error {
	switch r.Option {
	case rdmacm.QueryAddr:
		a := i.queryDevice()
		a.SrcSize, a.DstSize = i.src.putSockaddr(a.SrcAddr[:]), i.dst.putSockaddr(a.DstAddr[:])
		q.resp = a
	case rdmacm.QueryGID:
		a := i.queryDevice()
		a.SrcSize = putSockaddrIB(a.SrcAddr[:], bth.DefaultPKey, i.route.SGID, i.serviceID(i.src.Port()))
		a.DstSize = putSockaddrIB(a.DstAddr[:], bth.DefaultPKey, i.route.DGID, i.serviceID(i.dst.Port()))
		q.resp = a
	case rdmacm.QueryPath:
		q.resp = i.queryPath()
	default:
		return unix.ENOSYS
	}
	if q.out < binary.Size(q.resp) && r.Option != rdmacm.QueryPath {
		return unix.ENOSPC
	}
	return nil
}

// queryDevice returns the device part of the answer to QUERY.
func (i *id) queryDevice() (a rdmacm.QueryAddrResp) {
	if i.nic != nil {
		a.NodeGUID, a.PortNum, a.PKey, a.IBDevIndex = i.nic.GUID, 1, bth.DefaultPKey, noIndex
	}
	return a
}

// queryPath returns the path record in its MAD format.
func (i *id) queryPath() (a rdmacm.QueryPathResp) {
	if !i.hasRoute() {
		return a
	}
	a.NumPaths, a.PathData.Flags = 1, pathFlags
	p := a.PathData.PathRec[:]
	copy(p[8:], i.route.DGID[:])
	copy(p[24:], i.route.SGID[:])
	be.PutUint32(p[44:], i.route.FlowLabel<<8|uint32(i.route.HopLimit))
	p[48], p[49] = i.route.TrafficClass, 1<<7|1 // reversible, one path
	be.PutUint16(p[50:], bth.DefaultPKey)
	p[54], p[55], p[56] = exactly<<6|byte(i.mtu), exactly<<6, exactly<<6|(i.ackTimeout()-1)
	return a
}
