package ucma

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// state is the state of an identifier.
type state uint8

const (
	stateIdle state = iota
	stateBound
	stateAddrQuery
	stateAddrResolved
	stateRouteResolved
	stateListen
	stateConnect // set by CONNECT or CONNECT_REQUEST
	stateDisconnected
)

var stateNames = [...]string{"IDLE", "ADDR_BOUND", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_RESOLVED", "LISTEN",
	"CONNECT", "DISCONNECT"}

// String returns the state's name in iproute2's rdma.
func (s state) String() string { return stateNames[s] }

// QP types (enum ib_uverbs_qp_type).
const (
	qpRC = 2
	qpUC = 3
	qpUD = 4
)

// id is a communication identifier (rdma_cm_id). The server's lock guards it.
type id struct {
	num      uint32
	ctx      *device
	uid      uint64 // the program's ID; 0 for a request that is not yet accepted
	passive  bool
	ps       rdmacm.PortSpace
	qpType   uint8
	state    state
	src, dst endpoint
	reported uint32 // number of events that the program has received
	owner    *quota.Account

	reuseAddr bool
	afOnly    *bool
	tos       uint8
	timeout   uint8 // local ACK timeout; 0: default

	nic    *nic // nil: not bound to a NIC
	route  rocev2.MADRoute
	sgid   uint8
	mtu    qp.MTU
	then   *rdmacm.ConnParam // parameters for CONNECT after address resolution; nil: no automatic CONNECT
	timer  *time.Timer       // of address resolution
	serial int               // of address resolution; answers with an older number are ignored

	psn       bth.PSN // starting PSN of the remote queue pair
	qpn       uint32
	qkey      uint32
	srq       bool
	groups    []*membership
	conn      *cm.Conn
	sidr      *cm.SIDR
	listeners []listener
	backlog   int
	respRes   uint8 // READ and atomic operations that the peer may have in flight
	initDepth uint8 // READ and atomic operations that we may have in flight
}

// unknown reports whether i belongs to a request that the program has not accepted yet. No events are queued for such
// an identifier.
func (i *id) unknown() bool { return i.passive && i.uid == 0 }

// newID creates an identifier of c.
func (s *Server) newID(c *device, ps rdmacm.PortSpace, qpType uint8) (*id, error) {
	if c.account.Full(quota.CMEnding) || !c.account.Take(quota.CMIDs, 1) {
		return nil, unix.ENOMEM
	}
	for s.lastID++; s.ids[s.lastID] != nil; s.lastID++ {
	}
	i := &id{num: s.lastID, ctx: c, ps: ps, qpType: qpType, psn: bth.MakePSN(rand.Uint32()), owner: c.account}
	s.ids[i.num] = i
	return i, nil
}

func (c *device) createID(q *request, r *rdmacm.CreateID) error {
	i, err := c.makeID(r.UID, r.PS, r.QPType)
	if err != nil {
		return err
	}
	q.resp = rdmacm.CreateIDResp{ID: i.num}
	return nil
}

// makeID creates an identifier of a port space. The port space may determine the queue pair type.
func (c *device) makeID(uid uint64, ps rdmacm.PortSpace, typ uint8) (*id, error) {
	switch ps {
	case rdmacm.PSTCP:
		typ = qpRC
	case rdmacm.PSUDP, rdmacm.PSIPoIB:
		typ = qpUD
	case rdmacm.PSIB:
	default:
		return nil, unix.EINVAL
	}
	i, err := c.srv.newID(c, ps, typ)
	if err != nil {
		return nil, err
	}
	i.uid = uid
	return i, nil
}

func (i *id) destroyID(q *request, r *rdmacm.DestroyID) error {
	i.destroy()
	q.resp = rdmacm.DestroyIDResp{EventsReported: i.reported}
	return nil
}

// destroy cancels all operations of i and removes it.
func (i *id) destroy() {
	s := i.ctx.srv
	delete(s.ids, i.num)
	i.owner.Add(quota.CMIDs, -1)
	s.release(i)
	i.endQuery()
	i.closeListeners()
	i.leaveAll()
	i.forgetConn()
	i.dropEvents()
}

// endQuery cancels address resolution.
func (i *id) endQuery() {
	i.serial++
	if i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
}

// forgetConn drops the connection or the exchange of i, and notifies the peer. No further events follow. The agent keeps
// a closed connection for a while. It counts for the user until then, even if the context ends.
func (i *id) forgetConn() {
	conn, sidr := i.conn, i.sidr
	i.conn, i.sidr = nil, nil
	s := i.ctx.srv
	delete(s.conns, conn)
	delete(s.sidrs, sidr)
	if conn == nil && sidr == nil {
		return
	}
	ending := s.cfg.Quota.Open(i.ctx.cred.Uid)
	err := i.nic.do(func(now mono.Time, _ *rocev2.NIC) error {
		if conn != nil {
			ending.Add(quota.CMEnding, 1)
			conn.CloseThen(now, ending.Close)
		}
		if sidr != nil {
			sidr.Close(now)
		}
		return nil
	})
	if conn == nil || err != nil { // the shard has ended, with its connections
		ending.Close()
	}
}

// move makes identifiers belong to another context, and moves their quota. It moves none if that exceeds a limit of
// the context's user.
func (c *device) move(ids []*id) error {
	groups := 0
	for _, i := range ids {
		i.charge(-1)
		groups += len(i.groups)
	}
	ok := c.account.Take(quota.CMIDs, int64(len(ids)))
	if ok && !c.account.Take(quota.Groups, int64(groups)) {
		c.account.Add(quota.CMIDs, -int64(len(ids)))
		ok = false
	}
	for _, i := range ids {
		if !ok {
			i.charge(1)
			continue
		}
		i.ctx, i.owner = c, c.account
	}
	if !ok {
		return unix.ENOMEM
	}
	return nil
}

// charge adds the identifier and its groups n times to the usage of its owner.
func (i *id) charge(n int64) {
	i.owner.Add(quota.CMIDs, n)
	i.owner.Add(quota.Groups, n*int64(len(i.groups)))
}

func (i *id) setOption(q *request, r *rdmacm.SetOption) error {
	size := bodySize[rdmacm.SetOption]()
	if uint64(size)+uint64(r.OptLen) > uint64(len(q.body)) {
		return unix.EINVAL
	}
	val := q.body[size : size+int(r.OptLen)]
	if r.Level != rdmacm.OptionID {
		return unix.ENOSYS
	}
	return i.set(r.OptName, val)
}

// setOption sets an option of level RDMA_OPTION_ID.
func (i *id) set(name uint32, val []byte) error {
	switch {
	case name == rdmacm.OptionTOS && len(val) == 1:
		i.tos = val[0]
	case name == rdmacm.OptionAckTimeout && len(val) == 1 && (i.qpType == qpRC || i.qpType == qpUC):
		if val[0] > 31 {
			return unix.EINVAL
		}
		i.timeout = val[0]
	case name == rdmacm.OptionReuseAddr && len(val) == 4:
		reuse := native.Uint32(val) != 0
		if i.state != stateIdle && (!reuse || i.state == stateListen) { // Linux, rdma_set_reuseaddr
			return unix.EINVAL
		}
		i.reuseAddr = reuse
	case name == rdmacm.OptionAFOnly && len(val) == 4:
		if i.state != stateIdle {
			return unix.EINVAL
		}
		only := native.Uint32(val) != 0
		i.afOnly = &only
	case name > rdmacm.OptionAckTimeout:
		return unix.ENOSYS
	default:
		return unix.EINVAL
	}
	return nil
}
