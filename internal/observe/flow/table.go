package flow

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
)

// stream is the traffic from one address to one queue pair of another.
type stream struct {
	key
	use          list.Node[*stream]
	peer         *stream // the other stream of the connection, nil if it is unknown
	serial       uint64
	join         Join
	service      string
	start, last  mono.Time // first and last packet
	packets      uint64
	cnps         uint64
	badICRC      uint64
	transport    string // as in Flow; empty while only CNPs passed
	mtu          int
	copies       copies
	requests     requests
	responses    responses
	tries, wrong int // number of searches for the peer, and of mismatches with it in a row
}

// Join is the method by which the Analyzer joined the two streams of a connection.
type Join string

// Values of Join.
const (
	Unjoined Join = ""
	ByCM     Join = "cm"
	ByPSN    Join = "psn"
)

// stream returns the stream of k and marks it as most recently used.
func (a *Analyzer) stream(k key, now mono.Time) *stream {
	s := a.index[k]
	if s != nil {
		s.use.Remove()
	} else {
		s = a.take()
		*s = stream{key: k, serial: a.serial, start: now}
		s.use.Item = s
		a.index[k] = s
		a.serial++
	}
	a.order.PushBack(&s.use)
	return s
}

// take returns an unused stream: a new one, or the least recently used one.
func (a *Analyzer) take() *stream {
	if len(a.index) < a.options.Streams {
		return new(stream)
	}
	s := a.order.First().Item
	s.use.Remove()
	a.part(s)
	delete(a.index, s.key)
	a.totals.Evicted++
	return s
}

// marry joins two streams. It first separates each from its previous peer.
func (a *Analyzer) marry(s, t *stream, by Join) {
	a.part(s)
	a.part(t)
	s.peer, t.peer = t, s
	s.join, t.join = by, by
	s.wrong, t.wrong = 0, 0
	if s.mtu == 0 {
		s.mtu = t.mtu
	}
	t.mtu = s.mtu
}

// part separates s from its peer.
func (a *Analyzer) part(s *stream) {
	if t := s.peer; t != nil {
		t.peer, t.join = nil, Unjoined
	}
	s.peer, s.join = nil, Unjoined
}

// Limits of the search for peers.
const (
	eagerTries = 64 // the first responses, each of which starts a search
	lazyTries  = 64 // interval of searches after that
	tooWrong   = 8  // consecutive responses without a matching request
)

// seek searches for the peer of s with a response of PSN p. Candidates are streams in the opposite direction without
// a peer whose requests match p. seek joins a single candidate, or the only candidate whose last request awaits PSN
// p.
func (a *Analyzer) seek(s *stream, p bth.PSN, match func(*sequence, bth.PSN) bool) {
	s.tries++
	if s.tries > eagerTries && s.tries%lazyTries != 0 {
		return
	}
	var found, exact *stream
	all, exacts := 0, 0
	for n := a.order.First(); n != nil; n = n.Next() {
		t := n.Item
		if t == s || t.peer != nil || t.datagram || t.src != s.dst || t.dst != s.src || !match(&t.requests.seq, p) {
			continue
		}
		found = t
		all++
		if t.requests.asked == p {
			exact = t
			exacts++
		}
	}
	switch {
	case all == 1:
		a.marry(s, found, ByPSN)
	case exacts == 1:
		a.marry(s, exact, ByPSN)
	}
}

// doubt separates s from a peer found by PSN after several consecutive responses match none of its requests. The
// queue pair number was then reused.
func (a *Analyzer) doubt(s *stream, p bth.PSN, match func(*sequence, bth.PSN) bool) {
	t := s.peer
	if s.join != ByPSN || match(&t.requests.seq, p) {
		s.wrong = 0
		return
	}
	if s.wrong++; s.wrong >= tooWrong {
		a.part(s)
		s.tries = 0
	}
}
