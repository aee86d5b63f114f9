package daemon

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/nldev"
	"roced.io/roced/internal/daemon/quota"
)

// listDevices is RDMA_NLDEV_CMD_GET of RDMA_NL_NLDEV.
const listDevices = 5<<10 | 1

// dump returns a request for a list.
func dump(kind uint16) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(b, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return b
}

// dialNetlink connects and sends the first message.
func dialNetlink(t *testing.T, path, first string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte(first)) // fails if the daemon refuses the connection
	return conn
}

// devicesOver returns the number of devices that the daemon lists.
func devicesOver(conn *net.UnixConn) (n int, err error) {
	if _, err := conn.Write(dump(listDevices)); err != nil {
		return 0, err
	}
	for b := make([]byte, 8192); ; n++ {
		if length, err := conn.Read(b); err != nil {
			return n, err
		} else if length >= unix.NLMSG_HDRLEN && binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_DONE {
			return n, nil
		}
	}
}

// TestNetlinkHostile checks that malformed messages end at most their own connection.
func TestNetlinkHostile(t *testing.T) {
	_, runDir := startHere(t)
	path := filepath.Join(runDir, nldev.Socket)
	for _, c := range []struct {
		name, first, request string
		devices              int
		err                  error
	}{
		{"all NICs", "\x00", "", 2, nil},
		{"one NIC", "rxe_b\x00", "", 1, nil},
		{"unknown NIC", "../rxe_a\x00", "", 0, nil},
		{"name without end", "rxe_a", "", 0, io.EOF},
		{"long name", string(make([]byte, nldev.MaxRequest+1)), "", 0, nil}, // of zeros: cut, and unknown
		{"longest request", "\x00", string(make([]byte, nldev.MaxRequest)), 2, nil},
		{"too long a request", "\x00", string(make([]byte, nldev.MaxRequest+1)), 0, io.EOF},
		{"half a header", "\x00", string(dump(listDevices)[:9]), 2, nil},
	} {
		conn := dialNetlink(t, path, c.first)
		if c.request != "" {
			_, _ = conn.Write([]byte(c.request)) // fails if the connection has ended
		}
		n, err := devicesOver(conn)
		if c.err != nil && err != nil || n == c.devices && err == nil {
			continue
		}
		t.Errorf("%s: %d devices, %v, want %d, %v", c.name, n, err, c.devices, c.err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	conn := dialNetlink(t, path, "\x00")
	for range 2000 {
		b := make([]byte, 16+rng.IntN(100))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		length := uint32(rng.IntN(unix.NLMSG_HDRLEN)) // too short, or too long
		if rng.IntN(2) == 0 {
			length = uint32(len(b)+1) + rng.Uint32N(1<<31)
		}
		binary.NativeEndian.PutUint32(b, length)
		if _, _, err := conn.WriteMsgUnix(b, unix.UnixRights(0, 1, 2), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := devicesOver(conn); n != 2 || err != nil {
		t.Errorf("after random messages: %d devices, %v", n, err)
	}
}

// startNetlinkOf starts a server of RDMA netlink besides that of the daemon.
func startNetlinkOf(t *testing.T, d *Daemon, timeout time.Duration) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "netlink")
	s := &netlinkServer{d: d, timeout: timeout, turn: make(chan struct{}, 1)}
	if err := s.start(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path
}

// TestNetlinkSilentReader checks that a client that reads no answer delays no other client, and loses its connection when its
// time is over.
func TestNetlinkSilentReader(t *testing.T) {
	d := &Daemon{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler), ending: make(chan struct{}), quota: quota.New(quota.Amounts{}, quota.Amounts{}, nil)}
	var requests []byte
	for range nldev.MaxRequest / unix.NLMSG_HDRLEN {
		requests = append(requests, dump(listDevices)...)
	}
	fill := func(silent *net.UnixConn) (err error) {
		for err == nil {
			_, err = silent.Write(requests)
		}
		return err
	}
	path := startNetlinkOf(t, d, time.Hour)
	silent, other := dialNetlink(t, path, "\x00"), dialNetlink(t, path, "\x00")
	if err := silent.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := fill(silent); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent client, in time: %v", err)
	}
	if _, err := devicesOver(other); err != nil {
		t.Errorf("the other client: %v", err)
	}
	silent = dialNetlink(t, startNetlinkOf(t, d, 50*time.Millisecond), "\x00")
	if err := fill(silent); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the silent client: %v", err)
	}
}

// TestNetlinkConnections checks the limits on connections and on their descriptors.
func TestNetlinkConnections(t *testing.T) {
	t.Run("connections", func(t *testing.T) { limitsConnections(t, quota.NetlinkSockets) })
	t.Run("descriptors", func(t *testing.T) { limitsConnections(t, quota.Descriptors) })
}

func limitsConnections(t *testing.T, kind quota.Kind) {
	const limit = 3
	var all quota.Amounts
	all[kind] = limit
	d := &Daemon{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler), ending: make(chan struct{}), quota: quota.New(quota.Amounts{}, all, nil)}
	path := startNetlinkOf(t, d, time.Hour)
	var open []*net.UnixConn
	for range limit {
		open = append(open, dialNetlink(t, path, "\x00"))
	}
	for i, conn := range open {
		if _, err := devicesOver(conn); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := devicesOver(dialNetlink(t, path, "\x00")); err == nil {
		t.Error("a connection beyond the limit has an answer")
	}
	open[0].Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := devicesOver(dialNetlink(t, path, "\x00")); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("a closed connection still counts: %v", err)
		}
	}
}

// TestNetlinkUsers checks the limit of an ordinary user, and that users see only NICs that they may use, and only their own
// objects. Admins see all objects.
func TestNetlinkUsers(t *testing.T) {
	const admin, user, other = 12345, 12346, 12347
	d, runDir := startWith(t, func(c *config.Config) {
		c.Control.UIDs = []uint32{admin}
		c.NICs[0].Access.Mode = 0o666
		c.NICs[1].Access.UIDs = []uint32{user}
		c.Limits.Connections = 5
	})
	conn := openContext(t, runDir)
	if _, _, err := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid           uint32
		devices, seen int
	}{{0, 2, 1}, {admin, 1, 1}, {user, 2, 0}, {other, 1, 0}} {
		v := &netlinkView{netlinkServer: d.netlink, cred: &unix.Ucred{Pid: 1, Uid: c.uid, Gid: c.uid}}
		if got := len(v.Devices()); got != c.devices {
			t.Errorf("user %d sees %d devices, want %d", c.uid, got, c.devices)
		}
		if got, err := v.Resources(t.Context(), "rxe_a", "pd"); len(got) != c.seen || err != nil {
			t.Errorf("user %d sees %v, %v, want %d", c.uid, got, err, c.seen)
		}
		_, err := v.Resources(t.Context(), "rxe_b", "pd")
		_, aerr := v.Active(t.Context(), "rxe_b")
		if hidden := c.devices == 1; hidden != errors.Is(err, unix.ENODEV) || hidden != errors.Is(aerr, unix.ENODEV) {
			t.Errorf("user %d and the NIC of others: %v, %v", c.uid, err, aerr)
		}
	}
	account := d.quota.Open(other)
	defer account.Close()
	if !account.Take(quota.NetlinkSockets, 5) || account.Take(quota.NetlinkSockets, 1) {
		t.Error("the setting limits.connections does not limit connections of netlink")
	}
}

// TestNetlinkLists checks that lists take a limited share of the time, that requests do not wait for long, and that lists end
// with the daemon.
func TestNetlinkLists(t *testing.T) {
	const took = 10 * time.Millisecond
	d := &Daemon{ending: make(chan struct{})}
	s := &netlinkServer{d: d, turn: make(chan struct{}, 1)}
	var ended, begun time.Time
	work := func() error {
		begun = time.Now()
		time.Sleep(took)
		ended = time.Now()
		return nil
	}
	for i := range 3 {
		before := ended
		if err := s.list(work); err != nil {
			t.Fatal(err)
		}
		if pause := begun.Sub(before); i > 0 && pause < (listShare-1)*took {
			t.Errorf("list %d begins %v after the previous one, which took %v", i, pause, took)
		}
	}
	refused := func(when string, want error, then func()) {
		t.Helper()
		got := make(chan error, 1)
		go func() { got <- s.list(work) }()
		then()
		select {
		case err := <-got:
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: a request waits for more than 10 s", when)
		}
	}
	s.turn <- struct{}{}
	refused("while another list is made", unix.EBUSY, func() {})
	<-s.turn
	s.next = time.Now().Add(time.Hour)
	refused("at the end of the daemon", net.ErrClosed, func() {
		for len(s.turn) == 0 { // until it is its turn, and it waits
			time.Sleep(time.Millisecond)
		}
		close(d.ending)
	})
}
