package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
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
