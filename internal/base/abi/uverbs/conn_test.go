package uverbs

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func decodeAny(b []byte, v any) error {
	_, err := binary.Decode(b, binary.NativeEndian, v)
	return err
}

// fill sets the fields of a structure to different values.
func fill(v reflect.Value, seed uint64) uint64 {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case v.Type().Field(i).Name == "_":
		case f.Kind() == reflect.Struct:
			seed = fill(f, seed)
		case f.Kind() == reflect.Array:
			for j := range f.Len() {
				f.Index(j).SetUint(seed & 0xff)
				seed += 7
			}
		case f.CanInt():
			f.SetInt(-int64(seed))
		default:
			f.SetUint(seed * 0x0101010101010101 >> (64 - 8*f.Type().Size()))
		}
		seed += 13
	}
	return seed
}

// connOf returns the connection of a socket, which it then owns.
func connOf(t *testing.T, fd int) *Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "uverbs")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return NewConn(c.(*net.UnixConn))
}

// pair returns both ends of a connection.
func pair(t *testing.T) (client, server *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client, server = connOf(t, fds[0]), connOf(t, fds[1])
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// openFDs counts the descriptors of this process.
func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// noLeak runs f and checks that it has closed all descriptors that it opened. The other end of a connection is a
// goroutine, which may need a moment longer.
func noLeak(t *testing.T, f func()) {
	t.Helper()
	before := openFDs(t)
	f()
	after := openFDs(t)
	for deadline := time.Now().Add(time.Minute); after != before && time.Now().Before(deadline); after = openFDs(t) {
		time.Sleep(time.Millisecond)
	}
	if after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func memfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// serve answers one request.
func serve(t *testing.T, s *Conn, f func(Request) Answer) {
	t.Helper()
	go func() {
		r, err := s.ReadRequest()
		if err != nil {
			t.Error(err)
			return
		}
		defer CloseFDs(r.FDs)
		if err := s.WriteAnswer(f(r)); err != nil {
			t.Error(err)
		}
	}()
}

func TestCall(t *testing.T) {
	c, s := pair(t)
	mine, theirs := memfd(t), memfd(t)
	noLeak(t, func() {
		serve(t, s, func(r Request) Answer {
			if len(r.FDs) != 1 || inode(t, r.FDs[0]) != inode(t, mine) {
				t.Errorf("received %v", r.FDs)
			}
			if flags, err := unix.FcntlInt(uintptr(r.FDs[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags %d, %v", flags, err)
			}
			return Answer{Body: []byte("12345678"), FDs: []FD{{FD: theirs, Kind: FDMemory, Arg: 4096, Size: 77}, {FD: mine, Kind: FDNumber, Arg: 4}}}
		})
		resp, fds, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), []int{mine})
		if err != nil || string(resp) != "12345678" || len(fds) != 2 {
			t.Fatalf("%q, %v, %v", resp, fds, err)
		}
		for _, f := range fds {
			if flags, err := unix.FcntlInt(uintptr(f.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags %d, %v", flags, err)
			}
		}
		if f := fds[0]; inode(t, f.FD) != inode(t, theirs) || f.Kind != FDMemory || f.Arg != 4096 || f.Size != 77 {
			t.Errorf("first descriptor %+v", f)
		}
		CloseFDs([]int{fds[0].FD, fds[1].FD})
	})
}

// TestCallsOfMany: many callers have commands in flight, and each gets its own answer.
func TestCallsOfMany(t *testing.T) {
	const callers = 8
	client, server := pair(t)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			cmd := Command(CmdDeallocPD, 0, DeallocPD{PDHandle: uint32(i)})
			resp, _, err := client.Call(cmd, nil)
			if err != nil || len(resp) != 1 || resp[0] != byte(i) {
				t.Errorf("caller %d: %v, %v", i, resp, err)
			}
		})
	}
	var asked []byte
	for range callers { // the server answers only after all requests
		r, err := server.ReadRequest()
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, r.Body[0])
	}
	for _, i := range asked {
		if err := server.WriteAnswer(Answer{Body: []byte{i}}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
}

func TestCallErrors(t *testing.T) {
	c, s := pair(t)
	fd := memfd(t)
	serve(t, s, func(Request) Answer { return Answer{Err: unix.EBUSY, FDs: []FD{{FD: fd, Kind: FDMemory}}} })
	if resp, fds, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), nil); err != unix.EBUSY || resp != nil || fds != nil {
		t.Errorf("%v, %v, %v", resp, fds, err)
	}
	if _, _, err := c.Call(make([]byte, MaxMessage+1), nil); !errors.Is(err, ErrTooBig) {
		t.Errorf("long command: %v", err)
	}
	if _, _, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), []int{fd, fd, fd, fd, fd}); !errors.Is(err, ErrTooBig) {
		t.Errorf("many descriptors: %v", err)
	}
	if err := s.WriteAnswer(Answer{FDs: make([]FD, 5)}); !errors.Is(err, ErrTooBig) {
		t.Errorf("answer with many descriptors: %v", err)
	}
	s.Close()
	if _, _, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), nil); err == nil {
		t.Error("a command to nobody succeeds")
	}
}

// TestBadAnswers checks that malformed answers leak nothing.
func TestBadAnswers(t *testing.T) {
	fd := memfd(t)
	header := func(ret int32, n, nfd, kind uint32, arg uint64) []byte {
		h := answerHdr{Ret: ret, Len: n, NFD: nfd}
		h.FD[0].Kind, h.FD[0].Arg = kind, arg
		return Append(nil, h)
	}
	for name, msg := range map[string][]byte{
		"short":          make([]byte, AnswerLen-1),
		"error with fd":  header(-5, 0, 1, FDMemory, 0),
		"positive":       header(5, 0, 1, FDMemory, 0),
		"length":         header(0, 1, 1, FDMemory, 0),
		"no descriptors": header(0, 0, 0, 0, 0),
		"two":            header(0, 0, 2, FDMemory, 0),
		"kind":           header(0, 0, 1, 9, 0),
		"place":          append(header(0, 8, 1, FDNumber, 5), make([]byte, 8)...),
		"too long":       make([]byte, MaxMessage+1),
	} {
		c, s := pair(t)
		noLeak(t, func() {
			if _, _, err := s.uc.WriteMsgUnix(msg, unix.UnixRights(fd), nil); err != nil {
				t.Fatal(err)
			}
			if _, fds, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), nil); err == nil || fds != nil {
				t.Errorf("%s: %v, %v", name, fds, err)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	fd := memfd(t)
	good := Command(CmdAllocPD, 4, AllocPD{})
	for name, m := range map[string]struct {
		msg []byte
		fds []int
	}{
		"words":       {good[:len(good)-4], []int{fd}},
		"too long":    {make([]byte, MaxMessage+1), []int{fd}},
		"descriptors": {good, []int{fd, fd, fd, fd, fd, fd, fd, fd}},
	} {
		c, s := pair(t)
		noLeak(t, func() {
			if _, _, err := c.uc.WriteMsgUnix(m.msg, unix.UnixRights(m.fds...), nil); err != nil {
				t.Fatal(err)
			}
			r, err := s.ReadRequest()
			if !Recoverable(err) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		})
		if _, _, err := c.uc.WriteMsgUnix(good, nil, nil); err != nil {
			t.Fatal(err)
		}
		if r, err := s.ReadRequest(); err != nil || r.Command != CmdAllocPD {
			t.Errorf("%s: then %+v, %v", name, r, err)
		}
	}
}

func TestEndOfConnection(t *testing.T) {
	c, s := pair(t)
	c.Close()
	if _, err := s.ReadRequest(); !errors.Is(err, io.EOF) || Recoverable(err) {
		t.Errorf("after close: %v", err)
	}
	c, s = pair(t)
	fd := memfd(t)
	noLeak(t, func() {
		if _, _, err := c.uc.WriteMsgUnix(nil, unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		if r, err := s.ReadRequest(); err == nil || len(r.FDs) > 0 {
			t.Errorf("an empty request is one: %+v, %v", r, err)
		}
	})
}

func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uverbs0")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	s := NewConn(u)
	defer s.Close()
	serve(t, s, func(Request) Answer { return Answer{Body: []byte{1, 2, 3, 4}} })
	if resp, _, err := c.Call(Command(CmdAllocPD, 4, AllocPD{}), nil); err != nil || len(resp) != 4 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := Dial(path + "x"); err == nil {
		t.Error("dialled nothing")
	}
}
