package verbs

import (
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// cmKernel is the connection manager of the kernel, for all its devices.
type cmKernel struct {
	dev cmFile
	cm  *CM
}

// cmFile is the file rdma_cm.
type cmFile interface {
	Write([]byte) (int, error)
	Close() error
	// await waits until an event may be available.
	await() error
}

// ucmFile is a cmFile of the kernel. Package os has made it non-blocking, so that GET_EVENT does not wait.
type ucmFile struct{ *os.File }

// Write writes a command. File.Write would block on EAGAIN.
func (f ucmFile) Write(cmd []byte) (n int, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlled := c.Control(func(fd uintptr) {
		for n, err = unix.Write(int(fd), cmd); err == unix.EINTR; {
			n, err = unix.Write(int(fd), cmd)
		}
	})
	return n, errors.Join(err, controlled)
}

func (f ucmFile) await() error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
}

func (k *cmKernel) open(m *CM) error {
	k.cm = m
	return nil
}

// call writes a command. The address of the response is the first field of a command, but the second of CREATE_ID.
func (k *cmKernel) call(cmd []byte, room int) ([]byte, error) {
	at := rdmacm.HdrLen
	if h, err := uverbs.Decode[rdmacm.Hdr](cmd); err == nil && h.Cmd == rdmacm.CmdCreateID {
		at += 8
	}
	return writeCommand(k.dev, cmd, at, room)
}

func (k *cmKernel) run(number uint32, body any) error {
	_, err := k.call(cmCommand(number, 0, body), 0)
	return err
}

// kernelAsk runs a command whose response is an R.
func kernelAsk[R any](k *cmKernel, number uint32, body any) (r R, err error) {
	room := uverbs.Size[R]()
	resp, err := k.call(cmCommand(number, room, body), room)
	if err != nil {
		return r, err
	}
	return uverbs.Decode[R](resp)
}

// next takes an event for the program. After an event of a step of ask it runs the next step.
func (k *cmKernel) next() (*cmEvent, error) {
	for {
		if err := k.dev.await(); err != nil {
			return nil, err
		}
		r, err := kernelAsk[rdmacm.EventResp](k, rdmacm.CmdGetEvent, struct{ Response uint64 }{})
		if err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return nil, err
		}
		e := &cmEvent{EventResp: r}
		if k.follow(e) {
			return e, nil
		}
	}
}

// follow runs the step after an event and reports whether the event is for the program. If the step fails, the event
// becomes a connection error.
func (k *cmKernel) follow(e *cmEvent) bool {
	id := k.cm.find(e.UID)
	if id == nil {
		return true
	}
	var err error
	switch e.Event {
	case rdmacm.EventAddrResolved:
		err = k.run(rdmacm.CmdResolveRoute, rdmacm.ResolveRoute{ID: e.ID, TimeoutMS: uint32(resolveTimeout.Milliseconds())})
	case rdmacm.EventRouteResolved:
		err = k.run(rdmacm.CmdConnect, rdmacm.Connect{ID: e.ID, ConnParam: *id.param})
	case rdmacm.EventConnectRequest:
		if id.space != rdmacm.PSTCP {
			return true
		}
		if e.attr, err = k.attr(e.ID); err != nil { // the request is gone
			k.cm.destroy(e.ID)
		}
		return err == nil
	case rdmacm.EventConnectResponse:
		e.attr, err = k.attr(e.ID)
	default:
		return true
	}
	if err != nil {
		errno, _ := bare(err).(unix.Errno)
		e.Event, e.Status = rdmacm.EventConnectError, uint32(-int32(errno))
	}
	return err != nil || e.Event == rdmacm.EventConnectResponse
}

// attr queries the attributes that roced sends with the event.
func (k *cmKernel) attr(num uint32) (*rdmacm.ConnAttr, error) {
	a := &rdmacm.ConnAttr{}
	for _, s := range []struct {
		state QPState
		to    *rdmacm.QPAttr
	}{{QPInit, &a.Init}, {QPRTR, &a.RTR}, {QPRTS, &a.RTS}} {
		var err error
		*s.to, err = kernelAsk[rdmacm.QPAttr](k, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: num, QPState: uint32(s.state)})
		if err != nil {
			return nil, err
		}
		s.to.QPState = uint32(s.state)
	}
	q, err := kernelAsk[rdmacm.QueryAddrResp](k, rdmacm.CmdQuery, rdmacm.Query{ID: num, Option: rdmacm.QueryAddr})
	a.SrcAddr, a.DstAddr = q.SrcAddr, q.DstAddr
	return a, err
}

// ask runs the first of four steps. Events trigger the others (follow).
func (k *cmKernel) ask(id *cmID, to netip.AddrPort) (uint32, error) {
	r, err := kernelAsk[rdmacm.CreateIDResp](k, rdmacm.CmdCreateID, rdmacm.CreateID{UID: id.uid, PS: id.space})
	if err != nil {
		return 0, err
	}
	s, n := putSockaddr(to)
	err = k.run(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: r.ID, TimeoutMS: uint32(resolveTimeout.Milliseconds()), DstSize: n, DstAddr: s})
	if err != nil {
		k.cm.destroy(r.ID)
	}
	return r.ID, err
}

func (k *cmKernel) close() error { return k.dev.Close() }
