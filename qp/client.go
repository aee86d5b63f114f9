package qp

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Contention records whether several clients use a NIC.
type Contention struct {
	last  uint64 // client
	at    mono.Time
	until mono.Time
}

// Used follows a frame of a client, which has a number of its own.
func (c *Contention) Used(now mono.Time, client uint64) {
	if c.last != client {
		if c.at != 0 && now.Sub(c.at) < contentionTime {
			c.until = now.Add(contentionTime)
		}
		c.last = client
	}
	c.at = now
}

// Client bounds the bytes that the queue pairs of one client have outstanding towards a Peer while other clients use the
// NIC. Frames wait in the socket of a receiver in the order of their arrival, so outstanding bytes of a client delay all
// other clients. The scheduler cannot help there: it orders only frames that have not left. A packet counts as a full one,
// because short packets take a receiver more time than their bytes.
//
// Within the window, the queue pairs take turns of about a super-frame. The last packet of a turn requests an
// acknowledgement, since no other packet of its queue pair may follow soon.
//
// If no acknowledgement arrives for clientAckTime, the outstanding bytes no longer count. A queue pair that waits that long
// for its own acknowledgement begins one turn in contentionTime. So queue pairs without answers block others of their client
// only briefly.
type Client struct {
	*Peer
	// Waiting is the number of queue pairs that wait for a turn. Others do not overtake them.
	Waiting int

	sent    int64     // outstanding bytes
	expired int64     // outstanding bytes that do not count
	since   mono.Time // last acknowledgement, or first packet after an idle time, or end of clientAckTime
}

const (
	// contentionTime is the time for which a client is bounded after a frame of another client.
	contentionTime = 100 * time.Millisecond
	// clientsBytes is enough for the links that software drives. All clients share it.
	clientsBytes = 256 << 10
	// clientTrip is the round trip for which clientsBytes is enough. Longer ones have a larger window.
	clientTrip = 256 * time.Microsecond
	// turnBytes is a super-frame with MTU 4096.
	turnBytes     = 60 << 10
	clientAckTime = 10 * time.Millisecond
)

// NewClient returns the window of a client towards p.
func NewClient(p *Peer) *Client { return &Client{Peer: p} }

// contended reports whether other clients share the way to the peer, or have used the NIC lately.
func (x *Client) contended(now mono.Time) bool { return x.clients > 1 || now < x.contention.until }

// limit returns the largest number of outstanding bytes under contention.
func (x *Client) limit() int64 {
	all := clientsBytes * int64(max(1, x.minRTT/clientTrip))
	return max(all/int64(max(x.clients, 2)), turnBytes)
}

// Turns returns the number of turns that may begin.
func (x *Client) Turns(now mono.Time) int {
	if !x.contended(now) {
		return x.Waiting
	}
	room := x.limit() - (x.sent - x.expired)
	return int(max(room+turnBytes-1, 0) / turnBytes)
}

// due returns when an acknowledgement is overdue that has been awaited from an instant on.
func (x *Client) due(after mono.Time) mono.Time { return after.Add(max(clientAckTime, 2*x.minRTT)) }

// updateBytes replaces the outstanding bytes of a queue pair.
func (x *Client) updateBytes(now mono.Time, before, after int64) {
	was := x.sent
	x.sent += after - before
	if was == 0 || x.sent < was {
		x.since = now
	}
	x.expired = min(x.expired, x.sent)
	switch {
	case was == 0 && x.sent > 0:
		x.clients++
	case was > 0 && x.sent == 0:
		x.clients--
	}
}

// turnState is the state of a queue pair between turns.
type turnState uint8

const (
	noTurn turnState = iota
	waitsForTurn
	grantedTurn
	overdueTurn // no acknowledgement arrives
)

// bytes returns the size of n full packets.
func (f *peering) bytes(n uint32) int64 { return int64(n) << f.shift }

// endTurn follows the last packet that can be sent now.
func (f *peering) endTurn() {
	f.left = 0
	if f.turn == grantedTurn {
		f.turn = noTurn
	}
}

// mayLeave reports whether a new packet may leave, in this turn or a new one. Otherwise q waits for a turn.
func (q *QP) mayLeave(now mono.Time) bool { return q.peering == nil || q.hasTurn(now) }

func (q *QP) hasTurn(now mono.Time) bool {
	f := q.peering
	if f.left > 0 || !f.contended(now) {
		return true
	}
	if q.overdue(now) {
		return false
	}
	late := now >= f.due(f.since)
	if late {
		f.expired, f.since = f.sent, now
	}
	if f.Turns(now) == 0 || f.Waiting > 0 && f.turn != grantedTurn && !late {
		f.turn = waitsForTurn
		return false
	}
	f.turn, f.left = noTurn, uint8(uint32(turnBytes)>>f.shift)
	return true
}

// overdue reports whether q, whose acknowledgement is overdue, must wait for its next turn.
func (q *QP) overdue(now mono.Time) bool {
	f := q.peering
	if !q.req.acks.pending() || now < f.due(q.req.since) {
		f.nextTurn = 0
		return false
	}
	if f.nextTurn == 0 {
		f.nextTurn = now.Add(contentionTime)
	}
	if now < f.nextTurn {
		f.turn = overdueTurn
		return true
	}
	f.nextTurn = 0
	return false
}

// endsTurn accounts a new packet of span PSNs and reports whether it is the last of a turn.
func (q *QP) endsTurn(span uint32) bool {
	f := q.peering
	if f == nil || f.left == 0 {
		return false
	}
	f.left -= uint8(min(span, uint32(f.left)))
	return f.left == 0
}

// Waits reports whether q has packets to send and waits for a turn of its Client.
func (q *QP) Waits() bool { return q.peering != nil && q.peering.turn == waitsForTurn }

// BeginTurn lets q, which waits for a turn, begin one.
func (q *QP) BeginTurn() {
	if f := q.peering; f != nil {
		q.touch()
		f.turn = grantedTurn
	}
}

// turnDeadline returns when a waiting queue pair may send although no acknowledgement arrives.
func (q *QP) turnDeadline() mono.Time {
	switch f := q.peering; {
	case f != nil && f.turn == waitsForTurn:
		return f.due(f.since)
	case f != nil && f.turn == overdueTurn:
		return f.nextTurn
	}
	return mono.Never
}
