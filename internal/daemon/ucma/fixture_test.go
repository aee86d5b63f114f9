package ucma

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/shard"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lab starts two servers whose NICs are connected. Host i has the addresses 198.18.0.i+1 and fd00::i+1.
func lab(t *testing.T) [2]string {
	t.Helper()
	dir := t.TempDir()
	return [2]string{newHost(t, dir, 0).cfg.Path, newHost(t, dir, 1).cfg.Path}
}

func newHost(t *testing.T, dir string, i int) *Server {
	t.Helper()
	return newHostWith(t, dir, i, testQuota())
}

func newHostWith(t *testing.T, dir string, i int, q *quota.Ledger) *Server {
	t.Helper()
	return newHostAt(t, dir, i, q, rocev2.Config{Addrs: []netip.Prefix{
		netip.MustParsePrefix([2]string{"198.18.0.1/24", "198.18.0.2/24"}[i]),
		netip.MustParsePrefix([2]string{"fd00::1/64", "fd00::2/64"}[i])}})
}

// newHostAt makes host i, whose NIC has the given addresses.
func newHostAt(t *testing.T, dir string, i int, q *quota.Ledger, cfg rocev2.Config) *Server {
	t.Helper()
	names := [2]string{"a", "b"}
	port, err := unixport.Open(unixport.Config{Local: filepath.Join(dir, "link-"+names[i]), Remote: filepath.Join(dir, "link-"+names[1-i])})
	must(t, err)
	mac := inet.MAC{2, 0, 0, 0, 0, byte(i + 1)}
	cfg.Name, cfg.MAC, cfg.MTU, cfg.Seed = "rxe_"+names[i], mac, 1500, [32]byte{byte(i)}
	cfg.NewProfile = func(name string) (qp.Profile, error) { return rocev2.NewProfile(name) }
	core, err := rocev2.New(cfg)
	must(t, err)
	sh, err := shard.New(shard.Config{NIC: core, Port: port})
	must(t, err)
	socket := filepath.Join(dir, "cm-"+names[i])
	srv, err := New(Config{Path: socket, Mode: 0o600, Quota: q, Log: slog.New(slog.DiscardHandler),
		NICs: []NIC{{Name: "rxe_" + names[i], GUID: server.GUID(mac), Shard: sh, May: func(*unix.Ucred) bool { return true }}}})
	must(t, err)
	t.Cleanup(func() {
		for _, f := range []func() error{srv.Close, sh.Close, port.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	})
	return srv
}

// client is a program with an open rdma_cm device.
type client struct {
	t    *testing.T
	conn *uverbs.Conn
	bell int
}

func open(t *testing.T, socket string) *client { return openWith(t, socket, 0) }

func openWith(t *testing.T, socket string, flags uint32) *client {
	t.Helper()
	conn, err := uverbs.Dial(socket)
	must(t, err)
	c := &client{t: t, conn: conn, bell: -1}
	t.Cleanup(c.close)
	_, fds, err := c.raw(rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), rdmacm.Hello{Version: rdmacm.ExtVersion, Flags: flags}, nil)
	must(t, err)
	if len(fds) != 1 || fds[0].Kind != uverbs.FDNumber {
		t.Fatalf("hello came with %v", fds)
	}
	c.bell = fds[0].FD
	tv := unix.NsecToTimeval(int64(20 * time.Second)) // only a failing test waits so long
	must(t, unix.SetsockoptTimeval(c.bell, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	return c
}

func (c *client) close() {
	c.conn.Close()
	if c.bell >= 0 {
		unix.Close(c.bell)
		c.bell = -1
	}
}

// raw sends a command.
func (c *client) raw(cmd uint32, out int, body any, fds []int) ([]byte, []uverbs.FD, error) {
	b := uverbs.Append(nil, rdmacm.Hdr{Cmd: cmd, Out: uint16(out)}, body)
	native.PutUint16(b[4:], uint16(len(b)-rdmacm.HdrLen))
	return c.conn.Call(b, fds)
}

// do runs a command that must succeed.
func (c *client) do(cmd uint32, body any) {
	c.t.Helper()
	_, _, err := c.raw(cmd, 0, body, nil)
	must(c.t, err)
}

// refuse runs a command that must fail with the given error.
func (c *client) refuse(want unix.Errno, cmd uint32, out int, body any) {
	c.t.Helper()
	if _, _, err := c.raw(cmd, out, body, nil); !errors.Is(err, want) {
		c.t.Errorf("command %d: %v, want %v", cmd, err, want)
	}
}

func ask[R any](c *client, cmd uint32, body any) R {
	c.t.Helper()
	b, _, err := c.raw(cmd, uverbs.Size[R](), body, nil)
	must(c.t, err)
	r, err := uverbs.Decode[R](b)
	must(c.t, err)
	return r
}

func (c *client) create(uid uint64, ps rdmacm.PortSpace) uint32 {
	c.t.Helper()
	return ask[rdmacm.CreateIDResp](c, rdmacm.CmdCreateID, rdmacm.CreateID{UID: uid, PS: ps, QPType: qpRC}).ID
}

func (c *client) destroy(id uint32) uint32 {
	c.t.Helper()
	return ask[rdmacm.DestroyIDResp](c, rdmacm.CmdDestroyID, rdmacm.DestroyID{ID: id}).EventsReported
}

// next waits for an event, which must be of the given kind.
func (c *client) next(kind uint32) rdmacm.EventResp {
	c.t.Helper()
	var b [1]byte
	n, err := unix.Read(c.bell, b[:])
	for err == unix.EINTR { // a read with a timeout ends at a signal (signal(7))
		n, err = unix.Read(c.bell, b[:])
	}
	if n != 1 {
		c.t.Fatalf("no event %d: %d, %v", kind, n, err)
	}
	e := ask[rdmacm.EventResp](c, rdmacm.CmdGetEvent, uint64(0))
	if e.Event != kind {
		c.t.Fatalf("event %d with status %d, want event %d", e.Event, int32(e.Status), kind)
	}
	return e
}

// quiet checks that no event waits.
func (c *client) quiet() {
	c.t.Helper()
	var b [1]byte
	if n, _, err := unix.Recvfrom(c.bell, b[:], unix.MSG_DONTWAIT); n > 0 {
		c.t.Errorf("an event waits")
	} else if err != unix.EAGAIN {
		c.t.Errorf("event socket: %v", err)
	}
}

func storage(addr string) (s rdmacm.SockaddrStorage, n uint16) {
	a := netip.MustParseAddrPort(addr)
	n = endpointOf(a.Addr(), a.Port()).putSockaddr(s[:])
	return s, n
}

func (c *client) bindTo(id uint32, addr string) {
	c.t.Helper()
	s, n := storage(addr)
	c.do(rdmacm.CmdBind, rdmacm.Bind{ID: id, AddrSize: n, Addr: s})
}

// listenOn creates a listener.
func (c *client) listenOn(uid uint64, ps rdmacm.PortSpace, addr string, backlog uint32) uint32 {
	c.t.Helper()
	id := c.create(uid, ps)
	c.bindTo(id, addr)
	c.do(rdmacm.CmdListen, rdmacm.Listen{ID: id, Backlog: backlog})
	return id
}

// route creates an identifier with a route to addr.
func (c *client) routeTo(uid uint64, ps rdmacm.PortSpace, addr string) uint32 {
	c.t.Helper()
	id := c.create(uid, ps)
	c.resolve(id, addr)
	return id
}

// resolve resolves address and route.
func (c *client) resolve(id uint32, addr string) {
	c.t.Helper()
	s, n := storage(addr)
	c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 15000, DstSize: n, DstAddr: s})
	c.next(rdmacm.EventAddrResolved)
	c.do(rdmacm.CmdResolveRoute, rdmacm.ResolveRoute{ID: id, TimeoutMS: 2000})
	c.next(rdmacm.EventRouteResolved)
}

func param(qpn uint32, private string) (p rdmacm.ConnParam) {
	p = rdmacm.ConnParam{QPNum: qpn, ResponderResources: 3, InitiatorDepth: 2, RetryCount: 7, RNRRetryCount: 6, Valid: 1}
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], private))
	return p
}

// connOf returns the parameter of a connection event.
func connOf(t *testing.T, e *rdmacm.EventResp) (p rdmacm.ConnParam) {
	t.Helper()
	_, err := binary.Decode(e.Param[:], native, &p)
	must(t, err)
	return p
}

// testQuota allows 4 devices and 16 identifiers in total. The tests run as root, and only the totals limit root.
func testQuota() *quota.Ledger {
	var all quota.Amounts
	all[quota.CMDevices], all[quota.CMIDs] = 4, 16
	return quota.New(quota.Amounts{}, all, nil)
}
