package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/web"
)

// credKey is the context key of the peer's credentials (*unix.Ucred).
type credKey struct{}

// Timeouts of a connection to the admin interface: the time to send the header of a request and then its body, and
// the idle time after a request.
const (
	headerTimeout = 5 * time.Second
	// maxHeader limits the bytes of a header. Browsers send one or two kilobytes.
	maxHeader   = 16 << 10
	idleTimeout = 30 * time.Second
	// scrapeTimeout limits a scrape: collecting takes at most collectTimeout for each NIC.
	scrapeTimeout = 30 * time.Second
)

// startAdmin serves the admin interface, and metrics on TCP if the configuration sets metrics.listen.
func (d *Daemon) startAdmin() error {
	ln, err := accept.Unix("unix", filepath.Join(d.cfg.RunDir, api.Socket), fs.FileMode(d.cfg.Control.Mode))
	if err != nil {
		return err
	}
	routes := d.routes()
	d.admin = d.personal(routes)
	d.serve(d.admin, &admission{ln, d.quota, d.log})
	if d.pageServer, err = d.startPage(d.cfg, nil); err != nil {
		return err
	}
	d.metricsServer, err = d.startMetrics(d.cfg, nil)
	return err
}

// personal returns a server for a Unix socket. It authorizes each request with the peer's credentials.
func (d *Daemon) personal(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           d.permitted(h),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, credKey{}, c.(*visitor).cred)
		},
	}
}

// startMetrics serves metrics on TCP without authentication, if the configuration sets metrics.listen. It refuses requests with
// the name of another host, which a page in a browser has made (DNS rebinding). It returns nil without metrics.listen.
func (d *Daemon) startMetrics(c *config.Config, old *service) (*service, error) {
	if c.Metrics.Listen == "" {
		return nil, nil
	}
	ln, err := listen("metrics.listen", c.Metrics.Listen, old)
	if err != nil {
		return nil, err
	}
	d.log.Info("metrics", "address", ln.Addr())
	hosts := c.Metrics.Hosts
	if own, err := os.Hostname(); err == nil {
		hosts = append(hosts[:len(hosts):len(hosts)], own)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !web.Addressed(r.Host, hosts) {
			http.Error(w, "this server has no such name: an address, localhost, its host's name, or one of metrics.hosts", http.StatusMisdirectedRequest)
			return
		}
		d.metrics.ServeHTTP(w, r)
	})
	return &service{address: c.Metrics.Listen, ln: ln, stop: d.serveTCP(mux, ln, nil, scrapeTimeout)}, nil
}

// serveTCP serves unauthenticated TCP clients until the daemon shuts down. trusted reports whether a request proves a
// right, for example with a token.
func (d *Daemon) serveTCP(h http.Handler, ln net.Listener, trusted func(*http.Request) bool, writeTimeout time.Duration) (stop func()) {
	c := newLimiter(ln, trusted)
	return d.serveUntilEnd(&http.Server{Handler: c.handler(h), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, WriteTimeout: writeTimeout, ConnContext: c.connContext}, c)
}

// serveUntilEnd serves until stop is called or the daemon shuts down. stop returns once the listener is closed.
func (d *Daemon) serveUntilEnd(s *http.Server, ln net.Listener) (stop func()) {
	d.serve(s, ln)
	stopped := make(chan struct{})
	d.served.Go(func() {
		select {
		case <-d.ending:
		case <-stopped:
		}
		s.Close()
	})
	return sync.OnceFunc(func() {
		close(stopped)
		s.Close()
		ln.Close()
	})
}

func (d *Daemon) serve(s *http.Server, ln net.Listener) {
	d.served.Go(func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("admin interface ended", "err", err)
		}
	})
}

// permitted admits root, the daemon's own user, and the users and groups of control in the configuration.
func (d *Daemon) permitted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			readWithin(w, headerTimeout) // the server reads the rest of a body that the handler has not read
		}
		if r.ContentLength < 0 {
			// The body may last as long as the answer, so the server must not wait for its end, even to refuse.
			// HTTP/1 always supports full duplex.
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Connection", "close")
		}
		cred, ok := r.Context().Value(credKey{}).(*unix.Ucred)
		if !ok || cred == nil || !accept.Allowed(cred, d.live.Load().Control.UIDs, d.live.Load().Control.GIDs) {
			answer(w, http.StatusForbidden, api.Fault{Error: fmt.Sprintf("permission denied: the daemon belongs to user %d; control.users and control.groups in its configuration permit others", os.Geteuid())})
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (d *Daemon) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/links", d.getLinks)
	mux.HandleFunc("GET /v1/res/{kind}", d.getResources)
	mux.HandleFunc("GET /v1/stat", d.getStats)
	mux.HandleFunc("GET /v1/stat/{nic}", d.getStats)
	mux.HandleFunc("GET /v1/events", d.getEvents)
	mux.HandleFunc("GET /v1/faults/{nic}", d.withNIC(getFaults))
	mux.HandleFunc("POST /v1/faults/{nic}", d.withNIC(postFaults))
	mux.HandleFunc("DELETE /v1/faults/{nic}", d.withNIC(deleteFaults))
	mux.HandleFunc("POST /v1/capture/{nic}", d.withNIC(d.postCapture))
	mux.HandleFunc("DELETE /v1/capture/{nic}/{id}", d.withNIC(deleteCapture))
	mux.HandleFunc("POST /v1/trace/{nic}/{qp}", d.withNIC(d.postTrace))
	mux.HandleFunc("GET /v1/poll/{nic}", d.withNIC(getPoll))
	mux.HandleFunc("PUT /v1/poll/{nic}", d.withNIC(putPoll))
	mux.HandleFunc("GET /v1/page", d.getPage)
	mux.HandleFunc("POST /v1/reload", d.postReload)
	mux.Handle("GET /metrics", d.metrics)
	return mux
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// nicHandler handles a request for one NIC.
type nicHandler func(n *nic, w http.ResponseWriter, r *http.Request) error

// badRequest marks an error as the client's fault: status 400.
type badRequest struct{ error }

// withNIC looks up the NIC of the path and turns errors of h into answers.
func (d *Daemon) withNIC(h nicHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := d.nic(r.PathValue("nic"))
		if n == nil {
			answer(w, http.StatusNotFound, d.unknown(r.PathValue("nic")))
			return
		}
		err := h(n, w, r)
		var bad badRequest
		switch {
		case err == nil:
		case errors.As(err, &bad):
			answer(w, http.StatusBadRequest, api.Fault{Error: err.Error()})
		default:
			answer(w, http.StatusInternalServerError, api.Fault{Error: err.Error()})
		}
	}
}

// readWithin limits the time to read a body; 0 means no limit.
func readWithin(w http.ResponseWriter, d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetReadDeadline(at) // a writer without deadlines does not block
}

// maxBody limits the body of a request, in bytes.
const maxBody = 1 << 20

func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return badRequest{err}
	}
	readWithin(w, 0) // the server now reads to notice a disconnect
	return nil
}

// getEvents streams events as JSON lines until the client disconnects.
func (d *Daemon) getEvents(w http.ResponseWriter, r *http.Request) {
	ch := d.events.subscribe()
	defer d.events.unsubscribe(ch)
	w.Header().Set("Content-Type", "application/jsonl")
	ctl := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	for {
		if ctl.Flush() != nil {
			return
		}
		select {
		case e := <-ch:
			if enc.Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-d.ending:
			return
		}
	}
}

func getPoll(n *nic, w http.ResponseWriter, r *http.Request) error {
	p, err := n.shard.Poll(r.Context())
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.PollSetting{Poll: config.PollOf(p).String()})
	return nil
}

func putPoll(n *nic, w http.ResponseWriter, r *http.Request) error {
	var in api.PollSetting
	if err := readBody(w, r, &in); err != nil {
		return err
	}
	p, err := config.ParsePoll(in.Poll)
	if err != nil {
		return badRequest{err}
	}
	if err := n.shard.SetPoll(r.Context(), p.Duration()); err != nil {
		return err
	}
	answer(w, http.StatusOK, api.PollSetting{Poll: p.String()})
	return nil
}

func postFaults(n *nic, w http.ResponseWriter, r *http.Request) error {
	var in api.RuleSet
	if err := readBody(w, r, &in); err != nil {
		return err
	}
	rules, err := fault.ParseAll(in.Rules)
	if err != nil {
		return badRequest{err}
	}
	err = n.setRules(r.Context(), func(old []fault.Rule) []fault.Rule {
		if in.Replace {
			return rules
		}
		return append(old[:len(old):len(old)], rules...)
	})
	if err != nil {
		return badRequest{err}
	}
	return getFaults(n, w, r)
}

func deleteFaults(n *nic, w http.ResponseWriter, r *http.Request) error {
	if err := n.setRules(r.Context(), func([]fault.Rule) []fault.Rule { return nil }); err != nil {
		return err
	}
	return getFaults(n, w, r)
}
