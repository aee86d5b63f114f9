package fabric

import (
	"math/bits"
	"math/rand/v2"

	"roced.io/roced/internal/sim/engine"
)

// Source supplies the packets of a link's sending end.
type Source interface {
	// Next returns the next packet of an unpaused class, or nil. more reports whether the source may have another
	// packet when this one has left. Otherwise the source wakes the link when it has one.
	Next(now engine.Time, paused uint8) (p *Packet, more bool)
}

// Watcher is a Source that is told when its link has failed or healed.
type Watcher interface{ LinkChanged() }

// Sink is a link's receiving end.
type Sink interface {
	// Arrive takes a packet after its last bit has arrived at a port. The sink then owns the packet.
	Arrive(now engine.Time, port int32, p *Packet)
	// Soon announces that p is the next packet to arrive.
	Soon(p *Packet)
}

// Tap observes packets as they enter a link, in order of time. Packets of different links are not in order.
type Tap interface {
	Sent(now engine.Time, l *Link, p *Packet)
}

// Judge decides whether a link loses a packet that enters it; it may mark the packet.
type Judge interface {
	Lost(now engine.Time, l *Link, p *Packet) bool
}

// Link is one direction of a cable. The fields that each packet touches are first.
type Link struct {
	sends   *agenda // of the sending switch; nil: a host sends
	port    int32   // of that switch
	waits   bool    // an event is pending for freeAt
	paused  uint8
	down    bool
	faulty  bool        // there have been faults: check each packet
	freeAt  engine.Time // time at which the last bit of the last packet leaves
	perByte engine.Time // if a byte takes whole picoseconds
	delay   engine.Time
	urgent  queue // waiting PFC frames

	flight   queue   // packets on the link
	receives *agenda // of the receiving switch; nil: a host receives
	dstPort  int32
	Stats    LinkStats
	away     *outbox // if the receiving end is in another part
	Tap      Tap     // may be nil
	Judge    Judge   // may be nil
	src      Source
	dst      Sink
	part     *Part // of the receiving end

	Name        string
	Reverse     *Link  // the other direction
	rate        uint64 // bits per second
	remainder   uint64 // of the division by rate
	pausedSince engine.Time
	pauseEnds   [Classes]engine.Time
	hosts       *hostTimers // if one end is a host
	faults      faults
	pauses      [Classes]uint64 // received PFC frames that paused it
}

// hostTimers replace the agenda of a switch at a host's end of a link.
type hostTimers struct{ arrive, free, resume engine.Timer }

// faults are the random faults of a link.
type faults struct {
	loss, corruption uint64      // probabilities, in 2^-63
	jitter           engine.Time // maximum additional delay
	rng              rand.PCG
}

// LinkStats counts the packets of a link.
type LinkStats struct {
	Packets, Bytes uint64      // that entered the link, including PFC frames
	Pauses         uint64      // received PFC frames that paused it
	Paused         engine.Time // time during which at least one class was paused
	Delivered      uint64      // packets that left the link
	Lost           uint64
}

func (l *Link) init(n *Network, name string, rate uint64, delay engine.Time, seed uint64) {
	*l = Link{Name: name, part: n.parts[0], delay: delay}
	l.faults.rng.Seed(n.seed, seed)
	l.setRate(rate)
}

// atHost makes the engine serve an end of l.
func (l *Link) atHost() {
	if l.hosts == nil {
		l.hosts = new(hostTimers)
		l.hosts.arrive.Init(l, whatArrive)
		l.hosts.free.Init(l, whatFree)
		l.hosts.resume.Init(l, whatResume)
	}
}

func (l *Link) setRate(rate uint64) {
	l.rate, l.remainder, l.perByte = rate, 0, 0
	if bit := uint64(8 * engine.Second); bit%rate == 0 {
		l.perByte = engine.Time(bit / rate)
	}
}

// Rate is the link's rate in bits per second.
func (l *Link) Rate() uint64 { return l.rate }

// Delay returns the propagation delay.
func (l *Link) Delay() engine.Time { return l.delay }

// Down reports whether the link has failed.
func (l *Link) Down() bool { return l.down }

// takes returns the transmission time of n bytes. It keeps the remainder of the division, so that the rate is exact.
func (l *Link) takes(n uint32) engine.Time {
	if l.perByte != 0 {
		return engine.Time(n) * l.perByte
	}
	hi, lo := bits.Mul64(uint64(n), uint64(8*engine.Second))
	lo, carry := bits.Add64(lo, l.remainder, 0)
	q, r := bits.Div64(hi+carry, lo, l.rate)
	l.remainder = r
	return engine.Time(q)
}

// Events of links and ports; agendas number them by port.
const (
	whatArrive int32 = iota // of the link to the port
	whatFree                // of the link from the port, like the others
	whatResume
	whatRefresh
	things
)

// Handle implements engine.Handler.
func (l *Link) Handle(now engine.Time, what int32) {
	switch what {
	case whatArrive:
		l.deliver(now)
	case whatFree:
		l.free(now)
	default:
		l.expirePauses(now)
	}
}

// Wake notifies the link that its source may have a packet.
func (l *Link) Wake(now engine.Time) {
	switch {
	case l.waits:
	case l.freeAt <= now:
		l.transmit(now)
	default:
		l.wait()
	}
}

// wait schedules an event for the time at which the link is free.
func (l *Link) wait() {
	l.waits = true
	if l.sends != nil {
		l.sends.set(l.port*things+whatFree, l.freeAt)
	} else {
		l.part.eng.Set(&l.hosts.free, l.freeAt)
	}
}

// free handles that event.
func (l *Link) free(now engine.Time) {
	l.waits = false
	l.transmit(now)
}

// expect schedules the arrival of the first packet on the link.
func (l *Link) expect(at engine.Time) {
	if l.receives != nil {
		l.receives.set(l.dstPort*things+whatArrive, at)
	} else {
		l.part.eng.Set(&l.hosts.arrive, at)
	}
}

// transmit sends the next packet; the link is free.
func (l *Link) transmit(now engine.Time) {
	var p *Packet
	more := true
	if l.urgent.head != nil {
		p = l.urgent.pop()
	} else if p, more = l.src.Next(now, l.paused); p == nil {
		return
	}
	l.Stats.Packets++
	l.Stats.Bytes += uint64(p.Bytes)
	l.freeAt = now + l.takes(p.Bytes)
	if l.Tap != nil {
		l.Tap.Sent(now, l, p)
	}
	p.at = l.freeAt + l.delay
	if l.faulty {
		l.late(p)
	}
	if l.Judge != nil && l.Judge.Lost(now, l, p) {
		p.flags |= lost
	}
	if l.away != nil {
		l.away.post(l, p)
	} else if !l.flight.follow(p) {
		l.expect(p.at)
	}
	if more {
		l.wait()
	}
}

// late adds jitter to the arrival of p. Packets are not reordered.
func (l *Link) late(p *Packet) {
	if j := l.faults.jitter; j > 0 {
		p.at += engine.Time(l.faults.rng.Uint64() % uint64(j+1))
	}
	switch {
	case l.away != nil:
		p.at = max(p.at, l.away.last)
	case l.flight.head != nil:
		p.at = max(p.at, l.flight.tail.at)
	}
}

// deliver passes the arrived packet to the sink.
func (l *Link) deliver(now engine.Time) {
	p := l.flight.pop()
	if l.flight.head != nil {
		l.expect(p.then)
		l.flight.head.next.soon()
		if l.receives == nil {
			l.dst.Soon(l.flight.head)
		}
	}
	if l.down || p.flags.has(lost) || l.faulty {
		if why := l.fate(p); why != Reasons {
			l.Stats.Lost++
			l.part.drop(now, p, why)
			return
		}
	}
	l.Stats.Delivered++
	if p.Kind == Pause {
		l.Reverse.pause(now, p.Class, engine.Time(p.Ref)*engine.Nanosecond)
		l.part.Free(p)
		return
	}
	l.dst.Arrive(now, l.dstPort, p)
}

// fate returns the reason for the loss of p, or Reasons if p is not lost.
func (l *Link) fate(p *Packet) Reason {
	f := &l.faults
	switch {
	case l.down:
		return LinkDown
	case p.flags.has(lost):
		return FaultRule
	case f.loss != 0 && f.rng.Uint64()>>1 < f.loss:
		return LinkLoss
	case f.corruption != 0 && f.rng.Uint64()>>1 < f.corruption:
		return Corrupted
	}
	return Reasons
}
