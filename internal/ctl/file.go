package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/observe/watch"
)

// stored is a file to view.
type stored struct {
	path string
	kind string // trace, capture or simulation
	dir  string // directory of a simulation
}

// openStored detects the type of a file.
func openStored(path string) (*stored, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "summary.json")); err != nil {
			return nil, fmt.Errorf("%s is not a result of rocesim run --out: %w", path, err)
		}
		return &stored{filepath.Join(path, "summary.json"), "simulation", path}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := bufio.NewReader(f).Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s is empty", path)
	case err != nil:
		return nil, err
	case head[0] != '{':
		return &stored{path, "capture", ""}, checkCapture(path)
	}
	return storedJSON(path)
}

// checkCapture returns an error if a file is not a capture.
func checkCapture(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := pcapng.NewReader(f); err != nil {
		return fmt.Errorf("%s is not a trace, a simulation result or a capture: %w", path, err)
	}
	return nil
}

// storedJSON distinguishes traces from simulation results.
func storedJSON(path string) (*stored, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var first struct {
		trace.Record
		BySize json.RawMessage `json:"by_size"`
	}
	if err := json.NewDecoder(bounded.Reader(f, bounded.Data)).Decode(&first); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case first.Start != nil:
		return &stored{path, "trace", ""}, nil
	case first.BySize != nil:
		return &stored{path, "simulation", ""}, nil
	}
	return nil, fmt.Errorf("%s is neither a trace nor the result of a simulation", path)
}

// name returns the name that the user gave.
func (f *stored) name() string {
	if f.dir != "" {
		return f.dir
	}
	return f.path
}

// routes returns the handlers that the page requests.
func (f *stored) routes() http.Handler {
	mux := http.NewServeMux()
	part := func(name string, h func(w http.ResponseWriter) error) {
		mux.HandleFunc("GET /v1/file/"+name, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w); err != nil { // too late for an error status after the first byte of the body
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
			}
		})
	}
	switch f.kind {
	case "trace":
		part("trace", func(w http.ResponseWriter) error { return sendFile(w, f.path) })
	case "capture":
		part("flows", f.sendFlows)
		part("frames", f.sendFrames)
	case "simulation":
		part("summary", func(w http.ResponseWriter) error { return sendFile(w, f.path) })
		for _, name := range []string{"flows", "samples"} {
			part(name, func(w http.ResponseWriter) error { return f.sendTable(w, name) })
		}
	}
	return mux
}

func sendFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// sendTable sends a table of a simulation. It sends an empty body if the simulation did not store the table.
func (f *stored) sendTable(w io.Writer, name string) error {
	if f.dir == "" {
		return nil
	}
	err := sendFile(w, filepath.Join(f.dir, name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sendFlows sends the output of "rocectl watch FILE --json". A truncated capture counts up to its readable end.
func (f *stored) sendFlows(w http.ResponseWriter) error {
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	var out bytes.Buffer
	err = watch.Replay(context.Background(), in, &watch.Reporter{Source: f.path, Select: watch.Selection{Sort: "age"}}, flow.New(flow.Options{}), 0,
		func(r *watch.Report) error { return json.NewEncoder(&out).Encode(r) })
	if out.Len() == 0 {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// sendFrames sends the output of "rocectl decode FILE --json".
func (f *stored) sendFrames(w http.ResponseWriter) error {
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := decode.Stream(in, w, decode.Options{JSON: true})
	if st.Frames > 0 {
		return nil // the rest of the file is unreadable
	}
	return err
}
