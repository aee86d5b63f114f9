package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MPRDMA is the loss recovery of Lu et al., "Multi-Path Transport for RDMA in
// Datacenters", NSDI 2018, sections 3.2 and 3.5. It knows nothing of single packets:
//
//	snd_una <= snd_retx <= recovery <= snd_nxt
//
// A NACK starts recovery mode, until snd_una has passed recovery, the snd_nxt of that
// time: in place of new packets, acknowledgements clock out those from the one that it
// names on, and new ones only when snd_retx has got to recovery. Where there is nothing
// new to send, unacknowledged packets are sent again early (FUSO). When those are lost
// too, the timeout sends all again.
//
// inflate counts the packets between snd_una and snd_nxt that have left the network,
// so that InFlight is snd_nxt - snd_una - inflate, and awnd, what the window has room
// for, cwnd less that. The paper has one more for each acknowledgement and fewer by
// as many as snd_una moves. Retransmissions, of which it does not say how to count
// them, enter the network again: one less each; and the packet that a NACK names has
// left it.
//
// Acknowledgements that are lost leave inflate too small for good, below zero in the
// end. Those that are merely late come within a window of packets; if inflate has been
// below zero throughout one, it begins anew from zero. Copies leave it too large, but
// not larger than the stretch of packets of which one is known to have arrived.
type MPRDMA struct {
	una, nxt bth.PSN // snd_una, snd_nxt
	inflate  int32
	retx     bth.PSN // snd_retx: the next to send again in recovery mode
	recovery bth.PSN // where recovery mode ends
	mode     bool    // in recovery mode
	// ... for a synchronise operation came before what precedes it (3.4): then nothing new
	// is sent, which would only make more of them early.
	syncEarly bool
	fuso      bool    // early retransmission is on
	early     bth.PSN // the next to send again early

	high  bth.PSN // behind the highest PSN that has left the network
	mark  bth.PSN // when snd_una passes it, a window of packets has gone by
	valid bool    // inflate has not been below zero all through it

	timeout timeout
	base    mono.Time // instant from which the timeout counts
}

// Early is a Recovery that sends unacknowledged packets again "as new data if there
// is no new data to transmit and awnd allows" (MP-RDMA 3.5, after FUSO).
type Early interface {
	// NextEarly returns the next of them, if there is one.
	NextEarly() (psn bth.PSN, ok bool)
}

func newMPRDMA(p Params) (Recovery, error) {
	r := param.NewReader("retrans: mp-rdma", p)
	m := &MPRDMA{fuso: r.Bool("early_retransmit", true)}
	m.timeout = readTimeout(r, 0)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// Reset implements Recovery.
func (m *MPRDMA) Reset(psn bth.PSN) {
	*m = MPRDMA{
		una: psn, nxt: psn, retx: psn, recovery: psn, early: psn, high: psn, mark: psn,
		valid: true, fuso: m.fuso, timeout: m.timeout,
	}
	m.timeout.backoff.progress()
}

// OnSent implements Recovery. What was not sent before raises snd_nxt; it also makes
// early retransmission begin anew.
func (m *MPRDMA) OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool) {
	if psn == m.una {
		m.base = now
	}
	end := psn.Add(int(span))
	if !rtx {
		m.nxt, m.early = end, m.una
		return
	}
	m.inflate -= int32(span)
	if retx, ok := m.NextRetransmit(); ok && psn == retx {
		m.retx = end
	} else if early, ok := m.NextEarly(); ok && psn == early {
		m.early = end
	}
}

// OnFeedback implements Recovery.
func (m *MPRDMA) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	expected, gap, refused := f.Expected, f.Gap, f.Refused
	if overtaken(m.una, f) {
		expected = m.una
		if distance(m.una, f.SACK) >= m.outstanding() { // it has arrived since
			gap, refused = false, false
		}
	}
	acked := distance(m.una, expected)
	if acked > m.outstanding() {
		return Outcome{}
	}
	out := Outcome{Acked: acked}
	m.inflate += int32(answered(f, acked))
	if !f.Refused {
		out.Delivered = answered(f, acked)
	}
	if end := f.SACK.Next(); f.HasSACK && distance(m.una, end) <= m.outstanding() && distance(m.una, end) > distance(m.una, m.high) {
		m.high = end
	}
	if acked > 0 {
		m.advance(now, expected, acked)
	}
	switch {
	case m.una == m.nxt:
	case gap && m.news(f):
		out.Lost = m.recover()
		m.inflate++ // so has the one that it names
	case refused && !gap && !m.mode:
		out.Lost, m.syncEarly = m.recover(), true
	}
	m.bound()
	return out
}

// news reports whether a NACK tells of a loss that recovery mode is not about already: it
// answers a packet that was sent after all retransmissions, which have been lost again.
func (m *MPRDMA) news(f *reorder.Feedback) bool {
	return !m.mode || f.HasSACK && distance(m.una, f.SACK) >= distance(m.una, m.recovery) && distance(m.una, f.SACK) < m.outstanding()
}

// answered is how many packets f says have left the network: the one that it answers. A
// READ response answers no single one, and all that it acknowledges have left.
func answered(f *reorder.Feedback, acked uint32) uint32 {
	if f.HasSACK {
		return 1
	}
	return acked
}

// advance moves snd_una.
func (m *MPRDMA) advance(now mono.Time, to bth.PSN, acked uint32) {
	m.una, m.base = to, now
	m.timeout.backoff.progress()
	m.inflate -= int32(acked)
	if m.passed(m.retx) {
		m.retx = to
	}
	if m.passed(m.early) {
		m.early = to
	}
	if m.passed(m.recovery) {
		m.mode = false
	}
	if m.passed(m.high) {
		m.high = to
	}
	if m.passed(m.mark) {
		if !m.valid {
			m.inflate = max(m.inflate, 0)
		}
		m.mark, m.valid = m.nxt, false
	}
}

// passed reports whether snd_una has reached psn or gone beyond.
func (m *MPRDMA) passed(psn bth.PSN) bool {
	return psn == m.una || distance(m.una, psn) > m.outstanding()
}

// recover enters recovery mode: everything from snd_una on, which a NACK names, is to
// be sent again.
func (m *MPRDMA) recover() (lost uint32) {
	m.mode, m.syncEarly, m.retx, m.early, m.recovery = true, false, m.una, m.una, m.nxt
	return m.outstanding()
}

// bound bounds inflate: what has left the network is below the highest PSN of which
// that is known.
func (m *MPRDMA) bound() {
	m.inflate = min(m.inflate, int32(distance(m.una, m.high)))
	m.valid = m.valid || m.inflate >= 0
	if m.una == m.nxt {
		m.inflate = 0
	}
}

// OnRNR implements Recovery: everything is sent again, and none of it is in the network.
func (m *MPRDMA) OnRNR(mono.Time) {
	if m.una != m.nxt {
		m.inflate, m.high = int32(m.recover()), m.nxt
	}
}

// OnTimeout implements Recovery: "the sender will start to retransmit all
// unacknowledged packets" (3.5).
func (m *MPRDMA) OnTimeout(now mono.Time) Outcome {
	m.timeout.backoff.expired()
	m.OnRNR(now)
	return Outcome{Lost: m.outstanding()}
}

// NextRetransmit implements Recovery.
func (m *MPRDMA) NextRetransmit() (psn bth.PSN, ok bool) {
	return m.retx, m.mode && m.retx != m.recovery
}

// NextEarly implements Early. Each unacknowledged packet is sent again once until
// something new is sent or lost.
func (m *MPRDMA) NextEarly() (psn bth.PSN, ok bool) {
	_, again := m.NextRetransmit()
	return m.early, m.fuso && !again && m.early != m.nxt
}

// outstanding is the number of PSNs sent and not acknowledged.
func (m *MPRDMA) outstanding() uint32 { return distance(m.una, m.nxt) }

// Una implements Recovery.
func (m *MPRDMA) Una() bth.PSN { return m.una }

// Cap implements Capped: nothing new is sent while an early synchronise operation is sent
// again.
func (m *MPRDMA) Cap() uint32 {
	if m.mode && m.syncEarly {
		return 0
	}
	return maxWindow
}

// InFlight implements Recovery: snd_nxt - snd_una - inflate.
func (m *MPRDMA) InFlight() uint32 { return uint32(int32(m.outstanding()) - m.inflate) }

// SetTimeout implements Recovery.
func (m *MPRDMA) SetTimeout(d time.Duration) { m.timeout.ofQueuePair(d) }

// Deadline implements Recovery. While the oldest packet itself waits to be sent
// again and nothing is in flight no answer can be missing. If something is, an
// acknowledgement must clock that packet out, and it may be missing very well.
func (m *MPRDMA) Deadline() mono.Time {
	rto := m.timeout.length()
	if rto == 0 || m.una == m.nxt || m.mode && m.retx == m.una && m.InFlight() == 0 {
		return mono.Never
	}
	return m.base.Add(rto)
}

// Footprint is the number of bytes of state that RC does not have, as the paper
// counts: inflate (2), snd_retx, recovery, early, high and mark (3 each) and two flags
// (1).
func (*MPRDMA) Footprint() int { return 2 + 5*3 + 1 }
