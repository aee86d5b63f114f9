package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	minEvery, maxEvery = 100 * time.Millisecond, time.Minute
	// sayAlive is the keepalive interval of a stream. A failed keepalive ends a stream whose reader has gone.
	sayAlive = 15 * time.Second
	// writeTimeout is the write timeout of a stream.
	writeTimeout = 10 * time.Second
	// maxViews is the maximum number of views in one stream.
	maxViews = 40
)

// getLive streams views as server-sent events. It checks each view every ?every= and sends it after a change. ?view=
// names a view by its path below /v1/; it may appear several times. ?view=events streams asynchronous events as they
// occur. The data are the answers of the administration interface.
func (s *Server) getLive(w http.ResponseWriter, r *http.Request) {
	o, err := s.parseLive(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	right := s.rightOf(r)
	out, ok := s.open(w, right)
	if !ok {
		return
	}
	defer s.close(right)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if o.events {
		var done sync.WaitGroup
		defer done.Wait() // before the server reuses the connection
		defer cancel()
		done.Go(func() { s.passEvents(ctx, out, right) })
	}
	s.passViews(ctx, out, o, right)
}

// open starts a stream if a place is free.
func (s *Server) open(w http.ResponseWriter, of right) (*stream, bool) {
	if !s.take(of) {
		refuse(w, http.StatusServiceUnavailable, "all streams are in use: close another page, or use one with the token")
		return nil, false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, ctl: http.NewResponseController(w)}, true
}

// take acquires a place for a stream.
func (s *Server) take(of right) bool {
	if of < see {
		select {
		case s.looks <- struct{}{}:
		default:
			return false
		}
	}
	select {
	case s.live <- struct{}{}:
		return true
	default:
		if of < see {
			<-s.looks
		}
		return false
	}
}

// close releases the place of a stream.
func (s *Server) close(of right) {
	<-s.live
	if of < see {
		<-s.looks
	}
}

// looking holds the parameters of a stream.
type looking struct {
	every  time.Duration
	views  []viewName
	events bool
}

func (s *Server) parseLive(q url.Values) (o looking, err error) {
	o.every = time.Second
	if text := q.Get("every"); text != "" {
		if o.every, err = time.ParseDuration(text); err != nil || o.every < minEvery || o.every > maxEvery {
			return o, fmt.Errorf("every=%q: must be between %v and %v", text, minEvery, maxEvery)
		}
	}
	for _, name := range q["view"] {
		if name == "events" {
			o.events = true
			continue
		}
		v, ok := s.parseView(name)
		if !ok {
			return o, fmt.Errorf("unknown view %q", name)
		}
		o.views = append(o.views, v)
	}
	if len(o.views) > maxViews {
		return o, fmt.Errorf("more than %d views", maxViews)
	}
	slices.SortFunc(o.views, viewName.compare)
	o.views = slices.Compact(o.views)
	return o, nil
}

// passViews sends changed views until ctx ends or a write fails.
func (s *Server) passViews(ctx context.Context, out *stream, o looking, to right) {
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	shown := make([][sha256.Size]byte, len(o.views)) // hashes: a stream stores no answers
	var spoken time.Time
	for {
		for i, name := range o.views {
			v := s.views.get(name)
			if v.sum == shown[i] {
				continue
			}
			event := name.String()
			if shown[i] = v.sum; v.status != http.StatusOK {
				event = "problem"
			}
			if out.send(event, v.at, v.shownTo(to)) != nil {
				return
			}
			spoken = time.Now()
		}
		if time.Since(spoken) > sayAlive {
			if out.comment() != nil {
				return
			}
			spoken = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// passEvents sends asynchronous events until ctx ends.
func (s *Server) passEvents(ctx context.Context, out *stream, to right) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://roced/v1/events", nil)
	if err != nil {
		return
	}
	s.cfg.Views.ServeHTTP(&lines{each: func(line []byte) error {
		if to < see {
			line = withhold(line)
		}
		return out.send("events", time.Now(), line)
	}}, r)
}

// stream is an answer of server-sent events.
type stream struct {
	mu  sync.Mutex
	w   http.ResponseWriter
	ctl *http.ResponseController
}

// send sends an event with its time in milliseconds as its ID. data is one line of JSON.
func (s *stream) send(event string, at time.Time, data []byte) error {
	return s.write(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", at.UnixMilli(), event, bytes.TrimSuffix(data, []byte("\n"))))
}

func (s *stream) comment() error { return s.write([]byte(":\n\n")) }

func (s *stream) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines does not block
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.ctl.Flush()
}

// lines is a ResponseWriter that forwards its body line by line.
type lines struct {
	response
	rest []byte
	each func(line []byte) error
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if err := l.each(line); err != nil {
			return 0, err
		}
		l.rest = rest
	}
}
