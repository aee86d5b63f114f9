package fabric

import (
	"math/bits"
	"math/rand/v2"

	"roced.io/roced/internal/sim/engine"
)

// Source has the packets of a link's sending end.
type Source interface {
	// Next returns the next packet whose class is not in paused, nil if there is none. more says
	// that there may be another one when this has left; otherwise the source wakes the link when
	// there is.
	Next(now engine.Time, paused uint8) (p *Packet, more bool)
}

// Sink is a link's receiving end.
type Sink interface {
	// Arrive takes a packet whose last bit has come to a port. It belongs to the sink from then on.
	Arrive(now engine.Time, port int32, p *Packet)
	// Soon tells that p will arrive next.
	Soon(p *Packet)
}

// Tap is shown packets as they enter a link, in the order of their instants; of different links
// they are not in that order.
type Tap interface {
	Sent(now engine.Time, l *Link, p *Packet)
}

// Judge decides whether a packet is lost on a link; it may mark it. It is asked as packets enter.
type Judge interface {
	Lost(now engine.Time, l *Link, p *Packet) bool
}

// Link is one direction of a cable. What each packet touches stands first.
type Link struct {
	sends   *agenda // of the switch that sends on it, nil if a host does
	port    int32   // of that switch
	waits   bool    // somebody waits until it is free
	paused  uint8
	down    bool
	faulty  bool        // there have been faults: packets need a closer look
	freeAt  engine.Time // when the last bit of the last packet leaves
	perByte engine.Time // if a byte takes whole picoseconds
	delay   engine.Time
	urgent  queue // PFC frames that wait

	flight   queue   // what is on its way
	receives *agenda // of the switch that it leads to, nil if to a host
	dstPort  int32
	Stats    LinkStats
	Tap      Tap   // nil: nobody looks
	Judge    Judge // nil: nobody decides
	src      Source
	dst      Sink
	net      *Network

	Name        string
	Reverse     *Link  // the other direction
	rate        uint64 // bits per second
	remainder   uint64 // of the division by rate
	pausedSince engine.Time
	pauseEnds   [Classes]engine.Time
	hosts       *hostTimers // if one of the ends is a host
	faults      faults
}

// hostTimers are what hosts' ends of links have instead of the agenda of a switch.
type hostTimers struct{ arrive, free, resume engine.Timer }

// faults are what a link does to packets by chance.
type faults struct {
	loss, corruption uint64      // of 2^63: probabilities
	jitter           engine.Time // at most, of what a packet takes longer
	rng              rand.PCG
}

// LinkStats are what a link has done.
type LinkStats struct {
	Packets, Bytes uint64      // that entered it, PFC frames included
	Pauses         uint64      // PFC frames that told it to stop
	Paused         engine.Time // how long some class of it was stopped
	Delivered      uint64      // packets that came out
	Lost           uint64
}

func (l *Link) init(n *Network, name string, rate uint64, delay engine.Time, seed uint64) {
	*l = Link{Name: name, net: n, delay: delay}
	l.faults.rng.Seed(n.seed, seed)
	l.setRate(rate)
}

// atHost has an end of l served by the engine.
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

// Delay is how long a bit travels.
func (l *Link) Delay() engine.Time { return l.delay }

// Down reports whether the link has failed.
func (l *Link) Down() bool { return l.down }

// takes is how long n bytes take to enter the link. What a division leaves over is kept, so
// that the rate is exact.
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

// What a link has to do, and a port, refresh, by what agendas number them for each port.
const (
	whatArrive int32 = iota // of the link that leads there
	whatFree                // of the link that leads away, as the rest
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

// Wake tells that the source may have something.
func (l *Link) Wake(now engine.Time) {
	switch {
	case l.waits:
	case l.freeAt <= now:
		l.transmit(now)
	default:
		l.wait()
	}
}

// wait has the link do something when it is free.
func (l *Link) wait() {
	l.waits = true
	if l.sends != nil {
		l.sends.set(l.port*things+whatFree, l.freeAt)
	} else {
		l.net.eng.Set(&l.hosts.free, l.freeAt)
	}
}

// free ends that.
func (l *Link) free(now engine.Time) {
	l.waits = false
	l.transmit(now)
}

// expect has the first packet that is on its way arrive at an instant.
func (l *Link) expect(at engine.Time) {
	if l.receives != nil {
		l.receives.set(l.dstPort*things+whatArrive, at)
	} else {
		l.net.eng.Set(&l.hosts.arrive, at)
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
	if l.flight.head == nil {
		l.expect(p.at)
	} else {
		l.flight.tail.then = p.at
	}
	l.flight.push(p)
	if more {
		l.wait()
	}
}

// late adds jitter to what p takes. It does not overtake.
func (l *Link) late(p *Packet) {
	if j := l.faults.jitter; j > 0 {
		p.at += engine.Time(l.faults.rng.Uint64() % uint64(j+1))
	}
	if l.flight.head != nil {
		p.at = max(p.at, l.flight.tail.at)
	}
}

// deliver hands over the packet whose last bit has arrived.
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
			l.net.drop(now, p, why)
			return
		}
	}
	l.Stats.Delivered++
	if p.Kind == Pause {
		l.Reverse.pause(now, p.Class, engine.Time(p.Ref)*engine.Nanosecond)
		l.net.Free(p)
		return
	}
	l.dst.Arrive(now, l.dstPort, p)
}

// fate says why p is lost, Reasons if it is not.
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
