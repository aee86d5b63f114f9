package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon serves h on a Unix socket and returns its client.
func daemon(t *testing.T, h http.Handler) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), Socket)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	c := NewClient(socket)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c
}

func TestCalls(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/stat/{nic}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode([]Stat{{NIC: r.PathValue("nic"), Counters: map[string]uint64{"sent_pkts": 1<<64 - 1}}})
	})
	var got RuleSet
	mux.HandleFunc("POST /v1/faults/{nic}", func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
	})
	c := daemon(t, mux)
	path := []string{"stat", "a/b c"}
	for range 2 { // the second request finds path unchanged
		var stats []Stat
		if err := c.Get(t.Context(), &stats, path...); err != nil || len(stats) != 1 || stats[0].NIC != "a/b c" ||
			stats[0].Counters["sent_pkts"] != 1<<64-1 {
			t.Fatalf("%+v, %v", stats, err)
		}
	}
	if err := c.Do(t.Context(), "POST", RuleSet{Rules: []string{"tx drop"}, Replace: true}, "faults", "a"); err != nil {
		t.Fatal(err)
	}
	if len(got.Rules) != 1 || got.Rules[0] != "tx drop" || !got.Replace {
		t.Errorf("the daemon got %+v", got)
	}
}

func TestErrorsOfTheDaemon(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/links", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(Fault{Error: "no such NIC: x"})
	})
	mux.HandleFunc("GET /v1/stat", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{") })
	c := daemon(t, mux)
	for path, want := range map[string]string{
		"links": "no such NIC: x", "stat": "answer of the daemon: unexpected EOF", "other": "the daemon does not support GET \"other\": it is older than this program; restart it",
	} {
		var out []any
		if err := c.Get(t.Context(), &out, path); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestNoDaemon checks the error messages for a missing daemon.
func TestNoDaemon(t *testing.T) {
	dead := filepath.Join(t.TempDir(), Socket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	for _, socket := range []string{dead, filepath.Join(t.TempDir(), "nothing")} {
		err := NewClient(socket).Get(t.Context(), nil, "links")
		if err == nil || !strings.HasPrefix(err.Error(), "no daemon at "+socket+": is roced running?") {
			t.Errorf("%v", err)
		}
	}
	if os.Geteuid() == 0 {
		return // root may use every socket
	}
	if err := os.Chmod(dead, 0); err != nil {
		t.Fatal(err)
	}
	if err := NewClient(dead).Get(t.Context(), nil, "links"); err == nil || !strings.HasPrefix(err.Error(), dead+": permission denied: ") {
		t.Errorf("%v", err)
	}
}

// TestCaptureEnds checks that the reader of a capture gets EOF after the caller has ended the capture.
func TestCaptureEnds(t *testing.T) {
	c := daemon(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctl := http.NewResponseController(w)
		if err := ctl.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "first,")
		if err := ctl.Flush(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Errorf("the request does not end well: %v", err)
		}
		io.WriteString(w, "last")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := c.Capture(ctx, "rxe_a")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 6)
	if _, err := io.ReadFull(body, buf); err != nil || string(buf) != "first," {
		t.Fatalf("%q, %v", buf, err)
	}
	cancel()
	rest, err := io.ReadAll(body)
	if err != nil || string(rest) != "last" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

// TestStreamIsCancelled checks that a stream ends with its context.
func TestStreamIsCancelled(t *testing.T) {
	c := daemon(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	body, err := c.Stream(ctx, "GET", nil, "events")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestLongPath: the error about a run directory with too long a path says what to change.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("a", 100))
	c := NewClient(filepath.Join(dir, Socket))
	defer c.Close()
	if err := c.Get(t.Context(), nil, "version"); err == nil || !strings.Contains(err.Error(), "name a shorter one by --run-dir") {
		t.Error(err)
	}
}
