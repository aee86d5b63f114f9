package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced/internal/abi/rdmacm"
	"roced/internal/abi/uverbs"
)

// ErrDisconnected says that a connection has ended, or was given up by the peer while
// it was being made.
var ErrDisconnected = errors.New("disconnected")

// RejectedError says that the peer has refused a connection.
type RejectedError struct {
	Reason      int    // IBTA vol.1 12.6.7.2; 8: nobody listens, 28: the consumer's own
	PrivateData []byte // at its full length, padded with zeros
}

// Error describes the error.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("connection rejected: reason %d", e.Reason)
}

// CM is an open connection manager (an event channel of rdma_cm): connections are made
// by IP address and port, and the wire carries what Linux's rdma_cm speaks. It is safe
// for concurrent use.
type CM struct {
	conn   *uverbs.Conn
	events *net.UnixConn
	reader sync.WaitGroup
	done   chan struct{} // closed when no more events come

	mu     sync.Mutex
	serial uint64
	ids    map[uint64]*cmID // by our number, the daemon's uid
}

// cmID is a communication identifier.
type cmID struct {
	cm     *CM
	num    uint32
	uid    uint64
	events chan *cmEvent
	once   sync.Once
}

// cmEvent is an event.
type cmEvent struct {
	rdmacm.EventResp
	attr *rdmacm.ConnAttr // of a connection that is asked for, or answered; else nil
}

// cmEvents is the room for events of an identifier beyond the requests of a listener:
// more than there can be.
const cmEvents = 16

// OpenCM opens the connection manager of the daemon whose run directory this is; an
// empty name stands for DefaultRunDir. It is confined to one NIC if nic is not empty.
func OpenCM(runDir, nic string) (*CM, error) {
	const verb = "create_event_channel"
	if runDir == "" {
		runDir = DefaultRunDir()
	}
	hello := rdmacm.Hello{Version: rdmacm.ExtVersion, Flags: rdmacm.HelloEvents}
	if !uverbs.SetText(hello.NIC[:], nic) {
		return nil, fail(verb, nic, ErrNoDevice)
	}
	conn, err := uverbs.Dial(filepath.Join(runDir, "rdma_cm"))
	if err != nil {
		return nil, fail(verb, runDir, err)
	}
	m := &CM{conn: conn, done: make(chan struct{}), ids: map[uint64]*cmID{}}
	_, fds, err := m.call(verb, rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), hello)
	if err == nil {
		a := &attached{fds: fds}
		m.events, err = socketOf(a.take(uverbs.FDNumber, 4))
		a.close()
	}
	if err != nil {
		return nil, errors.Join(explain(err, nic), conn.Close())
	}
	m.reader.Go(m.readEvents)
	return m, nil
}

// Close ends the connection manager: listeners end, and so do connections.
func (m *CM) Close() error {
	err := m.conn.Close()
	_ = m.events.Close()
	m.reader.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// call runs a command.
func (m *CM) call(verb string, number uint32, out int, body any) ([]byte, []uverbs.FD, error) {
	b := uverbs.Append(nil, rdmacm.Hdr{Cmd: number, Out: uint16(out)}, body)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)-rdmacm.HdrLen))
	resp, fds, err := m.conn.Call(b, nil)
	var errno unix.Errno
	switch {
	case err == nil:
		return resp, fds, nil
	case errors.As(err, &errno):
		return nil, nil, fail(verb, "", errno)
	}
	return nil, nil, fail(verb, err.Error(), ErrDeviceFatal)
}

// cmAsk runs a command that is answered with an R.
func cmAsk[R any](m *CM, verb string, number uint32, body any) (r R, err error) {
	resp, fds, err := m.call(verb, number, uverbs.Size[R](), body)
	if err != nil {
		return r, err
	}
	(&attached{fds: fds}).close()
	if r, err = uverbs.Decode[R](resp); err != nil {
		return r, fail(verb, "response", ErrProtocol)
	}
	return r, nil
}

// readEvents distributes events until the daemon or the context goes.
func (m *CM) readEvents() {
	defer close(m.done)
	b, taken := make([]byte, uverbs.Size[rdmacm.EventResp]()+uverbs.Size[rdmacm.ConnAttr]()), uint32(0)
	for {
		n, err := m.events.Read(b)
		if err != nil {
			return
		}
		e, err := decodeEvent(b[:n])
		if err != nil {
			return
		}
		m.mu.Lock()
		id := m.ids[e.UID]
		m.mu.Unlock()
		m.deliver(id, e)
		if taken++; taken < rdmacm.EventPlaces/2 {
			continue
		}
		if _, _, err := m.call("get_cm_event", rdmacm.ExtBell, 0, rdmacm.Bell{Taken: taken}); err != nil {
			return
		}
		taken = 0
	}
}

// decodeEvent decodes an event.
func decodeEvent(b []byte) (*cmEvent, error) {
	e := &cmEvent{}
	err := uverbs.DecodeInto(b, &e.EventResp)
	if rest := b[min(len(b), uverbs.Size[rdmacm.EventResp]()):]; err == nil && len(rest) > 0 {
		e.attr = &rdmacm.ConnAttr{}
		err = uverbs.DecodeInto(rest, e.attr)
	}
	return e, err
}

// deliver gives an event to an identifier, which may be gone. Requests that nobody
// takes are refused.
func (m *CM) deliver(id *cmID, e *cmEvent) {
	if id != nil {
		select {
		case id.events <- e:
			return
		default:
		}
	}
	if e.Event == rdmacm.EventConnectRequest {
		m.destroy(e.ID)
	}
}

// destroy ends an identifier of the daemon. There is nothing to be done if it fails.
func (m *CM) destroy(num uint32) {
	_, _ = cmAsk[rdmacm.DestroyIDResp](m, "destroy_id", rdmacm.CmdDestroyID, rdmacm.DestroyID{ID: num})
}

// adopt makes an identifier of the daemon's number num.
func (m *CM) adopt(num uint32, room int) *cmID {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	id := &cmID{cm: m, num: num, uid: m.serial, events: make(chan *cmEvent, room+cmEvents)}
	m.ids[id.uid] = id
	return id
}

// newID makes an identifier that is to listen, with room for so many requests.
func (m *CM) newID(space rdmacm.PortSpace, room int) (*cmID, error) {
	id := m.adopt(0, room)
	r, err := cmAsk[rdmacm.CreateIDResp](m, "create_id", rdmacm.CmdCreateID, rdmacm.CreateID{UID: id.uid, PS: space})
	if err != nil {
		m.forget(id)
		return nil, err
	}
	id.num = r.ID
	return id, nil
}

// resolveTimeout bounds address resolution if the caller's context does not.
const resolveTimeout = 5 * time.Second

// ask makes an identifier and asks the listener at an address; the answer is an event.
func (m *CM) ask(space rdmacm.PortSpace, to netip.AddrPort, p rdmacm.ConnParam) (*cmID, error) {
	id := m.adopt(0, 0)
	s, n := putSockaddr(to)
	r, err := cmAsk[rdmacm.CreateIDResp](m, "connect", rdmacm.ExtConnect, rdmacm.ConnectTo{UID: id.uid, PS: space,
		TimeoutMS: uint32(resolveTimeout.Milliseconds()), DstSize: n, DstAddr: s, ConnParam: p})
	if err != nil {
		m.forget(id)
		return nil, err
	}
	id.num = r.ID
	return id, nil
}

func (m *CM) forget(id *cmID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ids, id.uid)
}

// close ends the identifier.
func (i *cmID) close() {
	i.once.Do(func() {
		i.cm.destroy(i.num)
		i.cm.forget(i)
		for len(i.events) > 0 {
			if e := <-i.events; e.Event == rdmacm.EventConnectRequest {
				i.cm.destroy(e.ID)
			}
		}
	})
}

// run runs a command without a response.
func (i *cmID) run(verb string, number uint32, body any) error {
	_, fds, err := i.cm.call(verb, number, 0, body)
	(&attached{fds: fds}).close()
	return err
}

// next waits for an event of a kind; another one is an error.
func (i *cmID) next(ctx context.Context, verb string, kind uint32) (e *cmEvent, err error) {
	select {
	case e = <-i.events:
	case <-ctx.Done():
		return nil, fail(verb, "", ctx.Err())
	case <-i.cm.done:
		return nil, fail(verb, "", ErrDeviceFatal)
	}
	if e.Event != kind {
		err = fail(verb, "", eventError(e))
	}
	return e, err
}

// eventError is the error that an event stands for.
func eventError(e *cmEvent) error {
	switch e.Event {
	case rdmacm.EventRejected:
		p := connParamOf(e)
		return &RejectedError{Reason: int(e.Status), PrivateData: p.Private()}
	case rdmacm.EventDisconnected, rdmacm.EventTimewaitExit:
		return ErrDisconnected
	case rdmacm.EventDeviceRemoval:
		return ErrDeviceFatal
	}
	if s := int32(e.Status); s < 0 {
		return unix.Errno(-s)
	}
	return ErrProtocol
}

// connParamOf is the parameter of an event.
func connParamOf(e *cmEvent) (p rdmacm.ConnParam) {
	// The parameter is longer than the structure.
	_ = uverbs.DecodeInto(e.Param[:], &p)
	return p
}

// putSockaddr makes a socket address.
func putSockaddr(a netip.AddrPort) (s rdmacm.SockaddrStorage, n uint16) {
	binary.BigEndian.PutUint16(s[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		copy(s[4:], a.Addr().AsSlice())
		return s, unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	copy(s[8:], a.Addr().AsSlice())
	return s, unix.SizeofSockaddrInet6
}

// sockaddr reads a socket address of the daemon.
func sockaddr(s *rdmacm.SockaddrStorage) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(s[8:24]))
	if binary.NativeEndian.Uint16(s[:]) == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(s[4:8]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(s[2:]))
}
