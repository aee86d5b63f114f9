package unix

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

func open(t testing.TB, local, remote string) *Port {
	t.Helper()
	u, err := Open(Config{Local: local, Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// pair returns two ports that are connected to each other.
func pair(t testing.TB) (a, b *Port) {
	t.Helper()
	dir := t.TempDir()
	pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	a = open(t, pa, pb)
	if a.State().Up || a.State().Err == nil || a.FD() != -1 {
		t.Errorf("up without the other end: %+v", a.State())
	}
	b = open(t, pb, pa)
	a.Poll(a.NextTimeout())
	if !a.State().Up || !b.State().Up || a.FD() < 0 {
		t.Fatalf("states %+v, %+v", a.State(), b.State())
	}
	return a, b
}

func TestFrames(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 1<<16)
	for _, size := range []int{16, 1080, 4152, 9000} {
		f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, size)
		porttest.MustSend(t, a, f)
		n, seg, ok := porttest.Recv(t, b, buf, porttest.Limit)
		if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
			t.Fatalf("%d bytes: received %d, %v", size, n, ok)
		}
	}
	if a.Offload() != (link.Offload{}) {
		t.Error("offload")
	}
}

func TestManyPieces(t *testing.T) {
	a, b := pair(t)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 4000)
	flat := f.AppendTo(nil)
	f.Bufs = nil
	for i := range flat {
		f.Bufs = append(f.Bufs, flat[i:i+1])
	}
	porttest.MustSend(t, a, f)
	buf := make([]byte, 1<<16)
	if n, _, ok := porttest.Recv(t, b, buf, porttest.Limit); !ok || !bytes.Equal(buf[:n], flat) {
		t.Fatalf("received %d, %v", n, ok)
	}
}

// TestFillsUp sends until there is no room. There is room for far more than the 10 datagrams of net.unix.max_dgram_qlen,
// and poll must report new room.
func TestFillsUp(t *testing.T) {
	a, b := pair(t)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 4152)
	sent := 0
	for ; sent < 1<<16; sent++ {
		if err := a.Send(porttest.Clock(), f); err != nil {
			if !errors.Is(err, port.ErrAgain) {
				t.Fatal(err)
			}
			break
		}
	}
	if sent < 100 || sent == 1<<16 || a.Stats().Again != 1 {
		t.Fatalf("%d frames before port.ErrAgain, stats %+v", sent, a.Stats())
	}
	t.Logf("%d frames of 4152 bytes fit", sent)
	writable := func() bool {
		fds := []unix.PollFd{{Fd: int32(a.FD()), Events: unix.POLLOUT}}
		unix.Poll(fds, 0)
		return fds[0].Revents&unix.POLLOUT != 0
	}
	if writable() {
		t.Error("writable while full")
	}
	buf := make([]byte, 1<<16)
	for range sent {
		if _, _, ok := porttest.Recv(t, b, buf, porttest.Limit); !ok {
			t.Fatal("a frame is missing")
		}
	}
	if !writable() {
		t.Error("not writable after all was received")
	}
	porttest.MustSend(t, a, f)
}

func TestOtherEndComesBack(t *testing.T) {
	a, b := pair(t)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 100)
	cfg := b.cfg
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(porttest.Clock(), f); !errors.Is(err, port.ErrDown) {
		t.Fatalf("Send: %v", err)
	}
	buf := make([]byte, 1<<16)
	if _, _, err := a.Recv(porttest.Clock(), buf); !errors.Is(err, port.ErrDown) || a.FD() != -1 {
		t.Fatalf("Recv: %v", err)
	}
	b = open(t, cfg.Local, cfg.Remote)
	porttest.Until(t, a, "the other end to come back", func() bool { return a.State().Up })
	porttest.MustSend(t, a, f)
	if _, _, ok := porttest.Recv(t, b, buf, porttest.Limit); !ok {
		t.Fatal("nothing received")
	}
	if s := a.Stats(); s.Lost != 1 || s.Reopened != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestOtherEndReplaced replaces the remote socket while this port only receives. The port must detect this by itself,
// because the kernel refuses datagrams of the new socket.
func TestOtherEndReplaced(t *testing.T) {
	a, b := pair(t)
	cfg := b.cfg
	b.Close()
	dir := filepath.Dir(cfg.Local)
	for id := a.peer; id.changed == a.peer.changed; id, _ = statFile(dir) { // file times have the granularity of the timer tick
		if err := os.Chtimes(dir, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	b = open(t, cfg.Local, cfg.Remote)
	porttest.Until(t, a, "the new socket", func() bool { return a.Stats().Reopened == 1 })
	porttest.Until(t, b, "the first one", func() bool { return b.State().Up })
	porttest.MustSend(t, b, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 100))
	if _, _, ok := porttest.Recv(t, a, make([]byte, 1<<16), porttest.Limit); !ok {
		t.Fatal("nothing received")
	}
}

func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if u, err := Open(Config{Local: path, Remote: path + "x"}); err == nil {
		u.Close()
		t.Fatal("took a socket that is in use")
	}
	unix.Close(fd)
	open(t, path, path+"x")

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if u, err := Open(Config{Local: file, Remote: path}); err == nil {
		u.Close()
		t.Fatal("replaced a file")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Fatal("the file has suffered")
	}
}

// TestCloseLeavesOthersAlone closes a port whose path now belongs to another port.
func TestCloseLeavesOthersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	u := open(t, path, path+"x")
	os.Remove(path)
	open(t, path, path+"x")
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("removed the socket of another port")
	}
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOversize drops a datagram longer than the buffer, and a runt.
func TestOversize(t *testing.T) {
	a, b := pair(t)
	porttest.MustSend(t, a, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 4152))
	porttest.MustSend(t, a, &link.Frame{Bufs: [][]byte{{1, 2, 3}}, Len: 3})
	small := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 100)
	porttest.MustSend(t, a, small)
	n, _, ok := porttest.Recv(t, b, make([]byte, 1000), porttest.Limit)
	if !ok || n != small.Len || b.Stats().RecvDropped != 2 {
		t.Fatalf("received %d, %v, stats %+v", n, ok, b.Stats())
	}
}

func TestFaultsOfConfig(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []Config{
		{}, {Local: dir + "/a"}, {Local: dir + "/a", Remote: dir + "/a"},
		{Local: dir + "/" + strings.Repeat("x", 120), Remote: dir + "/a"},
		{Local: dir + "/none/a", Remote: dir + "/a"}, {Local: "@abstract", Remote: dir + "/a"},
	} {
		u, err := Open(c)
		if err == nil {
			u.Close()
			t.Errorf("%+v: no error", c)
		}
		t.Log(err)
	}
}

func TestAllocations(t *testing.T) {
	a, b := pair(t)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<16)
	allocs := testing.AllocsPerRun(200, func() {
		now := a.Next - 1
		if a.Send(now, f) != nil {
			t.Error("not sent")
		}
		if _, _, err := b.Recv(now, buf); err != nil {
			t.Error(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkUnix(b *testing.B) {
	tx, rx := pair(b)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 0, 4152)
	buf := make([]byte, 1<<16)
	b.SetBytes(4152)
	b.ReportAllocs()
	for b.Loop() {
		porttest.MustSend(b, tx, f)
		if _, _, err := rx.Recv(porttest.Clock(), buf); err != nil {
			b.Fatal(err)
		}
	}
}

// TestPeerLikeQEMU exchanges frames with a socket that is bound but not connected, as in QEMU. The kernel queues only
// net.unix.max_dgram_qlen datagrams for it, and poll reports when there is room again.
func TestPeerLikeQEMU(t *testing.T) {
	dir := t.TempDir()
	peer, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(peer)
	if err := unix.Bind(peer, &unix.SockaddrUnix{Name: dir + "/b"}); err != nil {
		t.Fatal(err)
	}
	u := open(t, dir+"/a", dir+"/b")
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 100)
	sent := 0
	for ; u.Send(porttest.Clock(), f) == nil; sent++ {
		if sent == 1000 {
			t.Fatal("no limit")
		}
	}
	poll := func(ms int) int16 {
		fds := []unix.PollFd{{Fd: int32(u.FD()), Events: unix.POLLOUT}}
		unix.Poll(fds, ms)
		return fds[0].Revents
	}
	if u.Stats().Again != 1 || poll(0) != 0 {
		t.Errorf("%d sent, stats %+v, poll %#x", sent, u.Stats(), poll(0))
	}
	buf := make([]byte, 2000)
	for range sent {
		if n, _, err := unix.Recvfrom(peer, buf, 0); err != nil || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
			t.Fatal(n, err)
		}
	}
	if poll(1000)&unix.POLLOUT == 0 {
		t.Error("poll does not tell of new room")
	}
	porttest.MustSend(t, u, f)
	flat := porttest.Frame(porttest.Addr4[1], porttest.Addr4[0], 8, 0, 60).AppendTo(nil)
	if err := unix.Sendto(peer, flat, 0, &unix.SockaddrUnix{Name: dir + "/a"}); err != nil {
		t.Fatal(err)
	}
	if n, _, ok := porttest.Recv(t, u, buf, porttest.Limit); !ok || !bytes.Equal(buf[:n], flat) {
		t.Fatalf("received %d, %v", n, ok)
	}
	other, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := unix.Sendto(other, flat, 0, &unix.SockaddrUnix{Name: dir + "/a"}); !errors.Is(err, unix.EPERM) {
		t.Errorf("a datagram of another socket: %v, want EPERM", err)
	}
	t.Logf("%d datagrams fit", sent)
}
