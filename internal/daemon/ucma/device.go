package ucma

import (
	"errors"
	"net"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/rocev2"
)

// device is a client's open rdma_cm device: its connection and its objects. The server's lock guards the fields.
type device struct {
	srv     *Server
	conn    *uverbs.Conn
	cred    *unix.Ucred
	account *quota.Account
	cookie  uint64
	nics    []*nic // NICs that the client may use
	bell    int    // local end of the event socket; -1 before ExtHello
	rung    bool   // a bell is in the socket, or the client has read it and not yet answered
	pushes  bool   // the client wants whole events in the socket
	away    int    // pushed events whose places the client has not returned
	events  []*event
}

func newContext(s *Server, conn *net.UnixConn, cred *unix.Ucred, a *quota.Account) *device {
	c := &device{srv: s, conn: uverbs.NewConn(conn), cred: cred, account: a, bell: -1}
	if !quota.Privileged(cred.Uid) {
		c.conn.Limit(server.Gate(a, s.done))
	}
	return c
}

// request is a command that the server processes.
type request struct {
	body []byte
	out  int
	fds  []int
	resp any // a structure; nil: none
	send []uverbs.FD
}

// decode decodes the command into v, a pointer to a structure.
func (q *request) decode(v any) error {
	if err := uverbs.DecodeInto(q.body, v); err != nil {
		return unix.EINVAL
	}
	return nil
}

// with makes a command of a function that gets its decoded structure.
func with[R any](f func(*device, *request, *R) error) func(*device, *request) error {
	return func(c *device, q *request) error {
		var r R
		if err := q.decode(&r); err != nil {
			return err
		}
		return f(c, q, &r)
	}
}

// of makes a command of a function of the identifier that the structure's field ID selects.
func of[R any](f func(*id, *request, *R) error) func(*device, *request) error {
	return with(func(c *device, q *request, r *R) error {
		i, err := c.find(uint32(reflect.ValueOf(r).Elem().FieldByName("ID").Uint()))
		if err != nil {
			return err
		}
		return f(i, q, r)
	})
}

// older lets programs that are older than ECE omit this last part of the structure.
func older(run func(*device, *request) error) func(*device, *request) error {
	return func(c *device, q *request) error {
		q.body = append(slices.Clip(q.body), make([]byte, uverbs.Size[rdmacm.ECE]())...)
		return run(c, q)
	}
}

// command is the function that executes a command, and the size of its answer in bytes.
type command struct {
	run func(*device, *request) error
	out int
}

var commands = map[uint32]command{
	rdmacm.CmdCreateID:     {with((*device).createID), 4},
	rdmacm.CmdDestroyID:    {of((*id).destroyID), 4},
	rdmacm.CmdBindIP:       {with((*device).bindIP), 0},
	rdmacm.CmdBind:         {with((*device).bind), 0},
	rdmacm.CmdResolveIP:    {with((*device).resolveIP), 0},
	rdmacm.CmdResolveAddr:  {with((*device).resolveAddr), 0},
	rdmacm.CmdResolveRoute: {of((*id).resolveRoute), 0},
	rdmacm.CmdQueryRoute:   {of((*id).queryRoute), uverbs.Size[rdmacm.QueryRouteResp]() - 8}, // old programs omit ibdev_index
	rdmacm.CmdQuery:        {of((*id).query), 8},
	rdmacm.CmdConnect:      {older(of((*id).connect)), 0},
	rdmacm.CmdListen:       {of((*id).listen), 0},
	rdmacm.CmdAccept:       {older(of((*id).acceptConn)), 0},
	rdmacm.CmdReject:       {of((*id).reject), 0},
	rdmacm.CmdDisconnect:   {of((*id).disconnect), 0},
	rdmacm.CmdInitQPAttr:   {of((*id).initQPAttr), uverbs.Size[rdmacm.QPAttr]()},
	rdmacm.CmdGetEvent:     {(*device).getEvent, rdmacm.EventRespMin},
	rdmacm.CmdSetOption:    {of((*id).setOption), 0},
	rdmacm.CmdNotify:       {of((*id).notify), 0},
	rdmacm.CmdMigrateID:    {with((*device).migrateID), 4},
	rdmacm.CmdJoinIPMcast:  {with((*device).joinIPMcast), 4},
	rdmacm.CmdJoinMcast:    {with((*device).joinMcast), 4},
	rdmacm.CmdLeaveMcast:   {with((*device).leaveMcast), 4},
	rdmacm.ExtHello:        {with((*device).hello), uverbs.Size[rdmacm.HelloResp]()},
	rdmacm.ExtBell:         {(*device).bellBack, 0},
	rdmacm.ExtConnect:      {with((*device).connectTo), 4},
}

// maxEvents is the maximum number of events that wait for a program. Beyond it, the server refuses commands that
// result in an event. The number of identifiers limits connections.
const maxEvents = 8192

var emits = map[uint32]bool{rdmacm.CmdResolveIP: true, rdmacm.CmdResolveAddr: true, rdmacm.CmdResolveRoute: true,
	rdmacm.CmdJoinIPMcast: true, rdmacm.CmdJoinMcast: true, rdmacm.ExtConnect: true}

// serve executes commands until the connection ends.
func (c *device) serve() {
	for {
		msg, fds, err := c.conn.ReadMessage()
		if err != nil && !uverbs.Recoverable(err) {
			break
		}
		var a uverbs.Answer
		if a.Err = err; err == nil {
			a = c.answer(msg, fds)
			c.conn.Drop(fds)
		}
		err = c.conn.WriteAnswer(a)
		for _, f := range a.FDs {
			unix.Close(f.FD)
		}
		if err != nil {
			break
		}
	}
	c.conn.Close()
	c.srv.mu.Lock()
	defer c.srv.unlock()
	c.close()
}

// close destroys the context and all its objects.
func (c *device) close() {
	var mine []*id
	for _, i := range c.srv.ids {
		if i.ctx == c {
			mine = append(mine, i)
		}
	}
	for _, i := range mine {
		if c.srv.ids[i.num] == i { // a previous destroy may have removed it
			i.destroy()
		}
	}
	delete(c.srv.cookies, c.cookie)
	if c.bell >= 0 {
		unix.Close(c.bell)
		c.bell = -1
	}
}

// answer executes a command and sends the answer.
func (c *device) answer(msg []byte, fds []int) uverbs.Answer {
	var h rdmacm.Hdr
	if err := uverbs.DecodeInto(msg, &h); err != nil || int(h.In) > len(msg)-rdmacm.HdrLen {
		return uverbs.Answer{Err: unix.EINVAL}
	}
	cmd, ok := commands[h.Cmd]
	q := &request{body: msg[rdmacm.HdrLen:], out: int(h.Out), fds: fds}
	c.srv.mu.Lock()
	defer c.srv.unlock()
	switch {
	case !ok:
		return uverbs.Answer{Err: unix.ENOSYS}
	case c.bell < 0 && h.Cmd != rdmacm.ExtHello:
		return uverbs.Answer{Err: unix.EINVAL}
	case q.out < cmd.out:
		return uverbs.Answer{Err: unix.ENOSPC}
	case len(c.events) >= maxEvents && emits[h.Cmd]:
		return uverbs.Answer{Err: unix.ENOMEM}
	}
	if err := cmd.run(c, q); err != nil {
		return uverbs.Answer{Err: errnoOf(err)}
	}
	a := uverbs.Answer{FDs: q.send}
	if q.resp != nil {
		a.Body = uverbs.Append(nil, q.resp)
		a.Body = a.Body[:min(len(a.Body), q.out)]
	}
	return a
}

// errnoOf returns the errno that a kernel would return for an error.
func errnoOf(err error) unix.Errno {
	switch {
	case errors.Is(err, cm.ErrInUse):
		return unix.EADDRINUSE
	case errors.Is(err, cm.ErrLimit), errors.Is(err, rocev2.ErrNeighbours):
		return unix.ENOMEM
	case errors.Is(err, rocev2.ErrNoGroups):
		return unix.EOPNOTSUPP
	case errors.Is(err, rocev2.ErrNoRoute):
		return unix.ENETUNREACH
	case errors.Is(err, rocev2.ErrUnreachable):
		return unix.EHOSTUNREACH
	}
	if errno := uverbs.Errno(err); errno != unix.EIO || errors.Is(err, unix.EIO) {
		return errno
	}
	return unix.EINVAL
}

// hello opens the context: it selects the NICs and sends the event socket to the client.
func (c *device) hello(q *request, r *rdmacm.Hello) error {
	if r.Version != rdmacm.ExtVersion || r.Flags&^rdmacm.HelloEvents != 0 || c.bell >= 0 {
		return unix.EINVAL
	}
	name := uverbs.Text(r.NIC[:])
	for _, n := range c.srv.nics {
		if (name == "" || n.Name == name) && n.May(c.cred) {
			c.nics = append(c.nics, n)
		}
	}
	if name != "" && len(c.nics) == 0 {
		return unix.ENODEV
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c.bell, c.pushes = fds[0], r.Flags&rdmacm.HelloEvents != 0
	q.send = []uverbs.FD{{FD: fds[1], Kind: uverbs.FDNumber, Arg: 4}}
	q.resp = rdmacm.HelloResp{Version: rdmacm.ExtVersion}
	c.cookie = cookieOf(fds[1])
	c.srv.cookies[c.cookie] = c
	return nil
}

// cookieOf returns the cookie of a socket, or 0 if fd is no socket.
func cookieOf(fd int) uint64 {
	v, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return 0
	}
	return v
}

// find returns the context's identifier with number num.
func (c *device) find(num uint32) (*id, error) {
	i := c.srv.ids[num]
	if i == nil || i.ctx != c {
		return nil, unix.ENOENT
	}
	return i, nil
}

// uses reports whether the context may use n.
func (c *device) uses(n *nic) bool { return slices.Contains(c.nics, n) }
