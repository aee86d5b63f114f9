package path

import (
	"roced.io/roced/plugin/mono"
)

// probes are the EV probes of MRC. A round probes all EVs that are ASSUMED_BAD.
//
// Choice: in the sources one answer makes an EV GOOD. Here it takes several answers in a row, because an EV that loses a
// part of its packets would otherwise be GOOD again at once.
type probes struct {
	due  mono.Time // of the next round
	next int       // EV from which on the round looks for the next to probe
	seq  uint8     // number of the round
}

// probeSeqBits is the number of bits of the round in the number of a probe. The others are the EV.
const probeSeqBits = 7

// ProbesDue returns when BeginProbes is due, or mono.Never.
func (m *MRC) ProbesDue() mono.Time { return m.probes.due }

// BeginProbes begins a round if it is due. A probe of the last round that has not been answered is lost.
func (m *MRC) BeginProbes(now mono.Time) {
	p := &m.probes
	if now < p.due {
		return
	}
	p.due, p.next, p.seq = now.Add(m.cfg.interval), 0, (p.seq+1)&(1<<probeSeqBits-1)
	for i := range m.evs {
		if e := &m.evs[i]; e.probed {
			e.probed, e.answers = false, 0
		}
	}
}

// probing returns the EV to probe next, the number of EVs if there is none.
func (m *MRC) probing() int {
	p := &m.probes
	for p.next < len(m.evs) && m.evs[p.next].state != EVAssumedBad {
		p.next++
	}
	return p.next
}

// ProbeWaits reports whether NextProbe has a probe.
func (m *MRC) ProbeWaits() bool { return m.probing() < len(m.evs) }

// NextProbe returns the entropy value and the number, of 15 bits, of the next probe of the round.
func (m *MRC) NextProbe() (ev uint32, id uint16, ok bool) {
	i := m.probing()
	if i == len(m.evs) {
		return 0, 0, false
	}
	m.probes.next++
	m.evs[i].probed = true
	return value(uint8(i)), uint16(m.probes.seq)<<8 | uint16(i), true
}

// Answered takes the answer to probe id.
func (m *MRC) Answered(id uint16) {
	i := int(id & (MaxEVs - 1))
	if i >= len(m.evs) || id>>8 != uint16(m.probes.seq) || !m.evs[i].probed {
		return
	}
	e := &m.evs[i]
	e.probed = false
	if e.answers++; e.answers < m.cfg.answers {
		return
	}
	e.state = EVGood
	if m.bad--; m.bad == 0 {
		m.probes.due = mono.Never
	}
	m.activate(i)
}
