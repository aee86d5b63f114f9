package perf

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// ends returns the two ends of an out-of-band connection.
func ends(t *testing.T) (a, b *oob) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	c, d := net.Pipe()
	a, b = newOOB(ctx, c), newOOB(ctx, d)
	t.Cleanup(a.close)
	t.Cleanup(b.close)
	return a, b
}

func TestNotesComeBeforeTheEnd(t *testing.T) {
	a, b := ends(t)
	a.watch()
	if _, got, err := a.poll("done"); got || err != nil {
		t.Errorf("heard %v, %v", got, err)
	}
	for i := range 3 {
		if err := b.send(note{Kind: "done", Messages: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	b.close()
	<-a.ctx.Done()
	for i := range 3 {
		if n, err := a.expect("done"); err != nil || n.Messages != uint64(i) {
			t.Errorf("note %d: %+v, %v", i, n, err)
		}
	}
	if _, err := a.expect("done"); !errors.Is(err, errGone) {
		t.Errorf("after the end: %v", err)
	}
	if _, got, err := a.poll("done"); got || !errors.Is(err, errGone) {
		t.Errorf("after the end: %v, %v", got, err)
	}
}

// endsNow is a context during whose first Err the peer ends the test and closes its connection.
type endsNow struct {
	context.Context
	end func()
}

func (c *endsNow) Err() error {
	c.end()
	<-c.Done()
	return c.Context.Err()
}

// TestLastNote: a server finds the note that ends the test although the connection has ended already.
func TestLastNote(t *testing.T) {
	a, b := ends(t)
	a.watch()
	a.ctx = &endsNow{a.ctx, sync.OnceFunc(func() {
		if err := b.send(note{Kind: "done"}); err != nil {
			t.Error(err)
		}
		b.close()
	})}
	p := &pingpong{side: &side{oob: a}}
	if err := p.idle(); !errors.Is(err, errOver) {
		t.Errorf("the server ends with %v", err)
	}
}

func TestPeerReportsAnError(t *testing.T) {
	a, b := ends(t)
	a.watch()
	if err := b.send(note{Kind: "error", Error: "no memory"}); err != nil {
		t.Fatal(err)
	}
	_, err := a.expect("done")
	if !errors.Is(err, errPeer) || err.Error() != "the other side reports: no memory" {
		t.Errorf("%v", err)
	}
	if cause := context.Cause(a.ctx); !errors.Is(cause, errPeer) {
		t.Errorf("the test goes on: %v", cause)
	}
}

func TestOutOfStep(t *testing.T) {
	a, b := ends(t)
	a.watch()
	if err := b.send(note{Kind: "ready"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.expect("result"); err == nil || !strings.Contains(err.Error(), `"ready" instead of "result"`) {
		t.Errorf("%v", err)
	}
}

func TestSilentPeer(t *testing.T) {
	a, _ := ends(t)
	if err := a.meetUntil(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var h hello
	if err := a.receive(&h); err == nil || !strings.Contains(err.Error(), "no message") {
		t.Errorf("%v", err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, d := net.Pipe()
	defer d.Close()
	a := newOOB(ctx, c)
	defer a.close()
	a.watch()
	cancel()
	if _, err := a.expect("done"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestListen checks that listen replaces a dead socket, but no other file.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oob")
	o := &Options{OOB: "unix:" + path}
	ln, err := listen(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	if _, err := dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a client of a dead socket: %v", err)
	}
	ln, err = listen(o)
	if err != nil {
		t.Fatalf("a dead socket: %v", err)
	}
	ln.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(o); err == nil {
		t.Error("a file was replaced")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

// options parses a command line.
func options(test, line string) (*Options, error) {
	o := &Options{Params: Params{Test: test}}
	var size string
	c := &cobra.Command{}
	addFlags(c, o, &size)
	if err := c.ParseFlags(strings.Fields(line)); err != nil {
		return nil, err
	}
	return o, o.complete(c, c.Flags().Args(), size)
}

func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		test, line string
		good       func(o *Options) bool
	}{
		{"write-bw", "", func(o *Options) bool {
			return o.Host == "" && o.Size == 64<<10 && o.Duration == 2*time.Second && o.QPs == 1 && o.TxDepth == 256 && o.RxDepth == 512 &&
				o.CQMod == 0 && o.GIDIndex == -1 && o.Port == 18515 && o.Connection == "rc"
		}},
		{"write-bw", "peer -s 4k", func(o *Options) bool { return o.Host == "peer" && o.Size == 4096 }},
		{"write-bw", "-n 5 -D 3s", func(o *Options) bool { return o.Iters == 5 && o.Duration == 0 }},
		{"send-bw", "-c ud", func(o *Options) bool { return o.Size == 1024 }},
		{"send-lat", "", func(o *Options) bool { return o.Size == 8 }},
		{"atomic-lat", "-s 64", func(o *Options) bool { return o.Size == 8 }},
		{"read-bw", "-q 16 -t 8 -Q 3 -e --verify", func(o *Options) bool { return o.QPs == 16 && o.CQMod == 3 && o.Events && o.Verify }},
	} {
		if o, err := options(c.test, c.line); err != nil || !c.good(o) {
			t.Errorf("%s %s: %+v, %v", c.test, c.line, o, err)
		}
	}
	for _, line := range []string{"-s 0", "-Q 300", "-Q 0", "-D -1s", "-n -1", "--oob tcp:x", "--oob unix:", "-x"} {
		if o, err := options("write-bw", line); err == nil {
			t.Errorf("%s: accepted as %+v", line, o)
		}
	}
}

func TestCQMod(t *testing.T) {
	for _, c := range [][3]int{{256, 64, 64}, {256, 64 << 10, 8}, {1, 64, 1}, {1, 64 << 10, 1}} {
		if got := defaultCQMod(c[0], c[1]); got != c[2] {
			t.Errorf("depth %d, %d bytes: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestAgree(t *testing.T) {
	p := good()
	o := &Options{Params: p}
	if got, err := agree(o, &hello{Version: version, Params: &p}); err != nil || *got != p {
		t.Errorf("%+v, %v", got, err)
	}
	other, wrong := good(), good()
	other.Test, wrong.CQMod = "read-bw", 0
	for _, h := range []hello{{Version: version + 1, Params: &p}, {Version: version}, {Version: version, Params: &other},
		{Version: version, Params: &wrong}} {
		if _, err := agree(o, &h); err == nil {
			t.Errorf("%+v is accepted", h)
		}
	}
}
