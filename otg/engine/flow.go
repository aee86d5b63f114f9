package engine

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/verbs"
)

// flow is a flow of the configuration. Its fields belong to the shard.
type flow struct {
	cfg        Flow
	port       *testPort
	pair       *pair
	group      []*flow // flows that share the rate
	state      FlowState
	failed     uint64 // messages
	completed  uint64 // messages
	completion time.Duration
	lastErr    string
}

// message is a message in progress.
type message struct {
	flow  *flow
	begun mono.Time // when its first packet left, 0 before
}

// opcodes of the verbs.
var opcodes = map[Verb]qp.WROpcode{Write: qp.WRWrite, WriteImm: qp.WRWriteImm, Send: qp.WRSend, SendImm: qp.WRSendImm, Read: qp.WRRead}

// sendQueue is the send queue of a queue pair: it makes the next message of its started flows whenever the queue pair takes
// one, so that no message waits in a ring. The transport bounds the messages in progress.
type sendQueue pair

// Next implements rocev2.SendQueue.
func (s *sendQueue) Next(w *qp.SendWQE) bool {
	f := s.pick()
	if f == nil {
		return false
	}
	*w = qp.SendWQE{Opcode: opcodes[f.cfg.Verb], Flags: qp.SendSignaled, Imm: f.cfg.Immediate, Length: f.cfg.Size,
		RemoteVA: s.far.va, RKey: s.far.rkey, SGEs: append(w.SGEs[:0], qp.SGE{Length: f.cfg.Size, LKey: s.local.LKey}), Inline: w.Inline[:0]}
	s.progress.put(f)
	return true
}

// pick returns the started flow whose turn it is.
func (s *sendQueue) pick() *flow {
	for range s.flows {
		s.turn = (s.turn + 1) % len(s.flows)
		if f := s.flows[s.turn]; f.state == Started {
			return f
		}
	}
	return nil
}

// Pending implements rocev2.SendQueue.
func (s *sendQueue) Pending() bool {
	for _, f := range s.flows {
		if f.state == Started {
			return true
		}
	}
	return false
}

// Retire implements rocev2.SendQueue.
func (s *sendQueue) Retire(int) {}

// Reset implements rocev2.SendQueue.
func (s *sendQueue) Reset() { s.progress = progress{readNext: s.ownPSN} }

// progress holds the messages in progress, oldest first.
type progress struct {
	ring              [depth]message
	head, begun, tail uint32
	readNext          bth.PSN // behind the last READ request
}

func (p *progress) put(f *flow) {
	p.ring[p.tail%depth] = message{flow: f}
	p.tail++
}

// began records that the first packet of a message has left.
func (q *pair) began(now mono.Time) {
	p := &q.progress
	if p.begun == p.tail {
		return
	}
	p.ring[p.begun%depth].begun = now
	p.begun++
}

// recvQueue is the receive queue of a queue pair: there is always a receive for the longest message.
type recvQueue pair

// Next implements rocev2.RecvQueue. A broken queue pair has none to flush.
func (r *recvQueue) Next(w *qp.RecvWQE) bool {
	if s := r.q.State(); s != qp.RTR && s != qp.RTS {
		return false
	}
	w.SGEs = append(w.SGEs[:0], qp.SGE{Length: maxMessage, LKey: r.local.LKey})
	return true
}

// Len implements rocev2.RecvQueue.
func (r *recvQueue) Len() int { return depth }

// Reset implements rocev2.RecvQueue.
func (r *recvQueue) Reset() {}

// completions is the completion ring of a NIC. It handles each completion at once.
type completions struct {
	rocev2.Arming
	host *host
}

// Len implements rocev2.CompletionRing.
func (*completions) Len() int { return 0 }

// Push implements rocev2.CompletionRing.
func (c *completions) Push(e *qp.CQE) bool {
	q := c.host.pairs[bth.QPN(e.QPN)]
	if q == nil || e.Opcode >= qp.WCRecv && e.Status == qp.StatusSuccess {
		return true
	}
	p := &q.progress
	if e.Status == qp.StatusSuccess {
		m := &p.ring[p.head%depth]
		if m.begun != 0 {
			m.flow.completion = e.Time.Sub(m.begun)
		}
		m.flow.completed++
		p.head++
		return true
	}
	if p.head != p.tail { // requests only: a receive that fails has no message here
		f := p.ring[p.head%depth].flow
		p.head++
		f.failed++
		if f.lastErr == "" || e.Status != qp.StatusWRFlushErr {
			f.lastErr = verbs.Status(e.Status).String()
		}
	}
	for _, f := range q.flows {
		f.state = Stopped
	}
	q.broken("a message failed: " + verbs.Status(e.Status).String())
	return true
}

// wireRate converts a rate that counts the link's overhead to one of the queue pair, which does not, for messages of the flow.
func (f *flow) wireRate(rate float64) float64 {
	q := f.pair
	return wireRate(rate, int(f.cfg.Size), q.peer.cfg.PathMTU, headerLen(q.peer.address.Prefix.Addr().Is4(), q.host.vlan() != 0))
}

// wireRate converts a rate that counts the link's overhead to one without it, for messages in packets with mtu bytes of payload.
func wireRate(rate float64, payload, mtu, header int) float64 {
	packets := max((payload+mtu-1)/mtu, 1)
	bytes := float64(payload + packets*header)
	return rate * bytes / (bytes + float64(packets*link.Overhead))
}

// headerLen returns the length of the headers and of the ICRC of a packet without extended headers.
func headerLen(v4, vlan bool) int {
	n := inet.EthernetLen + inet.IPv4Len + inet.UDPLen + bth.BTHLen + bth.ICRCLen
	if vlan {
		n += inet.VLANLen
	}
	if !v4 {
		n += inet.IPv6Len - inet.IPv4Len
	}
	return n
}

// mates returns the number of started flows that share the rate of f, with f.
func (f *flow) mates() (n int) {
	for _, o := range f.group {
		if o.state == Started {
			n++
		}
	}
	return max(n, 1)
}
