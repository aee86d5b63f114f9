// Package web serves the live page: its files, what they ask for, and who may ask for what. What
// the page shows are the answers of the administration interface, or of whatever else is behind
// Config.Views; the package adds who may have them, and a stream that passes on what changes.
//
// A browser is a deputy that everybody can ask for favours, and a TCP port does not say who is
// there. So requests have to be addressed to this server and nobody else (Host), must not come
// from pages of others (Sec-Fetch-Site, Origin), and have rights by a token that is sent in a
// header: no cookie, which browsers send to all ports of a host.
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

// Config says what is served, and to whom.
type Config struct {
	// Views answers requests of paths below /v1/. Whoever gets through to it may do all that it does.
	Views http.Handler
	// Token gives those who have it the right to see everything. Without one everybody has it: the
	// listener asks who is there.
	Token string
	// Open lets everybody look who can connect, without what could be used against others.
	Open bool
	// Control lets those who may see everything change something.
	Control bool
	// Hosts are names of this server beside localhost and addresses.
	Hosts []string
	// NICs are the names of the NICs that views are about.
	NICs []string
	// About is for the page: what it is to show.
	About About
}

// About is what the page asks first.
type About struct {
	Version string `json:"version"`
	// File is the name of the stored trace, capture or result that is shown; empty for a daemon.
	File string `json:"file,omitempty"`
	Kind string `json:"kind,omitempty"` // of the file: trace, capture or simulation
	// Right is what whoever asks may do: none, look, see or change.
	Right string `json:"right"`
}

// Server serves the page.
type Server struct {
	cfg   Config
	views *views
	live  chan struct{} // a place for each stream
	looks chan struct{} // a place for each stream of a caller without a token
	mux   *http.ServeMux
}

//go:embed assets
var assets embed.FS

// policy are the headers of every answer: the page loads nothing from elsewhere, runs nothing
// that is not a file of its own, is in no frame, and tells nobody where it is.
var policy = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// maxLive limits the streams of all callers. Callers without a token have at most half of them.
const maxLive = 32

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, views: &views{from: cfg.Views, taken: map[viewName]*view{}}, live: make(chan struct{}, maxLive),
		looks: make(chan struct{}, maxLive/2), mux: http.NewServeMux()}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // they are part of the program
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
	if !s.addressed(r.Host) {
		refuse(w, http.StatusMisdirectedRequest, "this server has no such name: an address, localhost, or one of web.hosts")
		return
	}
	if foreign(r) {
		refuse(w, http.StatusForbidden, "a page of another site asks")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// addressed reports whether a request's Host is a name of this server. A page whose name has
// been made to mean our address sends its own.
func (s *Server) addressed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(s.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// foreign reports whether a page of somebody else is behind a request. Its links may lead here; all
// other things that a page can ask a browser for are refused, also to pages of other ports.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "": // no browser, or one that does not say so to plain HTTP
		origin := r.Header.Get("Origin")
		return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
	}
	return r.Method != http.MethodGet || r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// right is what somebody may do; each includes those before it.
type right int

const (
	none right = iota
	look
	see
	change
)

func (r right) String() string { return [...]string{"none", "look", "see", "change"}[r] }

// served are the requests that Views is asked for. A snapshot is an answer that many share.
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

// rightOf is what whoever has sent a request may do.
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

// allow lets those through who have a right.
func (s *Server) allow(needs right, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch have := s.rightOf(r); {
		case have >= needs:
			h(w, r)
		case have == see:
			refuse(w, http.StatusForbidden, "the page is read-only: web.control in the daemon's configuration")
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

// pass has Views answer. What browsers send has a length; a body without an end in sight would keep
// the answer waiting.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		refuse(w, http.StatusLengthRequired, "a body without a length")
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
	_, _ = w.Write(v.shownTo(s.rightOf(r))) // the caller has gone, then
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller has gone, then
}

// refuse answers as the administration interface does.
func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{why})
}
