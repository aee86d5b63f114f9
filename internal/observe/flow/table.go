package flow

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// stream is what goes from an address to a queue pair of another.
type stream struct {
	key
	self, peer   int32 // places in the table; none without a peer
	prev, next   int32 // in order of use
	serial       uint64
	join         Join
	service      string
	start, last  mono.Time // of its packets
	packets      uint64
	bytes        uint64
	cnps         uint64
	badICRC      uint64
	transport    string // as Flow has it; none while there were CNPs only
	mtu          int
	requests     requests
	responses    responses
	tries, wrong int // to find the peer, and signs that it is not the right one
}

// Join says how the two streams of a connection were found to belong together.
type Join string

// Ways.
const (
	Unjoined Join = ""
	ByCM     Join = "cm"
	ByPSN    Join = "psn"
)

// stream returns the stream of k, which is used now.
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

// take returns a place that is not in use: a new one, or that of the stream unused
// longest.
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

// peer returns the other stream of the connection, nil if it is not known.
func (a *Analyzer) peer(s *stream) *stream {
	if s.peer == none {
		return nil
	}
	return a.streams[s.peer]
}

// marry joins two streams, which leave those that they were joined with.
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

// part parts s from its peer.
func (a *Analyzer) part(s *stream) {
	if t := a.peer(s); t != nil {
		t.peer, t.join = none, Unjoined
	}
	s.peer, s.join = none, Unjoined
}

// Bounds of the search for peers.
const (
	eagerTries = 64 // responses that are looked at one by one
	lazyTries  = 64 // later every so many
	tooWrong   = 8  // responses in a row that the peer has no request for
)

// seek looks for the peer of s by a response with PSN p: the stream in the other
// direction that has no peer and requests which match p, if there is only one, or only
// one that waits for an answer to just that PSN.
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

// doubt parts s from a peer that was found by PSN when several responses in a row match
// none of its requests: a number was used anew.
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
