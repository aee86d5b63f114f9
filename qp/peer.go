package qp

import (
	"math/bits"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/retrans"
)

// Peer bounds the packets that the queue pairs of a NIC have outstanding towards one address. The receiver of a
// software NIC is a process with a bounded socket buffer, which fills while the process waits for a processor. The
// window of a single queue pair cannot prevent that: the sum counts.
//
// Queue pairs with packets outstanding get equal shares of the window, so none waits for another one. The window halves
// when packets are lost behind a long queue, and grows by one packet per window acknowledged, as TCP's (RFC 5681 3.1).
// A loss without a queue is a fault of the path; a smaller window would not help.
type Peer struct {
	window     uint32        // packets
	maxWindow  uint32        // largest window
	sent       uint32        // outstanding PSNs of all queue pairs
	active     uint32        // queue pairs with outstanding PSNs
	clients    int           // clients with outstanding PSNs
	acked      uint32        // PSNs acknowledged since the window grew last
	minRTT     time.Duration // round trip
	lastRTT    time.Duration // round trip
	lastRTTAt  mono.Time     // when the latest round trip ended
	prober     *QP           // the queue pair that probes the silent peer
	reducedAt  mono.Time     // when the window was halved
	maxSilence time.Duration
	contention *Contention // of the NIC
}

const (
	// defaultPeerWindow applies to links that do not report their buffers.
	defaultPeerWindow = 1 << 14
	// minPeerWindow fills the links that software drives at their shortest round trips.
	minPeerWindow = 16
	// minReducedWindow is the smallest window after losses: fewer packets hardly fill a socket. A smaller window would
	// request more acknowledgements, too.
	minReducedWindow = 64
	// queueDelay is the delay above two shortest round trips that shows a queue at the receiver. A running process answers
	// sooner.
	queueDelay = time.Millisecond
	// maxBackoff limits the doubled timeouts.
	maxBackoff = 250 * time.Millisecond
	// localSilence is the time for which a local peer may stay silent.
	localSilence = 2 * time.Second
)

// NewPeer returns a Peer with a window of most packets, zero for the default. local means that the peer runs on this
// machine, and may wait for a processor longer than the retries last. c is the contention of the NIC.
func NewPeer(most uint32, local bool, c *Contention) *Peer {
	if most == 0 {
		most = defaultPeerWindow
	}
	most = max(most, minPeerWindow)
	p := &Peer{window: most, maxWindow: most, contention: c}
	if local {
		p.maxSilence = localSilence
	}
	return p
}

// share returns the part of the window for one queue pair.
func (p *Peer) share() uint32 { return max(p.window/max(p.active, 1), 1) }

// update replaces the outstanding PSNs of a queue pair.
func (p *Peer) update(before, after uint32) {
	p.sent += after - before
	switch {
	case before == 0 && after != 0:
		p.active++
	case before != 0 && after == 0:
		p.active--
	}
}

// onAck follows an acknowledgement of n PSNs. rtt is zero if no packet was timed. A window that is not used does not grow
// (RFC 7661).
func (p *Peer) onAck(now mono.Time, n uint32, rtt time.Duration) {
	p.prober = nil
	if rtt > 0 {
		p.lastRTT, p.lastRTTAt = rtt, now
		if p.minRTT == 0 || rtt < p.minRTT {
			p.minRTT = rtt
		}
	}
	if p.sent < p.window/2 {
		return
	}
	if p.acked += n; p.acked >= p.window {
		p.acked = 0
		p.window = min(p.window+1, p.maxWindow)
	}
}

// onLoss follows a loss. age is how long ago a packet of the lost flight was sent; the last round trip may show that it is
// longer. Losses of a flight that began before the last reduction are part of the same event.
func (p *Peer) onLoss(now mono.Time, age time.Duration) {
	if now.Sub(p.lastRTTAt) < p.lastRTT {
		age = max(age, p.lastRTT)
	}
	if age <= 2*p.minRTT+queueDelay || p.reducedAt != 0 && now.Sub(p.reducedAt) < age {
		return
	}
	p.reducedAt, p.acked = now, 0
	p.window = max(min(p.window, p.sent)/2, min(minReducedWindow, p.maxWindow))
}

// peering is the part of a Client that one queue pair uses.
type peering struct {
	*Client
	counted      uint32    // outstanding PSNs that the client and the peer count
	timeouts     uint8     // timeouts of RC since the last progress
	shift        uint8     // of the MTU
	left         uint8     // packets that may still be sent in this turn
	turn         turnState // without packets left
	nextTurn     mono.Time // when an overdue queue pair begins a turn; zero: none is
	stalledSince mono.Time // when the first packet after the last progress was lost; zero: none
}

// mayProbe reports whether q may probe for a tail loss. While the peer is silent, one queue pair does.
func (p *Peer) mayProbe(q *QP) bool {
	if p.prober == nil {
		p.prober = q
	}
	return p.prober == q
}

// release ends the probes of q.
func (p *Peer) release(q *QP) {
	if p.prober == q {
		p.prober = nil
	}
}

// SetPeer makes q share the window of x and of its Peer. After nil, q shares none. Extended transports share none: their
// papers bound the outstanding packets (IRN 3.2, MP-RDMA 3.2).
func (q *QP) SetPeer(now mono.Time, x *Client) {
	if f := q.peering; f != nil {
		f.count(now, 0)
		f.release(q)
	}
	q.peering = nil
	if q.x != nil {
		x = nil
	}
	if g, ok := q.req.rec.(*retrans.GoBackN); ok {
		g.SetSlowPeer(x != nil)
	}
	if x != nil {
		q.peering = &peering{Client: x, shift: uint8(bits.TrailingZeros32(q.mtu))}
		q.countOutstanding(now)
	}
}

// count replaces the outstanding packets that the client and the peer count.
func (f *peering) count(now mono.Time, n uint32) {
	if n != f.counted {
		f.update(f.counted, n)
		f.updateBytes(now, f.bytes(f.counted), f.bytes(n))
		f.counted = n
	}
}

// countOutstanding reports the outstanding packets of q to its peer. It follows each input.
func (q *QP) countOutstanding(now mono.Time) {
	if q.peering != nil {
		q.recount(now)
	}
}

func (q *QP) recount(now mono.Time) {
	n := uint32(0)
	if q.req.rec != nil && q.sending() {
		n = q.req.rec.InFlight()
	}
	q.peering.count(now, n)
}

// maxUnacked returns the limit on outstanding PSNs of q. After a timeout, one packet at a time probes the peer: the
// packets sent before may still wait in its buffer.
func (q *QP) maxUnacked() uint32 {
	if q.peering == nil {
		return q.cfg.MaxUnacked
	}
	return q.peering.maxUnacked(q.cfg.MaxUnacked)
}

func (f *peering) maxUnacked(most uint32) uint32 {
	if f.timeouts > 0 {
		return 1
	}
	return min(most, f.share())
}

// onAnswer ends the backoff towards a peer that was silent.
func (r *requester) onAnswer() {
	f := r.q.peering
	if f == nil {
		return
	}
	f.stalledSince = 0
	if f.timeouts > 0 {
		f.timeouts = 0
		r.rec.SetTimeout(r.q.ackTimeout())
	}
}

// backOff doubles the timeout of RC after a timeout, up to maxBackoff and, unless the peer is local, to four times the
// ACK timeout, as IBTA allows (vol.1 9.7.6.1.3).
func (r *requester) backOff() {
	f := r.q.peering
	if f == nil {
		return
	}
	f.timeouts = min(f.timeouts+1, 16)
	t, most := r.q.ackTimeout(), maxBackoff
	if f.maxSilence == 0 {
		most = min(most, 4*t)
	}
	r.rec.SetTimeout(max(t, min(t<<f.timeouts, most)))
}

// toleratesSilence follows a loss. It reports whether the peer may still answer although no retries are left.
func (q *QP) toleratesSilence(now mono.Time) bool {
	f := q.peering
	if f == nil {
		return false
	}
	if f.stalledSince == 0 {
		f.stalledSince = now
	}
	return now.Sub(f.stalledSince) < f.maxSilence
}
