package server

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/api"
)

// socketpair returns both ends of a pair of Unix sockets.
func socketpair(t *testing.T, kind int) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// TestReport checks which descriptors a client may pass for its report, and that the report arrives when the connection
// ends.
func TestReport(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	reader, good := socketpair(t, unix.SOCK_SEQPACKET)
	_, datagrams := socketpair(t, unix.SOCK_DGRAM)
	r := uverbs.Report{PID: 7}
	uverbs.SetText(r.Program[:], "prog\xff\"")
	for _, c := range []struct {
		name string
		fds  []int
		want error
	}{
		{"nothing", nil, unix.EINVAL},
		{"two", []int{int(good.Fd()), int(good.Fd())}, unix.EINVAL},
		{"standard input", []int{0}, unix.ENOTSOCK},
		{"datagrams", []int{int(datagrams.Fd())}, unix.ENOTSOCK},
		{"a connection", []int{int(good.Fd())}, nil},
		{"again", []int{int(good.Fd())}, unix.EEXIST},
	} {
		if _, _, err := e.callFD(uverbs.ExtReport, c.fds, r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	good.Close()
	e.conn.Close()
	b := make([]byte, 4096)
	n, err := reader.Read(b)
	var got api.Report
	if err != nil || json.Unmarshal(b[:n], &got) != nil || got.PID != 7 || got.Program != "prog?\"" || got.QPs["rc"] != 1 {
		t.Errorf("%v: %s", err, b[:n])
	}
	if n, err := reader.Read(b); n != 0 || err != io.EOF {
		t.Errorf("after the report: %d bytes, %v", n, err)
	}
}

// TestReportUnread checks that a reader without room does not delay the end of a client.
func TestReportUnread(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	_, full := socketpair(t, unix.SOCK_SEQPACKET)
	if _, _, err := e.callFD(uverbs.ExtReport, []int{int(full.Fd())}, uverbs.Report{}); err != nil {
		t.Fatal(err)
	}
	for unix.Send(int(full.Fd()), make([]byte, 4096), unix.MSG_DONTWAIT) == nil {
	}
	e.conn.Close()
	eventually(t, "the end of the client", func() bool { return h.srv.Clients() == 0 })
}
