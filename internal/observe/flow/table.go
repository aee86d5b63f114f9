package flow

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// stream is the traffic from one address to one queue pair of another.
type stream struct {
	key
	self, peer   int32 // indexes in the table; peer may be none
	prev, next   int32 // LRU list
	serial       uint64
	join         Join
	service      string
	start, last  mono.Time // first and last packet
	packets      uint64
	bytes        uint64
	cnps         uint64
	badICRC      uint64
	transport    string // as in Flow; empty while only CNPs passed
	mtu          int
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
	i, ok := a.index[k]
	if ok {
		a.unlink(i)
	} else {
		i = a.take()
		*a.streams[i] = stream{key: k, self: i, peer: none, serial: a.serial, start: now}
		a.index[k] = i
		a.serial++
	}
	a.linkFront(i)
	return a.streams[i]
}

// take returns an unused index: a new one, or that of the least recently used stream.
func (a *Analyzer) take() int32 {
	if len(a.streams) < a.limit {
		a.streams = append(a.streams, new(stream))
		return int32(len(a.streams) - 1)
	}
	i := a.older
	a.unlink(i)
	a.part(a.streams[i])
	delete(a.index, a.streams[i].key)
	a.totals.Evicted++
	return i
}

func (a *Analyzer) unlink(i int32) {
	s := a.streams[i]
	if s.prev != none {
		a.streams[s.prev].next = s.next
	} else {
		a.newer = s.next
	}
	if s.next != none {
		a.streams[s.next].prev = s.prev
	} else {
		a.older = s.prev
	}
}

func (a *Analyzer) linkFront(i int32) {
	s := a.streams[i]
	s.prev, s.next = none, a.newer
	if a.newer != none {
		a.streams[a.newer].prev = i
	} else {
		a.older = i
	}
	a.newer = i
}

// peer returns the other stream of the connection, or nil if it is unknown.
func (a *Analyzer) peer(s *stream) *stream {
	if s.peer == none {
		return nil
	}
	return a.streams[s.peer]
}

// marry joins two streams. It first separates each from its previous peer.
func (a *Analyzer) marry(s, t *stream, by Join) {
	a.part(s)
	a.part(t)
	s.peer, t.peer = t.self, s.self
	s.join, t.join = by, by
	s.wrong, t.wrong = 0, 0
	if s.mtu == 0 {
		s.mtu = t.mtu
	}
	t.mtu = s.mtu
}

// part separates s from its peer.
func (a *Analyzer) part(s *stream) {
	if t := a.peer(s); t != nil {
		t.peer, t.join = none, Unjoined
	}
	s.peer, s.join = none, Unjoined
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
	n, exacts := 0, 0
	for i := a.newer; i != none; i = a.streams[i].next {
		t := a.streams[i]
		if t == s || t.peer != none || t.datagram || t.src != s.dst || t.dst != s.src || !match(&t.requests.seq, p) {
			continue
		}
		found = t
		n++
		if t.requests.asked == p {
			exact = t
			exacts++
		}
	}
	switch {
	case n == 1:
		a.marry(s, found, ByPSN)
	case exacts == 1:
		a.marry(s, exact, ByPSN)
	}
}

// doubt separates s from a peer found by PSN after several consecutive responses match none of its requests. The
// queue pair number was then reused.
func (a *Analyzer) doubt(s *stream, p bth.PSN, match func(*sequence, bth.PSN) bool) {
	t := a.peer(s)
	if s.join != ByPSN || match(&t.requests.seq, p) {
		s.wrong = 0
		return
	}
	if s.wrong++; s.wrong >= tooWrong {
		a.part(s)
		s.tries = 0
	}
}
