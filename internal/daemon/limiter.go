package daemon

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"roced.io/roced/internal/daemon/api"
)

// limiterPlaces is the maximum number of connections of a TCP listener.
const limiterPlaces = 32

// limiter is a TCP listener for clients whose user is unknown. It shares a fixed number of places in two classes:
// clients that have proved a right, then clients by address.
//
//   - A new connection that finds no place evicts a connection without a request. Connections without a right go first,
//     from the address with the most connections, oldest first.
//   - Where requests can prove a right, connections without one hold at most half of the places. Elsewhere one address
//     holds at most a quarter. So neither idle connections nor slow readers starve other clients.
type limiter struct {
	net.Listener
	trusted func(*http.Request) bool // nil: no request proves a right

	mu    sync.Mutex
	conns []*limitedConn // oldest first
}

// limitedConn is a connection of a limiter.
type limitedConn struct {
	net.Conn
	limiter *limiter
	addr    netip.Addr
	busy    bool // an answer is in progress
	trusted bool // the last request proved a right
}

func newLimiter(ln net.Listener, trusted func(*http.Request) bool) *limiter {
	return &limiter{Listener: ln, trusted: trusted}
}

// Accept implements net.Listener.
func (c *limiter) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s := &limitedConn{Conn: conn, limiter: c}
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			s.addr = a.AddrPort().Addr().Unmap()
		}
		if s.addr.IsLoopback() { // a local program can use all of 127.0.0.0/8
			s.addr = netip.IPv6Loopback()
		}
		if evicted, ok := c.add(s); ok {
			if evicted != nil {
				evicted.Close()
			}
			return s, nil
		}
		conn.Close()
	}
}

// add finds a place for s. It returns the connection that s evicts, if any.
func (c *limiter) add(s *limitedConn) (evicted *limitedConn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= limiterPlaces {
		if evicted = c.victim(); evicted == nil {
			return nil, false
		}
		c.remove(evicted)
	}
	c.conns = append(c.conns, s)
	return evicted, true
}

// victim returns the idle connection to evict, or nil if there is none.
func (c *limiter) victim() (v *limitedConn) {
	from := map[netip.Addr]int{}
	for _, s := range c.conns {
		from[s.addr]++
	}
	for _, s := range c.conns {
		switch {
		case s.busy:
		case v == nil, v.trusted && !s.trusted, v.trusted == s.trusted && from[s.addr] > from[v.addr]:
			v = s
		}
	}
	return v
}

func (c *limiter) remove(s *limitedConn) {
	for i, x := range c.conns {
		if x == s {
			c.conns = append(c.conns[:i], c.conns[i+1:]...)
			return
		}
	}
}

// Close implements net.Conn.
func (s *limitedConn) Close() error {
	s.limiter.mu.Lock()
	s.limiter.remove(s)
	s.limiter.mu.Unlock()
	return s.Conn.Close()
}

type limitedKey struct{}

// connContext is for http.Server.ConnContext. It puts the connection into the context of its requests.
func (c *limiter) connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, limitedKey{}, conn)
}

// handler serves h within the limits of the limiter.
func (c *limiter) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, ok := r.Context().Value(limitedKey{}).(*limitedConn)
		if !ok || !c.begin(s, c.trusted != nil && c.trusted(r)) {
			w.Header().Set("Connection", "close")
			answer(w, http.StatusServiceUnavailable, api.Fault{Error: "too many requests without a token at this time"})
			return
		}
		defer c.end(s)
		h.ServeHTTP(w, r)
	})
}

// begin reports whether a request may be answered.
func (c *limiter) begin(s *limitedConn, trusted bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, same := 0, 0
	for _, x := range c.conns {
		if x.busy && !x.trusted {
			all++
			if x.addr == s.addr {
				same++
			}
		}
	}
	full := all >= limiterPlaces/2
	if c.trusted == nil {
		full = same >= limiterPlaces/4
	}
	if full && !trusted {
		return false
	}
	s.busy, s.trusted = true, trusted
	return true
}

func (c *limiter) end(s *limitedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.busy = false
}
