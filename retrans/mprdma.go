package retrans

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MPRDMA is the loss recovery of Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018, sections 3.2 and
// 3.5. It has no state per packet:
//
//	snd_una <= snd_retx <= recovery <= snd_nxt
//
// A NACK starts recovery mode, which lasts until snd_una has passed recovery, the snd_nxt of that time. In recovery mode
// acknowledgements clock out the packets from the one that the NACK names on. New packets follow when snd_retx has reached
// recovery. Without new data, unacknowledged packets are retransmitted early (FUSO). If those are lost too, the timeout
// retransmits all packets.
//
// inflate counts the packets between snd_una and snd_nxt that have left the network. InFlight is therefore
// snd_nxt - snd_una - inflate, and awnd, the room of the window, is cwnd less InFlight. In the paper inflate rises by one
// for each acknowledgement and falls by the number of packets that snd_una moves. The paper does not say how to count
// retransmissions. Here each of them enters the network again and lowers inflate by one, and the packet that a NACK names
// has left the network. Parameters select the published arithmetic, in which only acknowledgements count. There, each
// packet that is acknowledged twice raises inflate for good (TestMPRDMADrift).
//
// Lost acknowledgements leave inflate too small, finally below zero. Late ones arrive within a window of packets; if
// inflate has been below zero throughout a window, it restarts from zero. Duplicates leave it too large, but the highest
// packet known to have arrived limits it.
type MPRDMA struct {
	window // snd_una, snd_nxt
	timeout
	inflate    int32
	retx       bth.PSN // snd_retx: the next retransmission in recovery mode
	recovery   bth.PSN // end of recovery mode
	recovering bool    // in recovery mode
	// syncEarly is set in recovery mode because a synchronise operation arrived before a packet that precedes it (3.4). No
	// new packets are sent then, which would only cause more early operations.
	syncEarly bool
	mprdmaConfig
	early bth.PSN // the next early retransmission

	high  bth.PSN // behind the highest PSN that has left the network
	mark  bth.PSN // when snd_una passes it, a window of packets has passed
	valid bool    // inflate was not below zero throughout that window
}

// mprdmaConfig selects variants of the paper's scheme.
type mprdmaConfig struct {
	fuso     bool // early retransmission is on
	counting bool // inflate counts retransmissions and the packets that NACKs name
	bounded  bool // inflate has the limits of bound, and restarts
	deflate  bool // inflate is zero at the end of recovery mode
	renewal  int  // which NACKs renew recovery mode
}

// NACKs that renew recovery mode.
const (
	renewNone  = iota
	renewLost  // those of packets behind all retransmissions, which have been lost again
	renewEvery // all, as in section 3.5
)

func newMPRDMA(r *param.Reader) Recovery {
	m := &MPRDMA{mprdmaConfig: mprdmaConfig{fuso: r.Bool("early_retransmit", true), counting: r.Bool("count_retransmits", true),
		bounded: r.Bool("bound_inflate", true), deflate: r.Bool("deflate", false), renewal: r.Int("renew_recovery", renewLost, renewNone, renewEvery)}}
	m.timeout = readTimeout(r, 0)
	return m
}

// Reset implements Recovery.
func (m *MPRDMA) Reset(psn bth.PSN) {
	*m = MPRDMA{
		window: window{psn, psn}, retx: psn, recovery: psn, early: psn, high: psn, mark: psn,
		valid: true, mprdmaConfig: m.mprdmaConfig, timeout: m.timeout,
	}
	m.restart(0)
}

// OnSent implements Recovery. A new packet raises snd_nxt and restarts early retransmission.
func (m *MPRDMA) OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool) {
	if psn == m.una {
		m.base = now
	}
	end := psn.Add(int(span))
	if !rtx {
		m.nxt, m.early = end, m.una
		return
	}
	if m.counting {
		m.inflate -= int32(span)
	}
	if retx, ok := m.NextRetransmit(); ok && psn == retx {
		m.retx = end
	} else if early, ok := m.NextEarly(); ok && psn == early {
		m.early = end
	}
}

// OnFeedback implements Recovery.
func (m *MPRDMA) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	expected, gap, refused := f.Expected, f.Gap, f.Refused
	if m.overtaken(f) {
		expected = m.una
		if !m.isOutstanding(f.SACK) { // it has arrived since
			gap, refused = false, false
		}
	}
	acked := m.offset(expected)
	if acked > m.outstanding() {
		return Outcome{}
	}
	out := Outcome{Acked: acked}
	m.inflate += int32(answered(f, acked))
	if !f.Refused {
		out.Delivered = answered(f, acked)
	}
	if end := f.SACK.Next(); f.HasSACK && m.offset(end) <= m.outstanding() && m.offset(end) > m.offset(m.high) {
		m.high = end
	}
	if acked > 0 {
		m.onAcked(now, expected, acked)
	}
	switch {
	case m.una == m.nxt:
	case gap && m.startsRecovery(f):
		if m.counting && m.lost(f) {
			m.inflate++
		}
		out.Lost = m.recover()
	case refused && !gap && !m.recovering:
		out.Lost, m.syncEarly = m.recover(), true
	}
	m.bound()
	return out
}

// startsRecovery reports whether a NACK starts or renews recovery mode.
func (m *MPRDMA) startsRecovery(f *reorder.Feedback) bool {
	return !m.recovering || m.renewal == renewEvery || m.renewal == renewLost && m.lost(f)
}

// lost reports whether the packet that a NACK names has left the network. In recovery mode, a packet that was sent after
// all retransmissions shows that they have been lost again.
func (m *MPRDMA) lost(f *reorder.Feedback) bool {
	return !m.recovering || f.HasSACK && m.offset(f.SACK) >= m.offset(m.recovery) && m.isOutstanding(f.SACK)
}

// answered returns the number of packets that have left the network according to f: the packet that it answers. A READ
// response answers no single packet; all packets that it acknowledges have left.
func answered(f *reorder.Feedback, acked uint32) uint32 {
	if f.HasSACK {
		return 1
	}
	return acked
}

// onAcked moves snd_una.
func (m *MPRDMA) onAcked(now mono.Time, to bth.PSN, acked uint32) {
	m.restart(now)
	m.inflate -= int32(acked)
	m.advance(to, &m.retx, &m.early, &m.high)
	if m.passed(m.recovery) {
		if m.recovering && m.deflate {
			m.inflate = 0
		}
		m.recovering = false
	}
	if m.passed(m.mark) {
		if !m.valid && m.bounded {
			m.inflate = max(m.inflate, 0)
		}
		m.mark, m.valid = m.nxt, false
	}
}

// passed reports whether snd_una has reached or passed psn.
func (m *MPRDMA) passed(psn bth.PSN) bool {
	return psn == m.una || m.offset(psn) > m.outstanding()
}

// recover enters recovery mode, to retransmit all packets from snd_una on, which a NACK names.
func (m *MPRDMA) recover() (lost uint32) {
	m.recovering, m.syncEarly, m.retx, m.early, m.recovery = true, false, m.una, m.una, m.nxt
	return m.outstanding()
}

// bound limits inflate: no more packets have left the network than lie below high. The published arithmetic has no limit;
// half of the PSN space keeps it from overflow. Without outstanding packets there is none to count.
func (m *MPRDMA) bound() {
	if m.bounded {
		m.inflate = min(m.inflate, int32(m.offset(m.high)))
	} else {
		m.inflate = min(max(m.inflate, -maxWindow), maxWindow)
	}
	m.valid = m.valid || m.inflate >= 0
	if m.una == m.nxt {
		m.inflate = 0
	}
}

// OnRNR implements Recovery: all packets are to be retransmitted, and none is in the network.
func (m *MPRDMA) OnRNR(mono.Time) {
	if m.una != m.nxt {
		m.inflate, m.high = int32(m.recover()), m.nxt
	}
}

// OnTimeout implements Recovery: "the sender will start to retransmit all
// unacknowledged packets" (3.5).
func (m *MPRDMA) OnTimeout(now mono.Time) Outcome {
	m.backoff.expired()
	m.OnRNR(now)
	return Outcome{Lost: m.outstanding()}
}

// NextRetransmit implements Recovery.
func (m *MPRDMA) NextRetransmit() (psn bth.PSN, ok bool) {
	return m.retx, m.recovering && m.retx != m.recovery
}

// NextEarly implements Early. It returns each unacknowledged packet once, until a new packet is sent or one is lost.
func (m *MPRDMA) NextEarly() (psn bth.PSN, ok bool) {
	_, again := m.NextRetransmit()
	return m.early, m.fuso && !again && m.early != m.nxt
}

// Cap implements Capped: no new packet is sent while an early synchronise operation is retransmitted.
func (m *MPRDMA) Cap() uint32 {
	if m.recovering && m.syncEarly {
		return 0
	}
	return maxWindow
}

// InFlight implements Recovery: snd_nxt - snd_una - inflate, and at least 0, which only the published arithmetic passes.
func (m *MPRDMA) InFlight() uint32 {
	if n := int32(m.outstanding()) - m.inflate; n > 0 {
		return uint32(n)
	}
	return 0
}

// Deadline implements Recovery. While the oldest packet itself waits for retransmission and no packet is in flight, no
// answer can be missing. With packets in flight, an acknowledgement must clock that packet out and may be missing.
func (m *MPRDMA) Deadline() mono.Time {
	return m.at(m.una != m.nxt && (!m.recovering || m.retx != m.una || m.InFlight() > 0))
}

// Footprint returns the number of bytes of state that RC does not have, as the paper counts: inflate (2), snd_retx,
// recovery, early, high and mark (3 each) and two flags (1).
func (*MPRDMA) Footprint() int { return 2 + 5*3 + 1 }
