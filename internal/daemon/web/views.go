package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// viewAge is how old a snapshot may be that is given out again: however many look, and however
// often, a NIC is asked so often at most.
const viewAge = 100 * time.Millisecond

// viewTimeout bounds how long a NIC may take to answer.
const viewTimeout = 5 * time.Second

// viewLife is how long an answer is kept that no caller asks for again.
const viewLife = time.Second

// viewName names a view: one of a fixed set of kinds, with one of the NICs where the kind has one. So the number of
// answers that are kept is bounded, whatever callers ask for.
type viewName struct{ kind, nic string }

// String is the path of the view below /v1/.
func (n viewName) String() string {
	if n.nic == "" {
		return n.kind
	}
	return n.kind + "/" + n.nic
}

func (n viewName) compare(m viewName) int { return strings.Compare(n.String(), m.String()) }

// parseView parses the name of a view.
func (s *Server) parseView(text string) (n viewName, ok bool) {
	if text == "links" || text == "res/qp" || text == "stat" {
		return viewName{kind: text}, true
	}
	n.kind, n.nic, _ = strings.Cut(text, "/")
	return n, (n.kind == "stat" || n.kind == "faults") && slices.Contains(s.cfg.NICs, n.nic)
}

// views are the answers that all readers share.
type views struct {
	from  http.Handler
	mu    sync.Mutex // while one reader asks, the others wait for the same answer
	taken map[viewName]*view
}

// view is an answer to a GET.
type view struct {
	at     time.Time
	status int
	body   []byte
	sum    [sha256.Size]byte // of body
	open   func() []byte     // body without what is not for everybody
}

// get returns the answer to a GET of a view.
func (v *views) get(name viewName) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old := v.taken[name]; old != nil && time.Since(old.at) < viewAge {
		return old
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	w := &answerTo{status: http.StatusOK}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://roced/v1/"+name.kind, nil)
	if err != nil {
		return &view{status: http.StatusBadRequest, body: []byte("{}\n"), open: func() []byte { return nil }}
	}
	if name.nic != "" {
		r.URL = r.URL.JoinPath(url.PathEscape(name.nic))
	}
	v.from.ServeHTTP(w, r)
	out := &view{at: time.Now(), status: w.status, body: w.body.Bytes(), sum: sha256.Sum256(w.body.Bytes())}
	out.open = sync.OnceValue(func() []byte { return withhold(out.body) })
	v.taken[name] = out
	time.AfterFunc(viewLife, func() { v.drop(name, out) })
	return out
}

// drop forgets an answer unless a newer one has its place.
func (v *views) drop(name viewName, old *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.taken[name] == old {
		delete(v.taken, name)
	}
}

// shownTo is what somebody with a right gets to see.
func (v *view) shownTo(r right) []byte {
	if r >= see {
		return v.body
	}
	return v.open()
}

// answerTo keeps an answer.
type answerTo struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answerTo) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *answerTo) WriteHeader(status int) { a.status = status }

// Write implements io.Writer.
func (a *answerTo) Write(b []byte) (int, error) { return a.body.Write(b) }

// private are the members that only those get to see who may use the administration socket. Who
// knows a PSN can forge packets for its queue pair; who runs what is not everybody's business.
var private = []string{"sq_psn", "rq_psn", "pid", "uid", "client", "socket"}

// withhold removes private members from JSON.
func withhold(body []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return []byte("{}\n")
	}
	strip(v)
	out, err := json.Marshal(v)
	if err != nil {
		return []byte("{}\n")
	}
	return append(out, '\n')
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range private {
			delete(v, name)
		}
		for _, x := range v {
			strip(x)
		}
	case []any:
		for _, x := range v {
			strip(x)
		}
	}
}
