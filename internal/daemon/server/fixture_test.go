package server

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/internal/lab/withheld"
	"roced.io/roced/plugin/mono"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/rocev2"
)

func TestMain(m *testing.M) {
	withheld.Main()
	goleak.VerifyTestMain(m)
}

// host is a NIC with its server.
type host struct {
	shard *shard.NIC
	srv   *Server
	path  string
	gid   [16]byte
	log   lines
}

// lines is a log that tests can read during writes.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var testLimits = Limits{Connections: 8, QPs: 64, CQs: 64, SRQs: 8, MRs: 64, MWs: 8, PDs: 8, AHs: 8, Channels: 4, Memory: 64 << 20}

// pair makes two connected NICs, with servers that enforce limits and quotas.
func pair(t testing.TB, limits Limits, quotas ...*quota.Ledger) [2]*host {
	t.Helper()
	return pairWith(t, Config{Limits: limits}, quotas...)
}

// pairWith is pair with other settings.
func pairWith(t testing.TB, c Config, quotas ...*quota.Ledger) [2]*host {
	t.Helper()
	dir := t.TempDir()
	var hosts [2]*host
	for i := range hosts {
		hosts[i] = newHost(t, dir, i, c, quotas...)
	}
	return hosts
}

func newHost(t testing.TB, dir string, i int, c Config, quotas ...*quota.Ledger) *host {
	t.Helper()
	names := [2]string{"a", "b"}
	port, err := unixport.Open(unixport.Config{Local: filepath.Join(dir, names[i]), Remote: filepath.Join(dir, names[1-i])})
	if err != nil {
		t.Fatal(err)
	}
	events := &Events{}
	mac := inet.MAC{2, 0, 0, 0, 0, byte(i + 1)}
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
	nic, err := rocev2.New(rocev2.Config{Name: names[i], MAC: mac, MTU: 1500, Addrs: []netip.Prefix{netip.PrefixFrom(addr, 24)},
		Seed: [32]byte{byte(i)}, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{path: filepath.Join(dir, "uverbs-"+names[i]), gid: inet.GIDOf(addr)}
	if h.shard, err = shard.New(shard.Config{NIC: nic, Port: port}); err != nil {
		t.Fatal(err)
	}
	guard, err := shm.NewGuard()
	if err != nil {
		t.Fatal(err)
	}
	c.Guard, c.Path, c.Mode, c.Shard, c.Device, c.Profiles, c.MAC = guard, h.path, 0o600, h.shard, names[i], []string{"rc", "mrc"}, mac
	c.Log = slog.New(slog.NewTextHandler(&h.log, nil))
	if i < len(quotas) {
		c.Quota = quotas[i]
	}
	h.srv, err = New(c)
	if err != nil {
		t.Fatal(err)
	}
	events.Attach(h.srv)
	t.Cleanup(func() {
		for _, f := range []func() error{h.srv.Close, h.shard.Close, port.Close, guard.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

// objects returns the number of objects in the NIC.
func (h *host) objects(t testing.TB) (n int) {
	t.Helper()
	err := h.shard.Do(context.Background(), func(_ mono.Time, c *rocev2.NIC) {
		n = len(c.PDs()) + len(c.MRs()) + len(c.MWs()) + len(c.CQs()) + len(c.SRQs()) + len(c.QPs()) + len(c.AHs())
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// user is a client of a test.
type user struct {
	t    testing.TB
	conn *uverbs.Conn
	mem  []byte // mapped in the daemon at memBase
	file int    // memfd of the context
}

const (
	memBase = 0x10000
	memSize = 64 << 10
)

// connect opens a context and maps memory.
func (h *host) connect(t testing.TB) *user {
	t.Helper()
	conn, err := uverbs.Dial(h.path)
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, conn: conn}
	t.Cleanup(func() { conn.Close() })
	_, fds := u.must(uverbs.ExtHello, uverbs.Hello{Version: uverbs.ExtVersion})
	u.file = fds[0].FD
	t.Cleanup(func() { unix.Close(u.file) })
	_, fds = u.must(uverbs.CmdGetContext, uverbs.GetContext{})
	t.Cleanup(func() { unix.Close(fds[0].FD) })
	fd, mem, err := shm.New("test", memSize, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	t.Cleanup(func() { _ = shm.Unmap(mem) })
	if err := shm.Allocate(fd, 0, memSize); err != nil {
		t.Fatal(err)
	}
	u.mem = mem
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: memBase, Length: memSize}); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *user) callFD(cmd uint32, fds []int, body any) ([]byte, []uverbs.FD, error) {
	return u.conn.Call(uverbs.Command(cmd, 4096, body), fds)
}

// try runs a command, closes the returned descriptors and returns the error.
func (u *user) try(cmd uint32, body any) error {
	_, fds, err := u.callFD(cmd, nil, body)
	for _, f := range fds {
		unix.Close(f.FD)
	}
	return err
}

// must runs a command that must succeed.
func (u *user) must(cmd uint32, body any) ([]byte, []uverbs.FD) {
	u.t.Helper()
	resp, fds, err := u.callFD(cmd, nil, body)
	if err != nil {
		u.t.Fatalf("command %d: %v", cmd, err)
	}
	return resp, fds
}

// word returns 32-bit word i of a response.
func word(resp []byte, i int) uint32 { return binary.NativeEndian.Uint32(resp[4*i:]) }

// handle runs a command that creates an object and returns its handle.
func (u *user) handle(cmd uint32, body any) uint32 {
	u.t.Helper()
	resp, fds := u.must(cmd, body)
	for _, f := range fds {
		unix.Close(f.FD)
	}
	return word(resp, 0)
}

// rings maps the n rings that the end of a response describes.
func (u *user) rings(n int, resp []byte) (out [][]byte) {
	u.t.Helper()
	size := uverbs.Size[uverbs.MMInfo]()
	for i := len(resp) - n*size; i < len(resp); i += size {
		mi, err := uverbs.Decode[uverbs.MMInfo](resp[i:])
		if err != nil {
			u.t.Fatal(err)
		}
		out = append(out, u.mmap(mi.Offset, uint64(mi.Size)))
	}
	return out
}

// mmap maps a part of the context's memfd.
func (u *user) mmap(offset, size uint64) []byte {
	u.t.Helper()
	mem, err := shm.Map(u.file, offset, size)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _ = shm.Unmap(mem) })
	return mem
}

// bell requests the doorbells and returns their memory and eventfd.
func (u *user) bell() ([]byte, int) {
	u.t.Helper()
	resp, fds := u.must(uverbs.ExtDoorbell, struct{}{})
	r, err := uverbs.Decode[uverbs.DoorbellResp](resp)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { unix.Close(fds[0].FD) })
	return u.mmap(r.Offset, uint64(r.Size)), fds[0].FD
}

// eventually waits for cond.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
