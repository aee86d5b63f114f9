package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// viewAge is how old a snapshot may be that is given out again: however many look, and however
// often, a NIC is asked so often at most.
const viewAge = 100 * time.Millisecond

// viewTimeout bounds how long a NIC may take to answer.
const viewTimeout = 5 * time.Second

// views are the answers that all who look share.
type views struct {
	from  http.Handler
	mu    sync.Mutex // while one asks, the others wait for the same
	taken map[string]*view
}

// view is an answer to a GET.
type view struct {
	at     time.Time
	status int
	body   []byte
	open   func() []byte // body without what is not for everybody
}

// get returns the answer to a GET of a path.
func (v *views) get(path string) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old := v.taken[path]; old != nil && time.Since(old.at) < viewAge {
		return old
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	w := &answerTo{status: http.StatusOK}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://roced"+path, nil)
	if err != nil {
		return &view{status: http.StatusBadRequest, body: []byte("{}\n"), open: func() []byte { return nil }}
	}
	v.from.ServeHTTP(w, r)
	out := &view{at: time.Now(), status: w.status, body: w.body.Bytes()}
	out.open = sync.OnceValue(func() []byte { return withhold(out.body) })
	if w.status == http.StatusOK { // of other answers there is one for every path that somebody thinks of
		v.taken[path] = out
	} else {
		delete(v.taken, path)
	}
	return out
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
