package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// sackBits is the number of packets in the bitmap of a SACK.
const sackBits = 64

// MRC is the receiver of MRC. It tracks the packets of the maximum PSN range (MPR) from the expected one on and reports 64
// of them in each SACK.
//
// Choice: the bitmap begins at the expected packet if it then covers the highest one that has arrived. Otherwise it ends with
// the highest one, or begins at the lowest packet that has arrived and that no SACK has reported, whichever is lower.
type MRC struct {
	window
	highest       bth.PSN // that has arrived
	unreported    bth.PSN // the lowest packet ahead of a gap that no SACK has reported, if hasUnreported
	ahead         uint32  // packets ahead of the gap
	hasUnreported bool

	cfg mrcConfig
}

// mrcConfig has the parameters of MRC.
type mrcConfig struct {
	mpr        uint8 // in units of bth.MRCRangeUnit
	dynamic    bool  // SACKs report the MPR
	immediates int   // limit on WRITEs with immediate data that wait
	threshold  uint32
}

// NewMRC returns a tracker for an MPR in units of bth.MRCRangeUnit.
func NewMRC(mpr uint8) *MRC {
	m := &MRC{cfg: mrcConfig{immediates: 32, threshold: 16 << 10}}
	m.SetRange(mpr)
	return m
}

// SetRange sets the MPR in units of bth.MRCRangeUnit, before Reset.
func (m *MRC) SetRange(mpr uint8) {
	if mpr != m.cfg.mpr {
		n := int(mpr) * bth.MRCRangeUnit
		m.cfg.mpr, m.window = mpr, makeWindow(n, n)
	}
}

// Range returns the MPR in packets.
func (m *MRC) Range() uint32 { return m.length }

// Dynamic reports whether SACKs have the MPR.
func (m *MRC) Dynamic() bool { return m.cfg.dynamic }

// SetDynamic selects whether SACKs have the MPR.
func (m *MRC) SetDynamic(on bool) { m.cfg.dynamic = on }

func newMRC(r *param.Reader) Tracker {
	m := NewMRC(uint8(r.Int("mpr", 8, 8, 255)))
	m.cfg.dynamic = r.Bool("dynamic_mpr", false)
	m.cfg.immediates = r.Int("max_wimm", m.cfg.immediates, 1, 1<<15)
	m.cfg.threshold = uint32(r.Int("sack_bytes", int(m.cfg.threshold), 1, 1<<20))
	return m
}

// MaxImmediates returns how many WRITEs with immediate data may wait for the packets before them.
func (m *MRC) MaxImmediates() int { return m.cfg.immediates }

// SetMaxImmediates sets how many WRITEs with immediate data may wait.
func (m *MRC) SetMaxImmediates(n int) { m.cfg.immediates = n }

// Threshold returns the number of bytes after which a SACK is due.
//
// Choice: UET's value; one source has 4 KiB.
func (m *MRC) Threshold() uint32 { return m.cfg.threshold }

// Reset implements Tracker.
func (m *MRC) Reset(psn bth.PSN) {
	m.window.Reset(psn)
	m.highest, m.ahead, m.hasUnreported = psn.Add(-1), 0, false
}

// Commit implements Tracker.
func (m *MRC) Commit(psn bth.PSN, v Verdict) {
	before := m.expected
	m.window.Commit(psn, v)
	switch v {
	case InOrder:
		m.ahead -= m.expected.Since(before) - 1
		m.hasUnreported = m.hasUnreported && !m.unreported.Before(m.expected)
	case Held:
		m.ahead++
		if !m.hasUnreported || psn.Before(m.unreported) {
			m.unreported, m.hasUnreported = psn, true
		}
	default:
		return
	}
	if psn.After(m.highest) {
		m.highest = psn
	}
}

// Feedback implements Tracker.
func (m *MRC) Feedback(f *Feedback) {
	f.Expected, f.Base = m.expected, m.expected
	f.Receiver.OutOfOrder = uint16(m.ahead)
	if m.cfg.dynamic {
		f.MPR = m.cfg.mpr
	}
	m.latest.sack(f)
	if m.ahead == 0 {
		return
	}
	f.Gap = true
	if m.highest.Since(m.expected) >= sackBits {
		f.Base = m.highest.Add(1 - sackBits)
		if m.hasUnreported && m.unreported.Before(f.Base) {
			f.Base = m.unreported
		}
	}
	end := min(m.highest.Since(f.Base)+1, sackBits)
	for i := range end {
		if m.arrived.Has(f.Base.Add(int(i))) {
			f.Bitmap |= 1 << i
		}
	}
	m.markReported(f.Base.Add(int(end)))
}

// markReported records that all packets before end have been reported.
func (m *MRC) markReported(end bth.PSN) {
	if !m.hasUnreported || !m.unreported.Before(end) {
		return
	}
	for m.unreported = end; !m.unreported.After(m.highest); m.unreported = m.unreported.Next() {
		if m.arrived.Has(m.unreported) {
			return
		}
	}
	m.hasUnreported = false
}

// Footprint implements Tracker: a bit for each packet of the MPR and four PSNs.
func (m *MRC) Footprint() int { return m.Bitmap() + 4*3 }

// Bitmap implements Bitmapped.
func (m *MRC) Bitmap() int { return int(m.length+7) / 8 }
