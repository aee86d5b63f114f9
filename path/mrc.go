package path

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MRC is the path selection of MRC (bth/mrc.go). Packets rotate over the active entropy values (EVs), in a random order that
// each rotation renews. Other EVs are its backup. EV i has the UDP source port firstPort + i, and belongs to plane i modulo
// the number of planes. A plane has the same number of active EVs as the others.
//
//	GOOD -> SKIP         a SACK marks a packet, or a NACK reports that it was trimmed before the last hop
//	SKIP -> GOOD         the rotation meets the EV, and uses the next one
//	GOOD, SKIP -> ASSUMED_BAD  a packet is lost without a NACK, the receiver asks for it, or the port of its plane fails
//	ASSUMED_BAD -> GOOD  enough consecutive EV probes have been answered
//
// DENIED is a parameter. An EV that becomes ASSUMED_BAD leaves the active EVs; a GOOD one of the same plane replaces it, so
// that senders do not move to another plane together.
//
// The IPv6 flow label has the number of the source port, too. Receivers of IPv4 echo the port only.
type MRC struct {
	cfg    mrcConfig
	rng    rand.PCG
	evs    []ev
	order  []uint8 // active EVs; those before next have been used in this rotation
	next   int
	active [MaxPlanes]uint16 // EVs by plane
	batch  int               // packets that still leave on current
	avoid  uint16            // source port that the next packet avoids; 0: none
	bad    int               // EVs that are ASSUMED_BAD
	choice choice

	probes probes
}

// mrcConfig has the parameters of MRC.
type mrcConfig struct {
	count, active, min, planes, batch int
	denied                            uint64
	interval                          time.Duration
	answers                           uint8
}

// ev is the state of an entropy value.
type ev struct {
	state   EVState
	active  bool
	answers uint8  // consecutive probes
	sent    uint64 // unanswered probes: bit n is that of n rounds ago
}

// EVState is the state of an entropy value.
type EVState uint8

// States of entropy values.
const (
	EVGood EVState = iota
	EVSkip
	EVAssumedBad
	EVDenied
)

// choice is the EV of the next packet.
type choice struct {
	made, skips bool  // skips: it follows an EV in state SKIP
	place       int   // in order
	current     uint8 // EV
}

// MaxEVs limits the entropy values of a queue pair.
const MaxEVs = 256

// maxDenied is the number of EVs that the parameter ev_denied has a bit for.
const maxDenied = 52

// MaxPlanes is the number of bits of a port status.
const MaxPlanes = 32

func newMRC(r *param.Reader) Selector {
	c := mrcConfig{
		count: r.Int("ev_count", 128, 1, MaxEVs), planes: r.Int("planes", 1, 1, MaxPlanes), batch: r.Int("batch", 1, 1, maxBatch),
		denied:   uint64(r.Int("ev_denied", 0, 0, 1<<maxDenied-1)),
		interval: r.Micros("ev_probe_interval_us", 1000), answers: uint8(r.Int("ev_probe_answers", 8, 1, 255)),
	}
	c.active = r.Int("ev_active", max(c.count*7/8, c.planes), c.planes, c.count)
	c.min = r.Int("ev_min_active", max(c.active/4, 1), 1, c.active)
	m := &MRC{cfg: c, evs: make([]ev, c.count), order: make([]uint8, 0, c.count)}
	m.Reset(Start{})
	switch {
	case c.count < c.planes:
		r.Fail(fmt.Errorf("ev_count is %d, fewer than planes, %d", c.count, c.planes))
	case len(m.order) == 0:
		r.Fail(fmt.Errorf("ev_denied is %#x, it denies all %d entropy values", c.denied, c.count))
	}
	return m
}

// Reset implements Selector.
func (m *MRC) Reset(s Start) {
	m.rng.Seed(s.Seed, uint64(s.PSN.Uint32()))
	*m = MRC{cfg: m.cfg, rng: m.rng, evs: m.evs, order: m.order[:0], probes: probes{due: mono.Never, next: m.cfg.count, seq: m.probes.seq, wait: m.cfg.interval, sharers: m.probes.sharers}}
	clear(m.evs)
	for i := range m.evs {
		if i < maxDenied && m.cfg.denied>>i&1 != 0 {
			m.evs[i].state = EVDenied
		}
	}
	for i := range m.evs {
		m.activate(i)
	}
	m.next = len(m.order)
}

// plane returns the plane of EV i.
func (m *MRC) plane(i int) int { return i % m.cfg.planes }

// planeShare returns the number of active EVs that a plane should have. The first planes have the remainder.
func (m *MRC) planeShare(plane int) int {
	n := m.cfg.active / m.cfg.planes
	if plane < m.cfg.active%m.cfg.planes {
		n++
	}
	return n
}

// activate makes EV i active if it is usable and its plane lacks active EVs.
func (m *MRC) activate(i int) bool {
	e := &m.evs[i]
	n := &m.active[m.plane(i)]
	if e.active || e.state > EVSkip || int(*n) >= m.planeShare(m.plane(i)) {
		return false
	}
	e.active = true
	*n++
	m.order = append(m.order, uint8(i))
	return true
}

// value returns the entropy value of EV i.
//
// Choice: generated EVs have 16 bits. In one source the source port and the flow label both have them.
func value(i uint8) uint32 { return bth.JoinEntropy(firstPort+uint16(i), firstPort+uint32(i)) }

// index returns the EV with a UDP source port.
func (m *MRC) index(port uint16) (i int, ok bool) {
	i = int(port) - firstPort
	return i, i >= 0 && i < len(m.evs)
}

// PlaneMask returns a bit for each plane.
func (m *MRC) PlaneMask() uint32 { return uint32(1<<m.cfg.planes - 1) }

// InPlane returns an entropy value of a plane, if possible one that is not DENIED.
func (m *MRC) InPlane(plane int) uint32 {
	i := plane
	for i+m.cfg.planes < len(m.evs) && m.evs[i].state == EVDenied {
		i += m.cfg.planes
	}
	return value(uint8(i))
}

// EVPlane returns the plane of a packet with that entropy value on a NIC with planes ports.
func EVPlane(ev uint32, planes int) int {
	port, _ := bth.SplitEntropy(ev)
	return int(port-firstPort) % planes
}

// EVPath returns the number of the path within its plane that an entropy value names, on a NIC with planes ports.
func EVPath(ev uint32, planes int) uint32 {
	port, _ := bth.SplitEntropy(ev)
	return uint32(port-firstPort) / uint32(max(planes, 1))
}

// Next implements Selector.
func (m *MRC) Next(mono.Time, Window) (uint32, bool) {
	if !m.choice.made {
		m.choose()
	}
	return value(m.choice.current), true
}

// choose makes a choice.
//
// Choice: an EV in state SKIP is skipped in one rotation. A packet passes at most one of them, so that they become GOOD one
// by one; others that follow keep their turn.
func (m *MRC) choose() {
	c := &m.choice
	c.made = true
	if m.batch > 0 && m.usable(c.current) {
		return
	}
	m.batch = 0
	if m.next >= len(m.order) {
		m.renew()
	}
	at := m.next
	if c.skips = m.evs[m.order[at]].state == EVSkip; c.skips {
		at++
	}
	c.place = m.find(at)
	c.current = m.order[c.place]
}

// usable reports whether a batch may continue on EV i.
func (m *MRC) usable(i uint8) bool {
	e := &m.evs[i]
	return e.active && e.state == EVGood && firstPort+uint16(i) != m.avoid
}

// renew begins a rotation in another order.
func (m *MRC) renew() {
	m.next = 0
	for i := len(m.order) - 1; i > 0; i-- {
		j := below(&m.rng, uint16(i+1))
		m.order[i], m.order[j] = m.order[j], m.order[i]
	}
}

// find returns the place of the next usable EV from place at on. Without one, it is any that need not be avoided.
func (m *MRC) find(at int) int {
	n := len(m.order)
	for k := range n {
		if j := (at + k) % n; m.usable(m.order[j]) {
			return j
		}
	}
	for k := range n {
		if j := (at + k) % n; firstPort+uint16(m.order[j]) != m.avoid {
			return j
		}
	}
	return at % n
}

// OnSent implements Selector.
func (m *MRC) OnSent(mono.Time, Window) {
	c := &m.choice
	c.made, m.avoid = false, 0
	if m.batch > 0 {
		m.batch--
		return
	}
	if c.skips {
		m.evs[m.order[m.next]].state = EVGood
		m.next++
	}
	if c.place >= m.next {
		m.order[m.next], m.order[c.place] = m.order[c.place], m.order[m.next]
		m.next++
	}
	m.batch = m.cfg.batch - 1
}

// Avoid makes the next packet, a retransmission, avoid a UDP source port.
func (m *MRC) Avoid(port uint16) {
	if m.avoid != port {
		m.avoid, m.choice.made = port, false
	}
}

// OnAck implements Selector. NACKs for lack of resources do not depend on paths.
func (m *MRC) OnAck(now mono.Time, f *reorder.Feedback, _ time.Duration, _ Window) int {
	port, _ := bth.SplitEntropy(f.VP)
	i, ok := m.index(port)
	switch {
	case !ok:
	case f.Remove:
		m.markBad(now, i, true)
	case f.ECE || f.Refused && bth.MRCReason(f.Receiver.Reason) == bth.MRCTrimmed:
		if e := &m.evs[i]; e.state == EVGood {
			e.state, m.choice.made = EVSkip, false
		}
	}
	return 0
}

// Lost records that a packet with that UDP source port is lost, and no NACK reports it.
//
// Choice: sources name timeouts only. Here a packet that later ones have overtaken counts too; otherwise bad EVs would stay
// in use until the timeout.
func (m *MRC) Lost(now mono.Time, port uint16) {
	if i, ok := m.index(port); ok {
		m.markBad(now, i, true)
	}
}

// SetPorts takes a port status, with a bit for each plane whose port is up. The EVs of the others become ASSUMED_BAD, even
// if too few remain. Probes make them GOOD again.
func (m *MRC) SetPorts(now mono.Time, mask uint32) {
	for i := range m.evs {
		if mask>>m.plane(i)&1 == 0 {
			m.markBad(now, i, false)
		}
	}
}

// markBad makes EV i ASSUMED_BAD, unless too few would remain active: ev_min_active if floor is set, else one.
func (m *MRC) markBad(now mono.Time, i int, floor bool) {
	e := &m.evs[i]
	least := 1
	if floor {
		least = m.cfg.min
	}
	if e.state > EVSkip || e.active && len(m.order) <= least && !m.replaceable(i) {
		return
	}
	e.state, e.sent, e.answers = EVAssumedBad, 0, 0
	m.choice.made = false
	if m.bad++; m.bad == 1 {
		m.probes.wait, m.probes.rounds = max(m.probes.wait/2, m.cfg.interval), 0
		m.probes.due = now.Add(m.pause())
	}
	if !e.active {
		return
	}
	e.active = false
	m.active[m.plane(i)]--
	place := slices.Index(m.order, uint8(i))
	m.order = slices.Delete(m.order, place, place+1)
	if place < m.next {
		m.next--
	}
	for j := range m.evs {
		if m.activate(j) {
			return
		}
	}
}

// replaceable reports whether the plane of EV i has another EV to use.
func (m *MRC) replaceable(i int) bool {
	for j, e := range m.evs {
		if j != i && m.plane(j) == m.plane(i) && !e.active && e.state <= EVSkip {
			return true
		}
	}
	return false
}

// Unused implements Selector.
func (*MRC) Unused() int { return 0 }

// Restart implements Selector: Lost reports the paths of packets that timed out.
func (*MRC) Restart() {}

// OnTimeout implements Selector.
func (*MRC) OnTimeout(mono.Time, Window) {}

// Deadline implements Selector: ProbesDue returns that of probes.
func (*MRC) Deadline() mono.Time { return mono.Never }

// State returns the state of EV i, and whether it is active.
func (m *MRC) State(i int) (s EVState, active bool) { return m.evs[i].state, m.evs[i].active }

// Footprint implements Selector: 2 bits of state, a bit of the active set and the order, for each EV.
func (m *MRC) Footprint() int { return len(m.evs)*3/8 + len(m.evs) }
