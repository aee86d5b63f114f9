package qp

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// ClientWindow bounds the bytes that the queue pairs of one client have outstanding towards a Peer. Frames wait in the
// socket of a receiver in the order of their arrival, so the outstanding bytes of a client delay all other clients. The
// scheduler cannot help there: it orders only the frames that have not left.
//
// The clients with outstanding packets share clientBytes equally. Within its part, a client's queue pairs take turns of
// turnBytes bytes, so that they send super-frames however many they are. The last packet of a turn requests an
// acknowledgement.
//
// If no acknowledgement arrives for clientPatience, the outstanding bytes no longer count, and the window doubles until one
// arrives. So queue pairs without answers do not block others for long.
type ClientWindow struct {
	// Waiting is the number of queue pairs that wait for a turn. Others do not overtake them.
	Waiting int

	peer    *Peer
	sent    uint64    // outstanding bytes
	granted int64     // bytes of turns that have begun, not sent yet
	ignored uint64    // outstanding bytes that do not count
	heard   mono.Time // last acknowledgement, or the first packet after an idle time, or the end of clientPatience
	silent  uint8     // times that clientPatience has passed since
}

const (
	// clientBytes is enough for the links that software drives.
	clientBytes = 384 << 10
	// turnBytes is two super-frames.
	turnBytes = 128 << 10
	// clientTrip is the round trip for which clientBytes is enough. Longer ones have a larger window.
	clientTrip     = 256 * time.Microsecond
	clientPatience = 10 * time.Millisecond
	// leastCost is the cost of a short packet in bytes. Short packets take a receiver more time than their bytes.
	leastCost = 512
)

// NewClientWindow returns the window of a client towards p.
func NewClientWindow(p *Peer) *ClientWindow { return &ClientWindow{peer: p} }

// window returns the largest number of outstanding bytes.
func (x *ClientWindow) window() uint64 {
	all := clientBytes * uint64(max(1, x.peer.shortest/clientTrip))
	return max(all/uint64(max(x.peer.clients, 1)), turnBytes) << x.silent
}

// Turns returns the number of turns that may begin.
func (x *ClientWindow) Turns() int {
	used := x.sent - x.ignored + uint64(x.granted)
	return int((x.window() - min(used, x.window()) + turnBytes - 1) / turnBytes)
}

// due returns when outstanding bytes cease to count.
func (x *ClientWindow) due() mono.Time { return x.heard.Add(max(clientPatience, 2*x.peer.shortest)) }

// expire ceases to count the outstanding bytes.
func (x *ClientWindow) expire(now mono.Time) {
	if x.sent > x.ignored {
		x.silent = min(x.silent+1, 16)
	}
	x.ignored, x.heard = x.sent, now
}

// turn is a queue pair's part of a ClientWindow.
type turn struct {
	left   int64  // bytes that may still be sent in this turn
	spent  uint64 // bytes of new packets that settle has not counted
	bytes  uint64 // outstanding bytes
	waits  bool   // the queue pair has packets to send and waits for a turn
	called bool   // it waited, and may begin one
}

// begin reports whether a packet may leave, in this turn or a new one.
func (t *turn) begin(now mono.Time, x *ClientWindow) bool {
	if t.left > 0 {
		return true
	}
	late := now >= x.due()
	if late {
		x.expire(now)
	}
	if x.Turns() == 0 || x.Waiting > 0 && !t.called && !late {
		t.waits = true
		return false
	}
	t.waits, t.called = false, false
	t.grant(x, turnBytes)
	return true
}

// grant changes the bytes that may still be sent in this turn.
func (t *turn) grant(x *ClientWindow, n int64) {
	x.granted += n - t.left
	t.left = n
}

// spend accounts a packet and reports whether it is the last of the turn.
func (t *turn) spend(x *ClientWindow, bytes uint32) (last bool) {
	n := max(bytes, leastCost)
	t.grant(x, max(t.left-int64(n), 0))
	t.spent += uint64(n)
	return t.left == 0
}

// settle replaces the outstanding PSNs of the queue pair. Acknowledged packets have the average size. Retransmitted
// packets have a full one, because they are not spent.
func (t *turn) settle(now mono.Time, x *ClientWindow, before, after, mtu uint32) {
	old := t.bytes
	switch {
	case after < before:
		t.bytes = t.bytes * uint64(after) / uint64(before)
	case t.spent > 0:
		t.bytes += t.spent
	default:
		t.bytes += uint64(after-before) * uint64(mtu)
	}
	t.spent = 0
	was := x.sent
	if x.sent = x.sent - old + t.bytes; x.sent < was || was == 0 {
		x.heard, x.silent = now, 0
	}
	x.ignored = min(x.ignored, x.sent)
	switch {
	case was == 0 && x.sent > 0:
		x.peer.clients++
	case was > 0 && x.sent == 0:
		x.peer.clients--
	}
}

// Waits reports whether q has packets to send and waits for a turn (ClientWindow).
func (q *QP) Waits() bool { return q.peering != nil && q.peering.turn.waits }

// BeginTurn lets q, which waits for a turn, begin one.
func (q *QP) BeginTurn() {
	if f := q.peering; f != nil {
		q.touch()
		f.turn.called = true
	}
}

// mayLeave reports whether a new packet may leave now. Otherwise q waits for a turn.
func (q *QP) mayLeave(now mono.Time) bool {
	return q.peering == nil || q.peering.turn.begin(now, q.peering.client)
}

// spend accounts a new packet of span PSNs and reports whether it is the last of a turn.
func (q *QP) spend(payload int, span uint32) bool {
	if q.peering == nil {
		return false
	}
	if span > 1 { // a READ, for its responses
		payload = int(min(uint64(span)*uint64(q.mtu), 1<<31))
	}
	return q.peering.turn.spend(q.peering.client, uint32(payload))
}

// turnDeadline returns when a waiting queue pair may send although no acknowledgement arrives.
func (q *QP) turnDeadline() mono.Time {
	if !q.Waits() {
		return mono.Never
	}
	return q.peering.client.due()
}

// endTurn follows the last packet that q can send now.
func (q *QP) endTurn() {
	if f := q.peering; f != nil {
		f.turn.grant(f.client, 0)
	}
}
