package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

// behind is an administration interface that counts its requests.
type behind struct {
	mux   *http.ServeMux
	asked atomic.Int64
	stat  atomic.Int64 // value in the answer
}

func (b *behind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.asked.Add(1)
	b.mux.ServeHTTP(w, r)
}

func newBehind() *behind {
	b := &behind{mux: http.NewServeMux()}
	say := func(pattern, format string, args ...any) {
		b.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, format+"\n", args...) })
	}
	say("GET /v1/links", `[{"name":"a","socket":"/run/s"}]`)
	say("GET /v1/res/qp", `[{"nic":"a","pid":7,"uid":8,"client":9,"qp":{"qpn":1,"dest_qpn":4,"sq_psn":2,"rq_psn":3,"state":"RTS"}}]`)
	say("GET /v1/res/mr", `[]`)
	b.mux.HandleFunc("GET /v1/stat", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `[{"nic":"a","n":%d}]`+"\n", b.stat.Load())
	})
	for _, p := range []string{"POST /v1/faults/{nic}", "DELETE /v1/faults/{nic}", "GET /v1/faults/{nic}", "POST /v1/trace/{nic}/{qp}", "POST /v1/capture/{nic}", "DELETE /v1/capture/{nic}/{id}", "PUT /v1/poll/{nic}", "GET /metrics", "GET /v1/page"} {
		say(p, `{"done":%q}`, p)
	}
	b.mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"nic":"a","event":"port_error","pid":7}`)
		<-r.Context().Done()
	})
	return b
}

// request sends a request to s; headers are pairs of name and value.
func request(s http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:9465"+path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestRights checks the rights of clients: without the token on a loopback address and elsewhere, with the token, and
// with the token where web.control is set.
func TestRights(t *testing.T) {
	views := newBehind()
	loopback := New(Config{Views: views, NICs: []string{"a"}, Token: token, Open: true})
	network := New(Config{Views: views, NICs: []string{"a"}, Token: token})
	control := New(Config{Views: views, NICs: []string{"a"}, Token: token, Open: true, Control: true})
	unix := New(Config{Views: views, NICs: []string{"a"}})
	bearer := []string{"Authorization", "Bearer " + token}
	wrong := []string{"Authorization", "Bearer secre"}
	for _, c := range []struct {
		name   string
		s      *Server
		with   []string
		rights string // of look, see, change
		about  string
	}{
		{"loopback", loopback, nil, "200 401 401", "look"},
		{"loopback, wrong token", loopback, wrong, "200 401 401", "look"},
		{"loopback, token", loopback, bearer, "200 200 403", "see"},
		{"network", network, nil, "401 401 401", "none"},
		{"network, token", network, bearer, "200 200 403", "see"},
		{"control", control, nil, "200 401 401", "look"},
		{"control, token", control, bearer, "200 200 200", "change"},
		{"unix", unix, nil, "200 200 403", "see"},
	} {
		for _, r := range []struct {
			method, path string
			right        int
		}{
			{"GET", "/v1/links", 0}, {"GET", "/v1/res/qp", 0}, {"GET", "/v1/stat", 0}, {"GET", "/v1/faults/a", 0},
			{"POST", "/v1/trace/a/next", 1}, {"POST", "/v1/capture/a", 1}, {"DELETE", "/v1/capture/a/x", 1}, {"POST", "/v1/faults/a", 2}, {"DELETE", "/v1/faults/a", 2},
		} {
			want := strings.Fields(c.rights)[r.right]
			if got := fmt.Sprint(request(c.s, r.method, r.path, c.with...).Code); got != want {
				t.Errorf("%s: %s %s is answered by %s, want %s", c.name, r.method, r.path, got, want)
			}
		}
		var a About
		if err := json.Unmarshal(request(c.s, "GET", "/about", c.with...).Body.Bytes(), &a); err != nil || a.Right != c.about {
			t.Errorf("%s: may %q, %v", c.name, a.Right, err)
		}
	}
	// Paths that the page does not need do not exist, for any client.
	for _, path := range []string{"/v1/res/mr", "/v1/page", "/metrics"} {
		if w := request(control, "GET", path, bearer...); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := request(control, "PUT", "/v1/poll/a", bearer...); w.Code == http.StatusOK {
		t.Errorf("PUT /v1/poll: %d", w.Code)
	}
}

// TestWithheld: a client without the token sees neither numbers of queue pairs, nor PSNs, nor the owners of objects.
func TestWithheld(t *testing.T) {
	s := New(Config{Views: newBehind(), NICs: []string{"a"}, Token: token, Open: true})
	if got := request(s, "GET", "/v1/res/qp").Body.String(); got != fmt.Sprintf(`[{"nic":"a","qp":{"qpn":%d,"state":"RTS"}}]`+"\n", pseudonym("1")) {
		t.Errorf("without the token: %s", got)
	}
	if got := request(s, "GET", "/v1/res/qp", "Authorization", "Bearer "+token).Body.String(); !strings.Contains(got, `"sq_psn":2`) || !strings.Contains(got, `"pid":7`) {
		t.Errorf("with the token: %s", got)
	}
}

// TestForeign: pages of other origins, and other names of this address, get no answer.
func TestForeign(t *testing.T) {
	views := newBehind()
	s := New(Config{Views: views, NICs: []string{"a"}, Open: true, Hosts: []string{"lab.example"}})
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"GET", "/v1/stat", nil, 200},
		{"GET", "/v1/stat", []string{"Host", "localhost:9465"}, 200},
		{"GET", "/v1/stat", []string{"Host", "[::1]:9465"}, 200},
		{"GET", "/v1/stat", []string{"Host", "Lab.Example"}, 200},
		{"GET", "/v1/stat", []string{"Host", "evil.example:9465"}, 421},
		{"GET", "/", []string{"Host", "evil.example"}, 421},
		{"GET", "/v1/stat", []string{"Host", "localhost.evil.example"}, 421},
		{"GET", "/v1/stat", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "/v1/stat", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", "/live?view=stat", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/v1/stat", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"POST", "/v1/capture/a", []string{"Origin", "http://evil.example"}, 403},
		{"POST", "/v1/capture/a", []string{"Origin", "http://127.0.0.1:9465"}, 200},
		{"POST", "/v1/capture/a", []string{"Origin", "http://127.0.0.1:80"}, 403},
		{"POST", "/v1/capture/a", []string{"Origin", "null"}, 403},
	} {
		w := request(s, c.method, c.path, c.headers...)
		if w.Code != c.want {
			t.Errorf("%s %s %v: %d, want %d", c.method, c.path, c.headers, w.Code, c.want)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Error("other origins may read")
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self';") {
			t.Errorf("policy %q", csp)
		}
	}
}

// TestSnapshots: for any number of clients, Views gets one request in viewAge.
func TestSnapshots(t *testing.T) {
	views := newBehind()
	s := New(Config{Views: views, NICs: []string{"a"}, Open: true})
	start := time.Now()
	for range 1000 {
		request(s, "GET", "/v1/stat")
	}
	if n, most := views.asked.Load(), int64(time.Since(start)/viewAge)+1; n > most {
		t.Errorf("asked %d times, more than %d", n, most)
	}
	for i := range 100 {
		request(s, "GET", fmt.Sprintf("/v1/stat/none%d", i))
		request(s, "GET", fmt.Sprintf("/v1/stat/%%61?n=%d", i))
		request(s, "GET", fmt.Sprintf("/live?view=stat/a%%3Fn=%d", i))
	}
	if n := views.asked.Load(); n > int64(time.Since(start)/viewAge)*2+2 {
		t.Errorf("asked %d times: other names of a view pass the limit", n)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(viewLife / 10) {
		s.views.mu.Lock()
		n := len(s.views.taken)
		s.views.mu.Unlock()
		if n > 2 {
			t.Fatalf("%d answers are kept, of two views", n)
		}
		if n == 0 {
			break // the answer has expired
		}
		if time.Now().After(deadline) {
			t.Fatal("answers that nobody asks for are kept")
		}
	}
}

// TestPlacesForToken: clients without the token hold at most half of the streams.
func TestPlacesForToken(t *testing.T) {
	server := New(Config{Views: newBehind(), NICs: []string{"a"}, Token: token, Open: true})
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close) // after the streams have ended
	for range maxLive / 2 {
		open(t, srv.URL+"/live?view=links").next(t)
	}
	if w := request(server, "GET", "/live?view=links"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many without the token: %d", w.Code)
	}
	for range maxLive / 2 {
		open(t, srv.URL+"/live?view=links", "Authorization", "Bearer "+token).next(t)
	}
}

// stream reads server-sent events.
type reader struct {
	cancel func()
	lines  *bufio.Scanner
}

func open(t *testing.T, url string, headers ...string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s %s", url, resp.Status, body)
	}
	return &reader{cancel, bufio.NewScanner(resp.Body)}
}

// next returns the name and the data of the next event.
func (s *reader) next(t *testing.T) (event, data string) {
	t.Helper()
	for s.lines.Scan() {
		switch line := s.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			event = line[7:]
		case strings.HasPrefix(line, "data: "):
			return event, line[6:]
		}
	}
	t.Fatalf("the stream ends: %v", s.lines.Err())
	return
}

// TestLive: a stream sends all views first, then only changed views, and asynchronous events.
func TestLive(t *testing.T) {
	views := newBehind()
	srv := httptest.NewServer(New(Config{Views: views, NICs: []string{"a"}, Token: token, Open: true}))
	t.Cleanup(srv.Close) // after the streams have ended
	s := open(t, srv.URL+"/live?view=stat&view=links&every=100ms")
	for _, want := range []string{"links", "stat"} {
		if event, _ := s.next(t); event != want {
			t.Errorf("%s, want %s", event, want)
		}
	}
	for i := range int64(3) {
		views.stat.Store(i + 1)
		if event, data := s.next(t); event != "stat" || data != fmt.Sprintf(`[{"n":%d,"nic":"a"}]`, i+1) {
			t.Errorf("%s %s", event, data)
		}
	}
	for want, headers := range map[string][]string{
		`{"event":"port_error","nic":"a"}`:         nil,
		`{"nic":"a","event":"port_error","pid":7}`: {"Authorization", "Bearer " + token},
	} {
		if event, data := open(t, srv.URL+"/live?view=events", headers...).next(t); event != "events" || data != want {
			t.Errorf("%s %s, want %s", event, data, want)
		}
	}
	for _, q := range []string{"view=res/mr", "view=../x", "view=faults/", "view=stat/none", "view=stat/a%3Fn=1", "view=stat/%2e%2e", "every=1ms&view=stat", "every=x"} {
		if w := request(srv.Config.Handler, "GET", "/live?"+q); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", q, w.Code)
		}
	}
}

// TestLiveIsBounded: the number of streams is limited, and a stream that ends frees its place.
func TestLiveIsBounded(t *testing.T) {
	views := newBehind()
	server := New(Config{Views: views, NICs: []string{"a"}, Open: true})
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close) // after the streams have ended
	var all []*reader
	for range maxLive {
		s := open(t, srv.URL+"/live?view=links")
		s.next(t)
		all = append(all, s)
	}
	if w := request(server, "GET", "/live?view=links"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", w.Code)
	}
	all[0].cancel()
	for deadline := time.Now().Add(time.Minute); len(server.live) == maxLive; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the place is not given back")
		}
	}
	open(t, srv.URL+"/live?view=links").next(t)
}

// TestNoReaders: a server without clients sends no requests to Views.
func TestNoReaders(t *testing.T) {
	views := newBehind()
	server := New(Config{Views: views, NICs: []string{"a"}, Open: true})
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close) // after the streams have ended
	s := open(t, srv.URL+"/live?view=stat&every=100ms")
	s.next(t)
	s.cancel()
	for deadline := time.Now().Add(time.Minute); len(server.live) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream does not end")
		}
	}
	before := views.asked.Load()
	time.Sleep(3 * 100 * time.Millisecond)
	if n := views.asked.Load(); n != before {
		t.Errorf("asked %d times though nobody looks", n-before)
	}
}
