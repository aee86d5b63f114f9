package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// viewAge is the maximum age of a shared snapshot. A NIC is asked at most once in that time, however many readers
// there are.
const viewAge = 100 * time.Millisecond

// viewTimeout limits the time that a NIC may take to answer.
const viewTimeout = 5 * time.Second

// viewLife is the lifetime of a stored answer without further requests.
const viewLife = time.Second

// viewName names a view: a kind from a fixed set, with a NIC where the kind needs one. So the number of stored
// answers is bounded for any sequence of requests.
type viewName struct{ kind, nic string }

// String returns the path of the view below /v1/.
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

// views holds the answers that all readers share.
type views struct {
	from  http.Handler
	mu    sync.Mutex // held during a request; other readers wait for the same answer
	taken map[viewName]*view
}

// view is an answer to a GET.
type view struct {
	at     time.Time
	status int
	body   []byte
	sum    [sha256.Size]byte // of body
	open   func() []byte     // returns body without private members
}

// get returns the answer to a GET of a view, which is at most viewAge old.
func (v *views) get(name viewName) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old := v.taken[name]; old != nil && time.Since(old.at) < viewAge {
		return old
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	var w answerTo
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://roced/v1/"+name.kind, nil)
	if err != nil {
		return &view{status: http.StatusBadRequest, body: []byte("{}\n"), open: func() []byte { return nil }}
	}
	if name.nic != "" {
		r.URL = r.URL.JoinPath(url.PathEscape(name.nic))
	}
	v.from.ServeHTTP(&w, r)
	out := &view{at: time.Now(), status: cmp.Or(w.status, http.StatusOK), body: w.Bytes(), sum: sha256.Sum256(w.Bytes())}
	out.open = sync.OnceValue(func() []byte { return withhold(out.body) })
	v.taken[name] = out
	time.AfterFunc(viewLife, func() { v.drop(name, out) })
	return out
}

// drop removes a stored answer unless a newer one has replaced it.
func (v *views) drop(name viewName, old *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.taken[name] == old {
		delete(v.taken, name)
	}
}

// shownTo returns the body for a client with the right r.
func (v *view) shownTo(r right) []byte {
	if r >= see {
		return v.body
	}
	return v.open()
}

// response is a ResponseWriter without a body.
type response struct {
	status int // 0: http.StatusOK
	header http.Header
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) { r.status = status }

// Flush implements http.Flusher.
func (r *response) Flush() {}

// answerTo is a ResponseWriter that stores the answer.
type answerTo struct {
	response
	bytes.Buffer
}

// private lists the JSON members that only users of the administration socket may see. A client that knows the number of a
// queue pair or a PSN can forge packets for it. The owners of programs are private, too.
var private = []string{"dest_qpn", "sq_psn", "rq_psn", "pid", "uid", "client", "socket"}

// numbers lists the JSON members with numbers of queue pairs. They distinguish queue pairs, so that others see pseudonyms.
var numbers = []string{"qpn", "lqpn"}

// secret makes the pseudonyms of this process.
var secret = maphash.MakeSeed()

// pseudonym returns a number beyond those of queue pairs.
func pseudonym(qpn json.Number) uint64 { return 1<<24 + maphash.String(secret, qpn.String())%(1<<31) }

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
		for _, name := range numbers {
			if n, ok := v[name].(json.Number); ok {
				v[name] = pseudonym(n)
			}
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
