package path

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// probes are the EV probes of MRC. A round probes all EVs that are ASSUMED_BAD.
//
// Choice: in the sources one answer makes an EV GOOD. Here it takes several answers in a row, because an EV that loses a
// part of its packets would otherwise be GOOD again at once.
//
// Choice: the sources bound neither the rate of probes nor the age of answers. Here the queue pairs to one peer share a rate
// of probes, and an answer counts for probeRounds rounds. A late answer makes rounds as long as its round trip, so that a queue pair has about one probe of each EV in
// flight. When EVs become ASSUMED_BAD again, rounds begin with half of that.
type probes struct {
	due  mono.Time     // of the next round
	wait time.Duration // between two rounds
	next int           // EV from which on the round looks for the next to probe
	seq  uint8         // number of the round
	// rounds is the number of rounds of length wait, at most probeRounds.
	rounds uint8
	// sharers is the number of queue pairs of this NIC to the same peer. Nil means one.
	sharers *int
}

const (
	// probeSeqBits is the number of bits of the round in the number of a probe. The others are the EV.
	probeSeqBits = 7
	// probeRounds is the number of rounds for which an answer counts.
	probeRounds = 64
	// probeGap bounds the probes of a NIC to one peer: their mean distance is at least this.
	probeGap = 5 * time.Microsecond
	// maxProbeWait bounds the time between two rounds, unless the parameter is longer.
	maxProbeWait = 100 * time.Millisecond
)

// ProbesDue returns when BeginProbes is due, or mono.Never.
func (m *MRC) ProbesDue() mono.Time { return m.probes.due }

// ShareProbes bounds the probes of a NIC to one peer: n is the number of its queue pairs there, which may change.
func (m *MRC) ShareProbes(n *int) { m.probes.sharers = n }

// pause returns the time until the next round.
func (m *MRC) pause() time.Duration {
	p := &m.probes
	if p.sharers == nil {
		return p.wait
	}
	return max(p.wait, time.Duration(*p.sharers*m.bad)*probeGap)
}

// BeginProbes begins a round if it is due.
func (m *MRC) BeginProbes(now mono.Time) {
	p := &m.probes
	if now < p.due {
		return
	}
	p.due, p.next, p.seq = now.Add(m.pause()), 0, (p.seq+1)&(1<<probeSeqBits-1)
	p.rounds = min(p.rounds+1, probeRounds)
	for i := range m.evs {
		e := &m.evs[i]
		if e.sent>>(probeRounds-1) != 0 { // lost
			e.answers = 0
		}
		e.sent <<= 1
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
	m.evs[i].sent |= 1
	return value(uint8(i)), uint16(m.probes.seq)<<8 | uint16(i), true
}

// Answered takes the answer to probe id. Earlier probes of the same EV without an answer are lost.
func (m *MRC) Answered(id uint16) {
	i := int(id & (MaxEVs - 1))
	age := (m.probes.seq - uint8(id>>8)) & (1<<probeSeqBits - 1)
	if i >= len(m.evs) || age >= probeRounds || m.evs[i].sent>>age&1 == 0 {
		return
	}
	e := &m.evs[i]
	if e.sent>>age != 1 {
		e.answers = 0
	}
	e.sent &= 1<<age - 1
	m.slowDown(age)
	if e.answers++; e.answers < m.cfg.answers {
		return
	}
	e.state = EVGood
	if m.bad--; m.bad == 0 {
		m.probes.due = mono.Never
	}
	m.activate(i)
}

// slowDown makes rounds as long as the round trip of an answer that came some rounds late. The rounds before the last
// change of their length tell nothing about the present one.
func (m *MRC) slowDown(late uint8) {
	p := &m.probes
	if late > 0 && late < p.rounds {
		p.wait = min(p.wait*time.Duration(late+1), max(maxProbeWait, m.cfg.interval))
		p.rounds = 0
	}
}
