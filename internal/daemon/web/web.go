// Package web serves the live page: its files, its data and the access control. The data are the answers of the
// administration interface, or of any other handler in Config.Views. The package adds access rights, and a stream of
// changes.
//
// Any web site can make a browser send requests (confused deputy), and a TCP port does not identify its peer. So the
// server checks three properties of a request:
//
//   - Its Host header names this server.
//   - It does not come from a page of another origin (Sec-Fetch-Site, Origin).
//   - A token in a header grants the rights. A cookie would not do: browsers send it to all ports of a host.
package web

import (
	"crypto/subtle"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Config sets the content of a server and its access rules.
type Config struct {
	// Views answers requests for paths below /v1/. It does not check rights: the server does this before.
	Views http.Handler
	// Token grants the right to see everything. If it is empty, all clients have that right, and the listener must
	// check them.
	Token string
	// Open lets clients without the token see everything except data that could be used against others.
	Open bool
	// Control permits changes of settings by clients that may see everything.
	Control bool
	// Hosts are names of this server besides localhost and IP addresses.
	Hosts []string
	// NICs are the names of the NICs that have views.
	NICs []string
	// About describes the content for the page.
	About About
}

// About is the answer to the page's first request.
type About struct {
	Version string `json:"version"`
	// File is the name of the stored trace, capture or result that is shown; empty: a daemon.
	File string `json:"file,omitempty"`
	Kind string `json:"kind,omitempty"` // of the file: trace, capture or simulation
	// Right is the right of the client: none, look, see or change.
	Right string `json:"right"`
}

// Server serves the page.
type Server struct {
	cfg   Config
	views *views
	live  chan struct{} // one place for each stream
	looks chan struct{} // one place for each stream of a client without a token
	mux   *http.ServeMux
}

//go:embed assets
var assets embed.FS

// policy holds the headers of every answer. The page loads nothing from elsewhere, runs only its own files, cannot be
// framed, and sends no referrer.
var policy = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// maxLive limits the streams of all clients. Clients without a token have at most half of them.
const maxLive = 32

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, views: &views{from: cfg.Views, taken: map[viewName]*view{}}, live: make(chan struct{}, maxLive),
		looks: make(chan struct{}, maxLive/2), mux: http.NewServeMux()}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the assets are part of the program
	}
	s.mux.Handle("GET /", http.FileServerFS(files))
	s.mux.HandleFunc("GET /about", s.getAbout)
	s.mux.HandleFunc("GET /live", s.allow(look, s.getLive))
	s.mux.HandleFunc("GET /v1/flows/{nic}", s.allow(see, s.getFlows))
	for _, v := range served {
		h := s.pass
		if v.snapshot {
			h = s.getView
		}
		s.mux.HandleFunc(v.pattern, s.allow(v.needs, h))
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range policy {
		w.Header().Set(name, value)
	}
	if !Addressed(r.Host, s.cfg.Hosts) {
		refuse(w, http.StatusMisdirectedRequest, "unknown host name: use an address, localhost, or one of web.hosts")
		return
	}
	if foreign(r) {
		refuse(w, http.StatusForbidden, "a page of another site sent this request")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Addressed reports whether a request's Host is a name of this server: localhost, an address, or one of hosts. This stops DNS
// rebinding: a page whose name resolves to our address sends its own name.
func Addressed(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// foreign reports whether a page of another origin caused a request. Such pages may link here. All their other
// requests are refused, also those of pages on other ports of this host.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "": // no browser, or a browser that omits the header over plain HTTP
		origin := r.Header.Get("Origin")
		return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
	}
	return r.Method != http.MethodGet || r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// right is the right of a client; each right includes the previous ones.
type right int

const (
	none right = iota
	look
	see
	change
)

func (r right) String() string { return [...]string{"none", "look", "see", "change"}[r] }

// served lists the requests that go to Views. A snapshot is an answer that several clients share.
var served = []struct {
	pattern  string
	needs    right
	snapshot bool
}{
	{"GET /v1/links", look, true},
	{"GET /v1/res/qp", look, true},
	{"GET /v1/stat", look, true},
	{"GET /v1/stat/{nic}", look, true},
	{"GET /v1/faults/{nic}", look, true},
	{"POST /v1/trace/{nic}/{qp}", see, false},
	{"POST /v1/capture/{nic}", see, false},
	{"DELETE /v1/capture/{nic}/{id}", see, false},
	{"POST /v1/faults/{nic}", change, false},
	{"DELETE /v1/faults/{nic}", change, false},
	{"GET /v1/file/{part}", see, false},
}

// rightOf returns the right of the client that sent a request.
func (s *Server) rightOf(r *http.Request) right {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case s.cfg.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.cfg.Token)) != 1:
		if s.cfg.Open {
			return look
		}
		return none
	case s.cfg.Control:
		return change
	}
	return see
}

// MaySee reports whether a request proves the right to see everything.
func (s *Server) MaySee(r *http.Request) bool { return s.rightOf(r) >= see }

// allow serves h to clients with the right needs, and refuses others.
func (s *Server) allow(needs right, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch have := s.rightOf(r); {
		case have >= needs:
			h(w, r)
		case have == see:
			refuse(w, http.StatusForbidden, "the page is read-only: set web.control in the daemon's configuration")
		default:
			refuse(w, http.StatusUnauthorized, "the token is missing or wrong: rocectl page prints the address with it")
		}
	}
}

func (s *Server) getAbout(w http.ResponseWriter, r *http.Request) {
	a := s.cfg.About
	a.Right = s.rightOf(r).String()
	answer(w, http.StatusOK, a)
}

// pass forwards a request to Views. It refuses bodies of unknown length: browsers do not send them, and an endless
// body would delay the answer.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		refuse(w, http.StatusLengthRequired, "the request needs a Content-Length")
		return
	}
	s.cfg.Views.ServeHTTP(w, r)
}

// getView answers with a snapshot.
func (s *Server) getView(w http.ResponseWriter, r *http.Request) {
	name, ok := s.parseView(strings.TrimPrefix(r.URL.Path, "/v1/"))
	if !ok {
		refuse(w, http.StatusNotFound, "no such NIC: "+r.PathValue("nic"))
		return
	}
	v := s.views.get(name)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(v.status)
	_, _ = w.Write(v.shownTo(s.rightOf(r))) // an error means that the client has gone
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// refuse sends an error in the format of the administration interface.
func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{why})
}
