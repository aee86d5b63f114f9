// Package nldev answers RDMA netlink (RDMA_NL_NLDEV of rdma/rdma_netlink.h), which the tool rdma of iproute2 uses. It only
// reads. The daemon serves it on a socket, and the preload library shows this socket as a netlink socket.
package nldev

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/sysfs"
)

// Socket is the name of the socket in the run directory.
const Socket = "netlink"

// MaxRequest is the maximum length of a datagram with requests.
const MaxRequest = 8192

// Device is a verbs device.
type Device struct {
	Index    uint32
	Name     string
	Firmware string
	GUID     [8]byte
	// Capabilities are the device_cap_flags of ibv_query_device.
	Capabilities uint64
	Netdev       string // network device of the port; empty: none
	// NetdevIndex is the interface index of Netdev.
	NetdevIndex uint32
}

// View is the part of the system that a peer may see.
type View interface {
	Devices() []Device
	// Active reports whether the port of a device is up.
	Active(ctx context.Context, device string) (bool, error)
	// Resources returns the objects of a kind (qp, mr, cq, pd or cm_id) of a device.
	Resources(ctx context.Context, device, kind string) ([]api.Resource, error)
}

// Commands (enum rdma_nldev_command).
const (
	cmdGet     = 1
	cmdPortGet = 5
	cmdSysGet  = 6
	cmdResGet  = 9
	cmdResQP   = 10
	cmdResCMID = 11
	cmdResCQ   = 12
	cmdResMR   = 13
	cmdResPD   = 14
	cmdChardev = 15
)

// Message types: the client (RDMA_NL_NLDEV) and the command.
const (
	clientShift = 10
	client      = 5 << clientShift
)

// handlers has the functions that answer the commands. They return an error number to refuse.
var handlers = map[uint16]func(*answerer, *request) error{
	client | cmdGet:     (*answerer).devices,
	client | cmdPortGet: (*answerer).ports,
	client | cmdSysGet:  (*answerer).system,
	client | cmdResGet:  (*answerer).summary,
	client | cmdResQP:   qpTable.answer,
	client | cmdResCMID: cmTable.answer,
	client | cmdResCQ:   cqTable.answer,
	client | cmdResMR:   mrTable.answer,
	client | cmdResPD:   pdTable.answer,
	client | cmdChardev: (*answerer).chardev,
}

// answerer answers the requests of a datagram.
type answerer struct {
	ctx  context.Context
	view View
	send func([]byte) error
}

// Answer answers the requests of a datagram. Each answer is one call of send, whose error it returns.
func Answer(ctx context.Context, datagram []byte, view View, send func([]byte) error) error {
	a := &answerer{ctx, view, send}
	for _, r := range parse(datagram) {
		if err := a.answer(&r); err != nil {
			return err
		}
	}
	return nil
}

func (a *answerer) answer(r *request) error {
	handler := handlers[r.kind]
	if handler == nil {
		return a.status(r, unix.EOPNOTSUPP)
	}
	err := handler(a, r)
	var failure unix.Errno
	switch {
	case errors.As(err, &failure):
		return a.status(r, failure)
	case err != nil:
		return err
	case r.dump():
		m := newMessage(r, unix.NLMSG_DONE, unix.NLM_F_MULTI)
		return a.send(append(m, 0, 0, 0, 0).done())
	case r.flags&unix.NLM_F_ACK != 0:
		return a.status(r, 0)
	}
	return nil
}

// status sends an NLMSG_ERROR; 0 acknowledges the request.
func (a *answerer) status(r *request, err unix.Errno) error {
	m := newMessage(r, unix.NLMSG_ERROR, 0)
	m = native.AppendUint32(m, uint32(-int32(err)))
	return a.send(append(m, r.head...).done())
}

// begin begins an answer about a device.
func (a *answerer) begin(r *request, d *Device) message {
	var flags uint16
	if r.dump() {
		flags = unix.NLM_F_MULTI
	}
	m := newMessage(r, r.kind, flags)
	m.u32(attrDevIndex, d.Index)
	m.text(attrDevName, d.Name)
	return m
}

// selected returns the devices of a request: the named one, or all if the request is a dump.
func (a *answerer) selected(r *request) ([]Device, error) {
	all := a.view.Devices()
	index, named := r.number(attrDevIndex)
	if !named && r.dump() {
		return all, nil
	}
	if !named {
		return nil, unix.EINVAL
	}
	for _, d := range all {
		if d.Index == index {
			return []Device{d}, nil
		}
	}
	return nil, unix.ENODEV
}

// each sends one message for each device of a request.
func (a *answerer) each(r *request, fill func(*Device, *message) error) error {
	list, err := a.selected(r)
	if err != nil {
		return err
	}
	for i := range list {
		m := a.begin(r, &list[i])
		if err := fill(&list[i], &m); err != nil {
			return err
		}
		if err := a.send(m.done()); err != nil {
			return sendError{err}
		}
	}
	return nil
}

// devices answers RDMA_NLDEV_CMD_GET.
func (a *answerer) devices(r *request) error {
	return a.each(r, func(d *Device, m *message) error {
		guid := binary.BigEndian.Uint64(d.GUID[:])
		m.u32(attrPortIndex, port)
		m.u64(attrCapFlags, d.Capabilities)
		m.text(attrFirmware, d.Firmware)
		m.u64(attrNodeGUID, guid)
		m.u64(attrImageGUID, guid)
		m.u8(attrNodeType, nodeCA)
		m.text(attrProtocol, "roce")
		return nil
	})
}

// ports answers RDMA_NLDEV_CMD_PORT_GET.
func (a *answerer) ports(r *request) error {
	if n, named := r.number(attrPortIndex); named && n != port || !named && !r.dump() {
		return unix.EINVAL
	}
	return a.each(r, func(d *Device, m *message) error {
		active, err := a.view.Active(a.ctx, d.Name)
		if err != nil {
			return unix.EIO
		}
		state, phys := uint8(portDown), uint8(physPolling)
		if active {
			state, phys = portActive, physLinkUp
		}
		m.u32(attrPortIndex, port)
		m.u8(attrPortState, state)
		m.u8(attrPhysState, phys)
		if d.Netdev != "" {
			m.u32(attrNetdevIndex, d.NetdevIndex)
			m.text(attrNetdevName, d.Netdev)
		}
		return nil
	})
}

// chardev answers RDMA_NLDEV_CMD_GET_CHARDEV, by which libibverbs finds the node of a device. Other nodes than uverbs do not
// exist, except rdma_cm, which librdmacm finds in sysfs.
func (a *answerer) chardev(r *request) error {
	if string(bytes.TrimRight(r.attrs[attrChardevType], "\x00")) != "uverbs" || r.dump() {
		return unix.EOPNOTSUPP
	}
	return a.each(r, func(d *Device, m *message) error {
		m.text(attrChardevName, "uverbs"+strconv.Itoa(int(d.Index)))
		m.u64(attrChardevABI, sysfs.RxeABI)
		m.u64(attrChardev, unix.Mkdev(sysfs.VerbMajor, sysfs.VerbMinor+d.Index))
		m.u32(attrDriver, driverRxe)
		return nil
	})
}

// system answers RDMA_NLDEV_CMD_SYS_GET: network namespaces share the devices, and children of fork() have copies of
// registered memory. Without copy-on-fork libibverbs keeps registered pages from children (MADV_DONTFORK), which
// end when they touch them.
func (a *answerer) system(r *request) error {
	m := newMessage(r, r.kind, 0)
	m.u8(attrNetnsMode, netnsShared)
	m.u8(attrCopyOnFork, 1)
	if err := a.send(m.done()); err != nil {
		return sendError{err}
	}
	return nil
}

// summary answers RDMA_NLDEV_CMD_RES_GET: the number of objects of each kind.
func (a *answerer) summary(r *request) error {
	return a.each(r, func(d *Device, m *message) error {
		var err error
		m.nest(attrSummary, func(m *message) {
			for _, t := range []*table{pdTable, cqTable, qpTable, cmTable, mrTable} {
				list, e := a.view.Resources(a.ctx, d.Name, t.kind)
				if e != nil {
					err = unix.EIO
				}
				m.nest(attrSummaryEntry, func(m *message) {
					m.text(attrSummaryName, t.kind)
					m.u64(attrSummaryCount, uint64(len(list)))
				})
			}
		})
		return err
	})
}

// sendError is the failure of a connection. It hides error numbers, which would be answers.
type sendError struct{ error }
