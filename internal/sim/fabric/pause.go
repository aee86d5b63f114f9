package fabric

import "roced.io/roced/internal/sim/engine"

// pauseFrame is the size of a PFC frame on a link: 64 bytes, preamble and gap.
const pauseFrame = 84

// sendPause sends a PFC frame ahead of all other packets. The other direction pauses a class for hold, or resumes
// it if hold is zero. from is the part of the sender.
func (l *Link) sendPause(now engine.Time, from *Part, class uint8, hold engine.Time) {
	p := from.NewPacket()
	*p = Packet{Kind: Pause, Class: class, Bytes: pauseFrame, Ref: uint32(hold / engine.Nanosecond)}
	l.urgent.push(p)
	l.Wake(now)
}

// pause pauses a class for hold, or resumes it if hold is zero.
func (l *Link) pause(now engine.Time, class uint8, hold engine.Time) {
	bit := uint8(1) << class
	if hold == 0 {
		l.unpause(now, bit)
		return
	}
	l.Stats.Pauses++
	l.pauses[class]++
	if l.paused == 0 {
		l.pausedSince = now
	}
	l.paused |= bit
	l.pauseEnds[class] = now + hold
	if !l.resumes() {
		l.setResume(now + hold)
	}
}

// resumes reports whether an event is pending for the end of a pause.
func (l *Link) resumes() bool {
	if l.sends != nil {
		return l.sends.pending(l.port*things + whatResume)
	}
	return l.hosts.resume.Pending()
}

// setResume sets that event; Never cancels it.
func (l *Link) setResume(at engine.Time) {
	if l.sends != nil {
		l.sends.set(l.port*things+whatResume, at)
	} else {
		l.part.eng.Set(&l.hosts.resume, at)
	}
}

// unpause resumes classes.
func (l *Link) unpause(now engine.Time, classes uint8) {
	if l.paused&classes == 0 {
		return
	}
	if l.paused &^= classes; l.paused == 0 {
		l.Stats.Paused += now - l.pausedSince
		l.setResume(engine.Never)
	}
	l.Wake(now)
}

// expirePauses resumes the classes whose pause has ended, and waits for the next one.
func (l *Link) expirePauses(now engine.Time) {
	over, next := uint8(0), engine.Never
	for c, at := range l.pauseEnds {
		switch bit := uint8(1) << c; {
		case l.paused&bit == 0:
		case at <= now:
			over |= bit
		default:
			next = min(next, at)
		}
	}
	l.setResume(next)
	l.unpause(now, over)
}

// PausedAt returns how long at least one class was paused, until now.
func (l *Link) PausedAt(now engine.Time) engine.Time {
	if l.paused != 0 {
		return l.Stats.Paused + now - l.pausedSince
	}
	return l.Stats.Paused
}
