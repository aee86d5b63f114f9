package web

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/watch"
)

const (
	// flowSnap is the number of bytes of a frame that the analyser needs: all headers, and complete management
	// datagrams.
	flowSnap = "400"
	// flowEvery is the time between two reports.
	flowEvery = time.Second
)

// getFlows streams the output of "rocectl watch" for a NIC as server-sent events. It analyses a capture for as long
// as the client reads.
func (s *Server) getFlows(w http.ResponseWriter, r *http.Request) {
	out, ok := s.open(w, s.rightOf(r))
	if !ok {
		return
	}
	defer s.close(s.rightOf(r))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	rd, wr := io.Pipe()
	captured := make(chan struct{})
	nic := r.PathValue("nic")
	go func() {
		defer close(captured)
		s.capture(ctx, wr, nic)
	}()
	rep := watch.Reporter{Source: nic}
	err := watch.Replay(ctx, rd, &rep, flow.New(flow.Options{}), flowEvery, func(r *watch.Report) error {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return out.send("flows", r.Time, line)
	})
	cancel()
	rd.CloseWithError(io.ErrClosedPipe)
	<-captured
	if err != nil && r.Context().Err() == nil {
		_ = out.send("problem", time.Now(), []byte(`{"error":"the capture has ended"}`)) // an error means that the client has gone
	}
}

// capture writes a capture of a NIC until ctx ends.
func (s *Server) capture(ctx context.Context, w *io.PipeWriter, nic string) {
	defer w.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://roced/v1/capture/"+url.PathEscape(nic)+"?snaplen="+flowSnap, http.NoBody)
	if err != nil {
		return
	}
	s.cfg.Views.ServeHTTP(&piped{to: w}, r)
}

// piped is a ResponseWriter that writes the body of a successful answer into a pipe.
type piped struct {
	response
	to io.Writer
}

// Write implements io.Writer.
func (p *piped) Write(b []byte) (int, error) {
	if p.status != 0 && p.status != http.StatusOK {
		return len(b), nil
	}
	return p.to.Write(b)
}
