package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
)

// paged starts a daemon with a page.
func paged(t *testing.T, listen string) (*api.Client, api.Page) {
	t.Helper()
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Web.Listen, cfg.Web.Control = strings.ReplaceAll(listen, "DIR", filepath.Dir(path)), true
	d, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := api.NewClient(filepath.Join(runDir, api.Socket))
	t.Cleanup(func() {
		c.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	var p api.Page
	if err := c.Get(t.Context(), &p, "page"); err != nil {
		t.Fatal(err)
	}
	return c, p
}

// TestPage: the admin socket gives its users the address of the page with the token. With the token the page changes
// settings; without it, it does not.
func TestPage(t *testing.T) {
	c, p := paged(t, "127.0.0.1:0")
	address, token, ok := strings.Cut(p.URL, "#token=")
	if !ok || address != p.Address || len(token) < 26 || !p.Control {
		t.Fatalf("the page is at %+v", p)
	}
	do := func(method, path, body, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, text := do("GET", "", "", ""); code != 200 || !strings.Contains(text, `<script type="module" src="app.js">`) {
		t.Errorf("the page is %d %s", code, text)
	}
	const rule = `{"rules":["tx drop psn=+3"]}`
	if code, text := do("POST", "v1/faults/rxe_a", rule, token[1:]); code != http.StatusUnauthorized {
		t.Errorf("a rule without the token: %d %s", code, text)
	}
	if code, text := do("POST", "v1/faults/rxe_a", rule, token); code != 200 || !strings.Contains(text, "tx drop psn=+3") {
		t.Errorf("a rule: %d %s", code, text)
	}
	var rules []api.FaultRule
	if err := c.Get(t.Context(), &rules, "faults", "rxe_a"); err != nil || len(rules) != 1 || rules[0].Rule != "tx drop psn=+3" {
		t.Errorf("the rules are %v, %v", rules, err)
	}
	if code, _ := do("POST", "v1/trace/rxe_a/77", "", token); code != http.StatusBadRequest {
		t.Errorf("a trace of no queue pair: %d", code)
	}
}

// TestPageOnSocket: on a Unix socket the peer's user replaces the token.
func TestPageOnSocket(t *testing.T) {
	_, p := paged(t, "unix:DIR/page.sock")
	path := strings.TrimPrefix(p.URL, "unix:")
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr}).Get("http://localhost/about")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), `"right":"change"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestNoPage: without web.listen there is no page, and the answer describes the setting.
func TestNoPage(t *testing.T) {
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := api.NewClient(filepath.Join(runDir, api.Socket))
	defer c.Close()
	if err := c.Get(t.Context(), new(api.Page), "page"); err == nil || !strings.Contains(err.Error(), "web: {listen: 127.0.0.1:9465}") {
		t.Errorf("%v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestPageEnds: the daemon's end closes streams of the page and removes its socket.
func TestPageEnds(t *testing.T) {
	path, _ := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(path), "page.sock")
	cfg.Web.Listen = "unix:" + socket
	d, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("unix", socket, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /live?view=stat&view=events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the stream has started
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the stream does not end well: %v", err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
