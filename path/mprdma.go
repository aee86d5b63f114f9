package path

import (
	"math/rand/v2"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// maxClock is the maximum number of unused acknowledgements, each with its path. It is more than the packets of a window.
// They wait while the sender must not send, for example during a PFC pause.
const maxClock = 4096

// tick is one acknowledgement that allows packets on its path.
type tick struct {
	left uint32 // packets
	vp   uint16
	used bool // it has clocked out a packet
}

// spreadDone is the value of MPRDMA.spread after a window has been spread.
const spreadDone = 1<<32 - 1

// MPRDMA is the path selection of Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018. An acknowledgement
// clocks out packets on its own virtual path (VP) (section 3.2), unless that path is too slow (3.3). The only state of the
// paths is snd_ooh, the highest PSN that has been selectively acknowledged.
//
// Without an acknowledgement, packets leave on random VPs in three cases: at the start and after a pause, until a window of
// them has been spread; when no packet is in flight, so that no acknowledgement can arrive; and when the burst timer expires.
type MPRDMA struct {
	delta     int           // [D] target out-of-order degree, packets
	probe     float64       // [p] probability of probing a new path, per RTT
	burst     uint8         // [2] maximum packets that one acknowledgement clocks out
	drain     float64       // [1/2] length of the burst timer, RTTs
	idle      float64       // [3] idle time before a restart, RTTs; 0: never
	alpha     float64       // [1.0] factor of the delay of synchronise operations
	vps       uint16        // number of virtual paths
	base      time.Duration // round-trip time before the first measurement
	rng       rand.PCG
	random    uint16  // the next random VP
	sndOOH    bth.PSN // highest PSN selectively acknowledged
	rtt       time.Duration
	lastSent  mono.Time
	lastProbe mono.Time
	timer     mono.Time // burst timer; Never: not armed
	overdue   uint32    // packets that the expired burst timer allows
	spread    uint32    // packets spread since the start, or spreadDone

	clock ring.Ring[tick] // unused acknowledgements
	ready uint32          // packets that they allow
}

// newMPRDMA has the parameters of sections 3.4, 3.5 and 5. The base RTT is that of the paper's simulations.
func newMPRDMA(r *param.Reader) Selector {
	m := &MPRDMA{
		delta: r.Int("delta_packets", 32, 1, 1<<16),
		probe: r.Value("probe_probability", 0.01, 0, 1),
		burst: uint8(r.Int("burst_packets", 2, 1, 255)),
		drain: r.Value("burst_timer_rtts", 0.5, 0, 1e3),
		idle:  r.Value("idle_rtts", 3, 0, 1e6),
		alpha: r.Value("sync_alpha", 1, 0, 1e3),
		vps:   uint16(r.Int("virtual_paths", ports, 1, ports)),
		base:  r.Micros("base_rtt_us", 16),
	}
	m.Reset(Start{})
	return m
}

// Reset implements Selector.
func (m *MPRDMA) Reset(s Start) {
	m.rng.Seed(s.Seed, uint64(s.PSN.Uint32()))
	m.sndOOH = s.PSN.Add(-1)
	m.rtt, m.lastSent, m.lastProbe = m.base, 0, 0
	m.Restart()
}

// Restart implements Selector: a window of packets is spread over random VPs ("Connection restart", section 3.5; the paper
// does not define the behaviour after a timeout).
func (m *MPRDMA) Restart() {
	m.timer, m.overdue, m.spread = mono.Never, 0, 0
	m.clock.Clear()
	m.ready = 0
	m.draw()
}

// draw selects the next random VP.
func (m *MPRDMA) draw() { m.random = firstPort + below(&m.rng, m.vps) }

// Next implements Selector. The path of an acknowledgement precedes random ones.
func (m *MPRDMA) Next(_ mono.Time, w Window) (vp uint32, ok bool) {
	if t := m.clock.Oldest(); t != nil {
		return uint32(t.vp), true
	}
	return uint32(m.random), m.spread < w.Packets || m.overdue > 0 || w.InFlight == 0
}

// OnSent implements Selector.
func (m *MPRDMA) OnSent(now mono.Time, w Window) {
	if m.idle > 0 && w.InFlight == 0 && float64(now.Sub(m.lastSent)) > m.idle*float64(m.rtt) {
		m.Restart()
	}
	m.lastSent = now
	if t := m.clock.Oldest(); t != nil {
		t.used = true
		m.ready--
		if t.left--; t.left == 0 {
			m.pop()
		}
		return
	}
	if m.spread < w.Packets {
		m.spread++
		m.checkSpread(w)
	} else if m.overdue > 0 {
		m.overdue--
	}
	m.draw()
}

// checkSpread ends the start when a window has been spread. From then on acknowledgements enlarge the window, each on its
// path.
func (m *MPRDMA) checkSpread(w Window) {
	if m.spread >= w.Packets {
		m.spread = spreadDone
	}
}

// OnAck implements Selector. An acknowledgement from a path that is more than D packets behind the fastest one (snd_ool =
// snd_ooh - D) shrinks the window by one packet and clocks out none. The PSN of a retransmission does not characterise its
// path (3.3).
func (m *MPRDMA) OnAck(now mono.Time, f *reorder.Feedback, rtt time.Duration, w Window) (shrink int) {
	m.checkSpread(w)
	if rtt > 0 {
		m.rtt = rtt
	}
	if f.HasSACK && !f.Refused && f.SACK.After(m.sndOOH) {
		m.sndOOH = f.SACK
	}
	if f.HasSACK && !f.ReTx && f.SACK.Before(m.sndOOH.Add(-m.delta)) {
		return 1
	}
	m.tick(now, m.pathOf(f), w)
	return 0
}

// pathOf returns the VP that f echoes. It returns a random VP if that is not one of ours, or if f answers no single packet.
func (m *MPRDMA) pathOf(f *reorder.Feedback) uint16 {
	if f.HasSACK && f.VP >= firstPort && f.VP-firstPort < uint32(m.vps) {
		return uint16(f.VP)
	}
	m.draw()
	return m.random
}

// tick allows as many packets as the window has room for, up to a burst. The other packets wait for further
// acknowledgements or for the burst timer ("Burst control", 3.5), which is as long as the network needs to drain.
func (m *MPRDMA) tick(now mono.Time, vp uint16, w Window) {
	m.timer, m.overdue = mono.Never, 0
	room := w.Room() - min(w.Room(), m.ready)
	n := min(room, uint32(m.burst))
	if room > n {
		m.timer = now.Add(time.Duration(m.drain * float64(m.rtt)))
	}
	probing := n > 0 && m.probing(now)
	if probing {
		m.draw()
		m.push(tick{vp: m.random, left: 1})
		n--
	}
	if n > 0 {
		m.push(tick{vp: vp, left: n, used: probing})
	}
}

// probing decides once per RTT whether a packet explores a new path ("New path probing", 3.5).
func (m *MPRDMA) probing(now mono.Time) bool {
	if now.Sub(m.lastProbe) < m.rtt {
		return false
	}
	m.lastProbe = now
	return float64(m.rng.Uint64()>>11)/(1<<53) < m.probe
}

// push appends an acknowledgement. If the ring is full, its packets leave on the path of the acknowledgement before.
func (m *MPRDMA) push(t tick) {
	m.ready += t.left
	if m.clock.Len() == maxClock {
		m.clock.At(m.clock.Tail - 1).left += t.left
		return
	}
	*m.clock.Push() = t
}

func (m *MPRDMA) pop() {
	m.ready -= m.clock.Oldest().left
	m.clock.Head++
}

// Unused implements Selector: "use it or lose it" ("Path window reduction", 3.5). Each acknowledgement that has clocked out
// no packet shrinks the window by one.
func (m *MPRDMA) Unused() (shrink int) {
	for ; m.clock.Len() > 0; m.pop() {
		if !m.clock.Oldest().used {
			shrink++
		}
	}
	return shrink
}

// OnTimeout implements Selector: no acknowledgement has arrived since the one that left packets waiting.
func (m *MPRDMA) OnTimeout(now mono.Time, w Window) {
	if now >= m.timer {
		m.timer, m.overdue = mono.Never, w.Room()
	}
}

// Deadline implements Selector.
func (m *MPRDMA) Deadline() mono.Time { return m.timer }

// Syncer is a Selector that can estimate how far the slowest path is behind the fastest.
type Syncer interface {
	// SyncAt returns when a synchronise operation may be sent so that it most likely arrives after the packets before it.
	// Such an operation touches memory only after all packets before it have arrived.
	SyncAt(w Window) mono.Time
}

// SyncAt implements Syncer: dt = alpha * D / (cwnd / RTT) after the packet before it
// (3.4).
func (m *MPRDMA) SyncAt(w Window) mono.Time {
	if w.InFlight == 0 {
		return m.lastSent
	}
	perPacket := float64(m.rtt) / float64(max(w.Packets, 1))
	return m.lastSent.Add(time.Duration(m.alpha * float64(m.delta) * perPacket))
}

// Footprint implements Selector: snd_ooh (3), RTT, last packet, last probe and burst timer (4 each), packets overdue and
// spread (2 each), and path and packets of the current acknowledgement (3). Hardware processes acknowledgements one by one,
// and parameters and random numbers belong to the NIC.
func (*MPRDMA) Footprint() int { return 3 + 4*4 + 2*2 + 3 }
