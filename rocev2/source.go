package rocev2

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// source is the UDP source port of the peer of a queue pair, on sockets. A peer on this host owns the socket that is bound to it,
// so no packet of another local user comes from there. Peers on the network may change their ports.
type source struct {
	port   uint16 // 0: any
	learns bool   // the next packet that the transport accepts tells the port
}

// sourcePause is the minimum time between two questions of a NIC whether a peer has closed its socket.
const sourcePause = 100 * time.Millisecond

// watchSource makes q learn the source port of its peer. With several paths a peer has several.
func (n *NIC) watchSource(q *QueuePair) {
	q.source = source{learns: n.cfg.Bound != nil && q.typ != qp.UD && !q.path.Local() && q.core.OnePath()}
}

// checkSource verifies the source port of a packet for q, which has another one than the learned.
func (n *NIC) checkSource(now mono.Time, q *QueuePair) rxReason {
	if now < n.rx.askSource {
		return rxSource
	}
	n.rx.askSource = now.Add(sourcePause)
	if n.cfg.Bound(q.path.Dst.Addr(), q.source.port) {
		return rxSource
	}
	q.source = source{learns: true}
	return rxOK
}

// learnSource keeps the source port of an accepted packet, if it is bound on this host.
func (n *NIC) learnSource(q *QueuePair, port uint16) {
	q.source = source{}
	if n.cfg.Bound(q.path.Dst.Addr(), port) {
		q.source.port = port
	}
}

// sourceOf returns the UDP source port in an entropy value.
func sourceOf(entropy uint32) uint16 {
	port, _ := bth.SplitEntropy(entropy)
	return port
}
