package ucma

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Access flags of queue pairs (enum ib_uverbs_access_flags).
const (
	accessRemoteWrite  = 1 << 1
	accessRemoteRead   = 1 << 2
	accessRemoteAtomic = 1 << 3
)

// initQPAttr answers with the attributes that ibv_modify_qp needs to move the queue pair of an identifier to a state.
func (i *id) initQPAttr(q *request, r *rdmacm.InitQPAttr) error {
	if i.nic == nil {
		return unix.EINVAL
	}
	a := rdmacm.QPAttr{QPState: r.QPState, PortNum: 1}
	switch {
	case r.QPState == uint32(qp.Init):
		i.initAttr(&a)
	case i.qpType == qpUD && r.QPState == uint32(qp.RTR), i.qpType == qpUD && r.QPState == uint32(qp.RTS):
		i.initAttr(&a)
	case i.conn == nil:
		return unix.EINVAL
	default:
		conn, err := i.connState()
		if err == nil {
			err = i.connAttr(&a, &conn)
		}
		if err != nil {
			return err
		}
	}
	q.resp = a
	return nil
}

// attrs returns the attributes that move the queue pair of a connection to RTS, and the connection's addresses. c
// holds the negotiated parameters.
func (i *id) attrs(c *cm.QPAttr) (a rdmacm.ConnAttr) {
	a.Init = rdmacm.QPAttr{QPState: uint32(qp.Init), PortNum: 1}
	a.RTR = rdmacm.QPAttr{QPState: uint32(qp.RTR), PortNum: 1}
	a.RTS = rdmacm.QPAttr{QPState: uint32(qp.RTS), PortNum: 1}
	i.initAttr(&a.Init)
	// connAttr cannot fail for these states.
	_, _ = i.connAttr(&a.RTR, c), i.connAttr(&a.RTS, c)
	i.src.putSockaddr(a.SrcAddr[:])
	i.dst.putSockaddr(a.DstAddr[:])
	return a
}

// initAttr sets the attributes for INIT. A datagram queue pair needs no others.
func (i *id) initAttr(a *rdmacm.QPAttr) {
	mask := qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort
	if i.qpType == qpUD {
		if i.qkey == 0 {
			i.setQKey(0)
		}
		a.QKey = i.qkey
		mask |= qp.AttrQKey
	} else {
		mask |= qp.AttrAccessFlags
		if i.conn != nil {
			a.QPAccessFlags = accessRemoteWrite
			if i.respRes > 0 {
				a.QPAccessFlags |= accessRemoteRead | accessRemoteAtomic
			}
		}
	}
	a.QPAttrMask = uint32(mask)
}

// connState returns the negotiated parameters.
func (i *id) connState() (a cm.QPAttr, err error) {
	err = i.nic.look(func(*rocev2.NIC) error {
		if s := i.conn.State(); s == cm.StateClosed || s == cm.StateREQSent {
			return unix.EINVAL
		}
		a = i.conn.QPAttr()
		return nil
	})
	return a, err
}

// connAttr sets the attributes for RTR or RTS of a connected queue pair.
func (i *id) connAttr(a *rdmacm.QPAttr, c *cm.QPAttr) error {
	rc := i.qpType == qpRC
	mask := qp.AttrState
	switch a.QPState {
	case uint32(qp.RTR):
		mask |= qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
		a.AHAttr, a.PathMTU, a.DestQPNum, a.RQPSN = i.ahAttr(), uint32(c.PathMTU), uint32(c.RemoteQPN), i.psn.Uint32()
		if rc {
			mask |= qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
			a.MaxDestRdAtomic = i.respRes
		}
	case uint32(qp.RTS):
		mask |= qp.AttrSQPSN
		a.SQPSN = c.SQPSN.Uint32()
		if rc {
			mask |= qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
			a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = c.Timeout, c.RetryCount, c.RNRRetry, i.initDepth
			if i.timeout != 0 {
				a.Timeout = i.timeout
			}
		}
	default:
		return unix.EINVAL
	}
	a.QPAttrMask = uint32(mask)
	return nil
}
