package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// ErrDisconnected is the error of a connection that has ended, or that the peer
// abandoned during setup.
var ErrDisconnected = errors.New("disconnected")

// RejectedError is the error of a connection that the peer has rejected.
type RejectedError struct {
	Reason      int    // IBTA vol.1 12.6.7.2; 8: no listener, 28: rejected by the consumer
	PrivateData []byte // of the REJ at its full length, padded with zeros
}

// Error describes the error.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("connection rejected: reason %d", e.Reason)
}

// CM is an open connection manager (an event channel of rdma_cm). It connects by IP
// address and port, with the wire protocol of Linux' rdma_cm. It is safe for
// concurrent use.
type CM struct {
	dev    cmBackend
	reader sync.WaitGroup
	done   chan struct{} // closed after the last event

	mu     sync.Mutex
	serial uint64
	ids    map[uint64]*cmID // identifiers by uid
}

// cmID is a communication identifier.
type cmID struct {
	cm     *CM
	num    uint32
	uid    uint64
	space  rdmacm.PortSpace
	param  *rdmacm.ConnParam // parameters of an active side, else nil
	events chan *cmEvent
	once   sync.Once
}

// cmEvent is an event.
type cmEvent struct {
	rdmacm.EventResp
	attr *rdmacm.ConnAttr // attributes of a connection request or response, else nil
}

// cmEvents is the number of queued events of an identifier, without the requests of a
// listener. It exceeds the possible maximum.
const cmEvents = 16

// OpenCM opens the connection manager of a daemon for one NIC or, if nic is empty, for all its NICs. The kernel's
// connection manager ignores nic: the kernel's routes choose the device.
func OpenCM(nic string, opts ...Option) (*CM, error) {
	runDir := apply(opts).runDir
	path := filepath.Join(runDir, "rdma_cm")
	var dev cmBackend
	if isKernel(path) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, fail("create_event_channel", path, bare(err))
		}
		dev = &cmKernel{dev: ucmFile{f}}
	} else {
		conn, err := uverbs.Dial(path)
		if err != nil {
			return nil, fail("create_event_channel", runDir, err)
		}
		dev = &cmDaemon{conn: conn, nic: nic}
	}
	return newCM(dev)
}

// newCM returns a CM for a backend, which it closes on error.
func newCM(dev cmBackend) (*CM, error) {
	m := &CM{dev: dev, done: make(chan struct{}), ids: map[uint64]*cmID{}}
	if err := dev.open(m); err != nil {
		return nil, errors.Join(err, dev.close())
	}
	m.reader.Go(m.readEvents)
	return m, nil
}

// Close closes the connection manager with its listeners and connections.
func (m *CM) Close() error {
	err := m.dev.close()
	m.reader.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// call runs a command.
func (m *CM) call(verb string, number uint32, room int, body any) ([]byte, error) {
	resp, err := m.dev.call(cmCommand(number, room, body), room)
	if err != nil {
		return nil, failCM(verb, err)
	}
	return resp, nil
}

// failCM returns the error of a command: the errno of the response, or ErrDeviceFatal.
func failCM(verb string, err error) error {
	if errno, ok := bare(err).(unix.Errno); ok {
		return fail(verb, "", errno)
	}
	return fail(verb, err.Error(), ErrDeviceFatal)
}

// cmAsk runs a command whose response is an R.
func cmAsk[R any](m *CM, verb string, number uint32, body any) (r R, err error) {
	resp, err := m.call(verb, number, uverbs.Size[R](), body)
	if err != nil {
		return r, err
	}
	if r, err = uverbs.Decode[R](resp); err != nil {
		return r, fail(verb, "response", ErrProtocol)
	}
	return r, nil
}

// readEvents distributes events until the daemon ends or the CM is closed.
func (m *CM) readEvents() {
	defer close(m.done)
	for {
		e, err := m.dev.next()
		if err != nil {
			return
		}
		m.deliver(m.find(e.UID), e)
	}
}

// find returns the identifier with a uid, or nil.
func (m *CM) find(uid uint64) *cmID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ids[uid]
}

// deliver queues an event for an identifier. It rejects a request for a connection if
// id is nil or its queue is full.
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

// destroy destroys an identifier of the daemon. It ignores errors: the caller cannot recover.
func (m *CM) destroy(num uint32) {
	_, _ = cmAsk[rdmacm.DestroyIDResp](m, "destroy_id", rdmacm.CmdDestroyID, rdmacm.DestroyID{ID: num})
}

// adopt returns an identifier for the daemon's number num. An active side passes p.
func (m *CM) adopt(space rdmacm.PortSpace, num uint32, room int, p *rdmacm.ConnParam) *cmID {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	id := &cmID{cm: m, num: num, uid: m.serial, space: space, param: p, events: make(chan *cmEvent, room+cmEvents)}
	m.ids[id.uid] = id
	return id
}

// newID creates an identifier for a listener with a queue of room requests.
func (m *CM) newID(space rdmacm.PortSpace, room int) (*cmID, error) {
	id := m.adopt(space, 0, room, nil)
	r, err := cmAsk[rdmacm.CreateIDResp](m, "create_id", rdmacm.CmdCreateID, rdmacm.CreateID{UID: id.uid, PS: space})
	if err != nil {
		m.forget(id)
		return nil, err
	}
	id.num = r.ID
	return id, nil
}

// resolveTimeout limits address resolution.
const resolveTimeout = 5 * time.Second

// ask creates an identifier and sends a request to a listener. The response is an event.
func (m *CM) ask(space rdmacm.PortSpace, to netip.AddrPort, p rdmacm.ConnParam) (*cmID, error) {
	id := m.adopt(space, 0, 0, &p)
	num, err := m.dev.ask(id, to)
	if err != nil {
		m.forget(id)
		return nil, failCM("connect", err)
	}
	id.num = num
	return id, nil
}

func (m *CM) forget(id *cmID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ids, id.uid)
}

// close destroys the identifier and rejects its queued requests.
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
	_, err := i.cm.call(verb, number, 0, body)
	return err
}

// next waits for an event, which must be of the given kind.
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

// eventError returns the error of an event.
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

// connParamOf returns the parameters in an event.
func connParamOf(e *cmEvent) (p rdmacm.ConnParam) {
	// The parameter is longer than the structure.
	_ = uverbs.DecodeInto(e.Param[:], &p)
	return p
}

// putSockaddr encodes a socket address and returns its length.
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

// sockaddr decodes a socket address.
func sockaddr(s *rdmacm.SockaddrStorage) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(s[8:24]))
	if binary.NativeEndian.Uint16(s[:]) == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(s[4:8]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(s[2:]))
}
