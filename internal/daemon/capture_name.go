package daemon

import (
	"fmt"
	"net/http"
	"sync"
)

// named holds the captures that a client can end by name. Browsers need this: they cannot end a request body during
// the answer. A browser that cancels an answer loses the data in flight.
type named struct {
	mu   sync.Mutex
	ends map[string]chan struct{}
}

// maxName limits the length of a name, in bytes.
const maxName = 64

// begin returns a channel that closes when the capture must end; the caller calls forget afterwards. Without a name
// the channel never closes.
func (l *named) begin(name string) (over <-chan struct{}, forget func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case name == "":
		return nil, func() {}, nil
	case len(name) > maxName:
		return nil, nil, badRequest{fmt.Errorf("id has %d bytes, more than %d", len(name), maxName)}
	case l.ends[name] != nil:
		return nil, nil, badRequest{fmt.Errorf("there is a capture with the id %q", name)}
	case l.ends == nil:
		l.ends = map[string]chan struct{}{}
	}
	ch := make(chan struct{})
	l.ends[name] = ch
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ends[name] == ch {
			delete(l.ends, name)
		}
	}, nil
}

// end ends the capture of that name and reports whether it exists.
func (l *named) end(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.ends[name]
	if ch != nil {
		close(ch)
		delete(l.ends, name)
	}
	return ch != nil
}

// deleteCapture ends a capture by name. The answer to the request that started it then ends complete.
func deleteCapture(n *nic, w http.ResponseWriter, r *http.Request) error {
	if name := r.PathValue("id"); !n.captures.end(name) {
		return badRequest{fmt.Errorf("there is no capture with the id %q", name)}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
