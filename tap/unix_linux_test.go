package tap

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/rocev2"
)

func openUnix(t testing.TB, local, remote string) *Unix {
	t.Helper()
	u, err := OpenUnix(UnixConfig{Local: local, Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// unixPair returns two ports that are connected to each other.
func unixPair(t testing.TB) (a, b *Unix) {
	t.Helper()
	dir := t.TempDir()
	pa, pb := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	a = openUnix(t, pa, pb)
	if a.State().Up || a.State().Err == nil || a.FD() != -1 {
		t.Errorf("up without the other end: %+v", a.State())
	}
	b = openUnix(t, pb, pa)
	a.Poll(a.NextTimeout())
	if !a.State().Up || !b.State().Up || a.FD() < 0 {
		t.Fatalf("states %+v, %+v", a.State(), b.State())
	}
	return a, b
}

func TestUnixFrames(t *testing.T) {
	a, b := unixPair(t)
	buf := make([]byte, 1<<16)
	for _, size := range []int{16, 1080, 4152, 9000} {
		f := frame(addr4[0], addr4[1], 7, 0, size)
		mustSend(t, a, f)
		n, seg, ok := recv(t, b, buf, time.Second)
		if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
			t.Fatalf("%d bytes: received %d, %v", size, n, ok)
		}
	}
	if a.Offload() != (rocev2.Offload{}) {
		t.Error("offload")
	}
}

func TestUnixManyPieces(t *testing.T) {
	a, b := unixPair(t)
	f := frame(addr4[0], addr4[1], 7, 0, 4000)
	flat := f.AppendTo(nil)
	f.Bufs = nil
	for i := range flat {
		f.Bufs = append(f.Bufs, flat[i:i+1])
	}
	mustSend(t, a, f)
	buf := make([]byte, 1<<16)
	if n, _, ok := recv(t, b, buf, time.Second); !ok || !bytes.Equal(buf[:n], flat) {
		t.Fatalf("received %d, %v", n, ok)
	}
}

// TestUnixFillsUp sends until there is no room: far beyond the 10 datagrams of
// net.unix.max_dgram_qlen, and poll must tell of new room.
func TestUnixFillsUp(t *testing.T) {
	a, b := unixPair(t)
	f := frame(addr4[0], addr4[1], 7, 0, 4152)
	sent := 0
	for ; sent < 1<<16; sent++ {
		if err := a.Send(clock(), f); err != nil {
			if !errors.Is(err, ErrAgain) {
				t.Fatal(err)
			}
			break
		}
	}
	if sent < 100 || sent == 1<<16 || a.Stats().Again != 1 {
		t.Fatalf("%d frames before ErrAgain, stats %+v", sent, a.Stats())
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
		if _, _, ok := recv(t, b, buf, time.Second); !ok {
			t.Fatal("a frame is missing")
		}
	}
	if !writable() {
		t.Error("not writable after all was received")
	}
	mustSend(t, a, f)
}

func TestUnixOtherEndComesBack(t *testing.T) {
	a, b := unixPair(t)
	f := frame(addr4[0], addr4[1], 7, 0, 100)
	cfg := b.cfg
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(clock(), f); !errors.Is(err, ErrDown) {
		t.Fatalf("Send: %v", err)
	}
	buf := make([]byte, 1<<16)
	if _, _, err := a.Recv(clock(), buf); !errors.Is(err, ErrDown) || a.FD() != -1 {
		t.Fatalf("Recv: %v", err)
	}
	b = openUnix(t, cfg.Local, cfg.Remote)
	until(t, a, "the other end to come back", func() bool { return a.State().Up })
	mustSend(t, a, f)
	if _, _, ok := recv(t, b, buf, time.Second); !ok {
		t.Fatal("nothing received")
	}
	if s := a.Stats(); s.Lost != 1 || s.Reopened != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestUnixOtherEndReplaced changes the other end while this one only listens: it
// must notice by itself, for the kernel refuses datagrams of the new one.
func TestUnixOtherEndReplaced(t *testing.T) {
	a, b := unixPair(t)
	cfg := b.cfg
	b.Close()
	time.Sleep(20 * time.Millisecond) // file times have the granularity of the timer tick
	b = openUnix(t, cfg.Local, cfg.Remote)
	until(t, a, "the new socket", func() bool { return a.Stats().Reopened == 1 })
	until(t, b, "the first one", func() bool { return b.State().Up })
	mustSend(t, b, frame(addr4[0], addr4[1], 7, 0, 100))
	if _, _, ok := recv(t, a, make([]byte, 1<<16), time.Second); !ok {
		t.Fatal("nothing received")
	}
}

func TestUnixStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if u, err := OpenUnix(UnixConfig{Local: path, Remote: path + "x"}); err == nil {
		u.Close()
		t.Fatal("took a socket that is in use")
	}
	unix.Close(fd)
	openUnix(t, path, path+"x")

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if u, err := OpenUnix(UnixConfig{Local: file, Remote: path}); err == nil {
		u.Close()
		t.Fatal("replaced a file")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Fatal("the file has suffered")
	}
}

// TestUnixCloseLeavesOthersAlone closes a port whose path now belongs to another.
func TestUnixCloseLeavesOthersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	u := openUnix(t, path, path+"x")
	os.Remove(path)
	openUnix(t, path, path+"x")
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

// TestUnixOversize drops a datagram longer than the buffer, and a runt.
func TestUnixOversize(t *testing.T) {
	a, b := unixPair(t)
	mustSend(t, a, frame(addr4[0], addr4[1], 7, 0, 4152))
	mustSend(t, a, &rocev2.Frame{Bufs: [][]byte{{1, 2, 3}}, Len: 3})
	small := frame(addr4[0], addr4[1], 7, 0, 100)
	mustSend(t, a, small)
	n, _, ok := recv(t, b, make([]byte, 1000), time.Second)
	if !ok || n != small.Len || b.Stats().RecvDropped != 2 {
		t.Fatalf("received %d, %v, stats %+v", n, ok, b.Stats())
	}
}

func TestUnixFaultsOfConfig(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []UnixConfig{
		{}, {Local: dir + "/a"}, {Local: dir + "/a", Remote: dir + "/a"},
		{Local: dir + "/" + strings.Repeat("x", 120), Remote: dir + "/a"},
		{Local: dir + "/none/a", Remote: dir + "/a"}, {Local: "@abstract", Remote: dir + "/a"},
	} {
		u, err := OpenUnix(c)
		if err == nil {
			u.Close()
			t.Errorf("%+v: no error", c)
		}
		t.Log(err)
	}
}

func TestUnixAllocations(t *testing.T) {
	a, b := unixPair(t)
	f := frame(addr4[0], addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<16)
	allocs := testing.AllocsPerRun(200, func() {
		now := a.next - 1
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
	tx, rx := unixPair(b)
	f := frame(addr4[0], addr4[1], 0, 0, 4152)
	buf := make([]byte, 1<<16)
	b.SetBytes(4152)
	b.ReportAllocs()
	for b.Loop() {
		mustSend(b, tx, f)
		if _, _, err := rx.Recv(clock(), buf); err != nil {
			b.Fatal(err)
		}
	}
}

// TestUnixPeerLikeQEMU talks to a socket that is bound but not connected, as
// QEMU's is. The kernel queues only net.unix.max_dgram_qlen datagrams for it, and
// poll tells when it has read some.
func TestUnixPeerLikeQEMU(t *testing.T) {
	dir := t.TempDir()
	peer, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(peer)
	if err := unix.Bind(peer, &unix.SockaddrUnix{Name: dir + "/b"}); err != nil {
		t.Fatal(err)
	}
	u := openUnix(t, dir+"/a", dir+"/b")
	f := frame(addr4[0], addr4[1], 7, 0, 100)
	sent := 0
	for ; u.Send(clock(), f) == nil; sent++ {
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
	mustSend(t, u, f)
	flat := frame(addr4[1], addr4[0], 8, 0, 60).AppendTo(nil)
	if err := unix.Sendto(peer, flat, 0, &unix.SockaddrUnix{Name: dir + "/a"}); err != nil {
		t.Fatal(err)
	}
	if n, _, ok := recv(t, u, buf, time.Second); !ok || !bytes.Equal(buf[:n], flat) {
		t.Fatalf("received %d, %v", n, ok)
	}
	stranger, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stranger)
	if err := unix.Sendto(stranger, flat, 0, &unix.SockaddrUnix{Name: dir + "/a"}); !errors.Is(err, unix.EPERM) {
		t.Errorf("a stranger's datagram: %v, want EPERM", err)
	}
	t.Logf("%d datagrams fit", sent)
}
