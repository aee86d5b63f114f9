package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/quota"
)

// TestSlowBodies sends requests to the admin interface whose body never ends: one that the handler refuses, one that
// it reads, and one of unknown length. No request keeps its connection.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	d := &Daemon{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	mux.HandleFunc("/refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		var v struct{}
		if readBody(w, r, &v) != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "admin"))
	if err != nil {
		t.Fatal(err)
	}
	srv := d.personal(mux)
	served := make(chan error)
	go func() {
		served <- srv.Serve(&admission{inner, quota.New(quota.Amounts{}, quota.Amounts{}, nil), d.log})
	}()
	ended := make(chan struct{})
	requests := []string{"/refused HTTP/1.1\r\nContent-Length: 100000", "/read HTTP/1.1\r\nContent-Length: 100000",
		"/refused HTTP/1.1\r\nTransfer-Encoding: chunked", "/read HTTP/1.1\r\nTransfer-Encoding: chunked"}
	for _, head := range requests {
		conn, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s\r\nHost: roced\r\n\r\n", head)
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		}()
	}
	limit := time.After(2*headerTimeout + 10*time.Second)
	for range requests {
		select {
		case <-ended:
		case <-limit:
			t.Fatal("a connection stays")
		}
	}
	srv.Close()
	<-served
}

// header is a header that fills n bytes of a request and never ends.
func header(n int) string {
	return "GET / HTTP/1.1\r\nHost: roced\r\nX-Long: " + strings.Repeat("x", n)
}

// TestHeaders: a long header is refused before it is complete, and a slow one ends its connection, on the admin socket and
// on TCP.
func TestHeaders(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "admin"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler)}
	srv := d.personal(http.NotFoundHandler())
	served := make(chan error)
	go func() {
		served <- srv.Serve(&admission{inner, quota.New(quota.Amounts{}, quota.Amounts{}, nil), d.log})
	}()
	defer func() {
		srv.Close()
		<-served
	}()
	_, p := paged(t, "127.0.0.1:0")
	address, _, _ := strings.Cut(strings.TrimPrefix(p.URL, "http://"), "/")
	for network, address := range map[string]string{"unix": inner.Addr().String(), "tcp": address} {
		long, slow := begin(t, network, address, 4*maxHeader), begin(t, network, address, 1)
		_ = long.SetReadDeadline(time.Now().Add(2*headerTimeout + 10*time.Second))
		if text, _ := io.ReadAll(long); !strings.Contains(string(text), "431") {
			t.Errorf("%s: a long header: %q", network, text)
		}
		_ = slow.SetReadDeadline(time.Now().Add(2*headerTimeout + 10*time.Second))
		if _, err := io.Copy(io.Discard, slow); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a slow header keeps its connection", network)
		}
	}
}

// begin sends a header of n bytes that never ends.
func begin(t *testing.T, network, address string, n int) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprint(c, header(n)) // an error means that the daemon has closed the connection
	return c
}
