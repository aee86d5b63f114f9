package verbs

import (
	"encoding/binary"
	"net/netip"
	"os"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// cmBackend is the provider of a CM: roced through a socket (cmDaemon), or the kernel through its file rdma_cm (cmKernel).
type cmBackend interface {
	// open attaches the backend to m.
	open(m *CM) error
	// call runs a command, whose bytes it may change, with room bytes for the response. A unix.Errno is the response.
	call(cmd []byte, room int) ([]byte, error)
	// next waits for the next event. After an error there are no more.
	next() (*cmEvent, error)
	// ask creates an identifier of the backend for id and starts a connection to an address. An event reports the result.
	ask(id *cmID, to netip.AddrPort) (num uint32, err error)
	// close destroys all identifiers and aborts next.
	close() error
}

// cmCommand encodes a command.
func cmCommand(number uint32, room int, body any) []byte {
	b := uverbs.Append(nil, rdmacm.Hdr{Cmd: number, Out: uint16(room)}, body)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)-rdmacm.HdrLen))
	return b
}

// cmDaemon is the connection manager of roced.
type cmDaemon struct {
	conn   *uverbs.Conn
	nic    string // empty: all
	events *os.File
	buf    []byte
	taken  uint32 // events taken and not reported to the daemon
}

func (d *cmDaemon) open(*CM) error {
	const verb = "create_event_channel"
	d.buf = make([]byte, uverbs.Size[rdmacm.EventResp]()+uverbs.Size[rdmacm.ConnAttr]())
	hello := rdmacm.Hello{Version: rdmacm.ExtVersion, Flags: rdmacm.HelloEvents}
	if !uverbs.SetText(hello.NIC[:], d.nic) {
		return fail(verb, d.nic, ErrNoDevice)
	}
	_, fds, err := d.conn.Call(cmCommand(rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), hello), nil)
	if err != nil {
		return explain(failCM(verb, err), d.nic)
	}
	a := &attached{fds: fds}
	defer a.close()
	if d.events, err = eventFile(a.take(uverbs.FDNumber, 4)); err != nil {
		return fail(verb, "", err)
	}
	return nil
}

func (d *cmDaemon) call(cmd []byte, _ int) ([]byte, error) {
	resp, fds, err := d.conn.Call(cmd, nil)
	(&attached{fds: fds}).close()
	return resp, err
}

// next takes an event. After half of the queue it reports the taken events to the daemon, which frees their slots.
func (d *cmDaemon) next() (*cmEvent, error) {
	if d.taken == rdmacm.EventPlaces/2 {
		if _, err := d.call(cmCommand(rdmacm.ExtBell, 0, rdmacm.Bell{Taken: d.taken}), 0); err != nil {
			return nil, err
		}
		d.taken = 0
	}
	n, err := d.events.Read(d.buf)
	if err != nil {
		return nil, err
	}
	d.taken++
	e := &cmEvent{}
	err = uverbs.DecodeInto(d.buf[:n], &e.EventResp)
	if rest := d.buf[min(n, uverbs.Size[rdmacm.EventResp]()):n]; err == nil && len(rest) > 0 {
		e.attr = &rdmacm.ConnAttr{}
		err = uverbs.DecodeInto(rest, e.attr)
	}
	return e, err
}

// ask runs one command.
func (d *cmDaemon) ask(id *cmID, to netip.AddrPort) (uint32, error) {
	s, n := putSockaddr(to)
	resp, err := d.call(cmCommand(rdmacm.ExtConnect, uverbs.Size[rdmacm.CreateIDResp](), rdmacm.ConnectTo{UID: id.uid, PS: id.space,
		TimeoutMS: uint32(resolveTimeout.Milliseconds()), DstSize: n, DstAddr: s, ConnParam: *id.param}), 0)
	if err != nil {
		return 0, err
	}
	r, err := uverbs.Decode[rdmacm.CreateIDResp](resp)
	return r.ID, err
}

func (d *cmDaemon) close() error {
	err := d.conn.Close()
	if d.events != nil {
		_ = d.events.Close()
	}
	return err
}
