package api

import (
	"errors"
	"io"
	"net/http"

	"github.com/open-traffic-generator/snappi/gosnappi/otg"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Handler returns the API as OTG's paths of HTTP with JSON.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /config", route(s.SetConfig))
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.GetConfig(), nil) })
	mux.HandleFunc("PATCH /config", route(s.UpdateConfig))
	mux.HandleFunc("PATCH /config/append", route(s.AppendConfig))
	mux.HandleFunc("PATCH /config/delete", route(s.DeleteConfig))
	mux.HandleFunc("POST /control/state", route(s.SetControlState))
	mux.HandleFunc("POST /control/action", route(s.SetControlAction))
	mux.HandleFunc("POST /monitor/metrics", route(s.GetMetrics))
	mux.HandleFunc("POST /monitor/states", route(s.GetStates))
	mux.HandleFunc("POST /monitor/capture", s.capture)
	mux.HandleFunc("GET /capabilities/version", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.GetVersion(), nil) })
	return http.NewCrossOriginProtection().Handler(mux) // pages of other sites in a browser
}

// message is a pointer to a message of protobuf.
type message[T any] interface {
	*T
	proto.Message
}

// route adapts an operation to HTTP.
func route[T any, R proto.Message, M message[T]](operate func(M) (R, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := M(new(T))
		if err := read(w, r, m); err != nil {
			reply(w, nil, err)
			return
		}
		out, err := operate(m)
		reply(w, out, err)
	}
}

// read decodes a request. Fields that the model lacks are errors.
func read(w http.ResponseWriter, r *http.Request, m proto.Message) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return refused(err)
	}
	if len(b) == 0 {
		return nil
	}
	return refused(protojson.Unmarshal(b, m))
}

// reply writes a result or an error as JSON. Writing fails only if the client is gone.
func reply(w http.ResponseWriter, m proto.Message, err error) {
	code := http.StatusOK
	var f *failure
	if errors.As(err, &f) {
		code = http.StatusBadRequest
		if f.kind == otg.Error_Kind_internal {
			code = http.StatusInternalServerError
		}
		m = f.message(int32(code))
	}
	b, err := jsonForm.Marshal(m)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

// capture returns a capture as it is.
func (s *Server) capture(w http.ResponseWriter, r *http.Request) {
	m := &otg.CaptureRequest{}
	if err := read(w, r, m); err != nil {
		reply(w, nil, err)
		return
	}
	b, err := s.GetCapture(m)
	if err != nil {
		reply(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b)
}
