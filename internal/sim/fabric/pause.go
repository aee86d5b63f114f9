package fabric

import "roced.io/roced/internal/sim/engine"

// pauseFrame is what a PFC frame takes on a link: 64 bytes, preamble and gap.
const pauseFrame = 84

// sendPause sends a PFC frame ahead of all else: a class of the other direction stops for that
// long, or goes on if it is zero.
func (l *Link) sendPause(now engine.Time, class uint8, hold engine.Time) {
	p := l.net.NewPacket()
	*p = Packet{Kind: Pause, Class: class, Bytes: pauseFrame, Ref: uint32(hold / engine.Nanosecond)}
	l.urgent.push(p)
	l.Wake(now)
}

// pause stops a class for a time, or lets it go on.
func (l *Link) pause(now engine.Time, class uint8, hold engine.Time) {
	bit := uint8(1) << class
	if hold == 0 {
		l.unpause(now, bit)
		return
	}
	l.Stats.Pauses++
	if l.paused == 0 {
		l.pausedSince = now
	}
	l.paused |= bit
	l.pauseEnds[class] = now + hold
	if !l.resumes() {
		l.setResume(now + hold)
	}
}

// resumes reports whether it is known when the next pause ends.
func (l *Link) resumes() bool {
	if l.sends != nil {
		return l.sends.pending(l.port*things + whatResume)
	}
	return l.hosts.resume.Pending()
}

// setResume says when that is, Never if there is none.
func (l *Link) setResume(at engine.Time) {
	if l.sends != nil {
		l.sends.set(l.port*things+whatResume, at)
	} else {
		l.net.eng.Set(&l.hosts.resume, at)
	}
}

// unpause lets classes go on.
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

// expirePauses lets those go on whose time is over, and waits for the next one.
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

// PausedAt is how long some class has been stopped, until now.
func (l *Link) PausedAt(now engine.Time) engine.Time {
	if l.paused != 0 {
		return l.Stats.Paused + now - l.pausedSince
	}
	return l.Stats.Paused
}
