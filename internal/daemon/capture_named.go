package daemon

import (
	"fmt"
	"net/http"
	"sync"
)

// named are captures that are ended by a name. Browsers need that: they cannot end the body of a request
// while its answer goes on, and who gives up an answer loses what is on its way.
type named struct {
	mu   sync.Mutex
	ends map[string]chan struct{}
}

// maxName bounds the length of a name.
const maxName = 64

// begin returns a channel that is closed when the capture is to end; forget ends that. Without a name it
// never is.
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

// end ends a capture and reports whether there is one of that name.
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

// deleteCapture ends a capture: the answer to the request that began it ends complete.
func deleteCapture(n *nic, w http.ResponseWriter, r *http.Request) error {
	if name := r.PathValue("id"); !n.captures.end(name) {
		return badRequest{fmt.Errorf("there is no capture with the id %q", name)}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
