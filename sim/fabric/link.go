package fabric

import (
	"math/bits"
	"math/rand/v2"

	"roced/ring"
	"roced/sim/engine"
)

// Source has the packets of a link's sending end.
type Source interface {
	// Next fills p with the next packet whose class is not in paused and returns true, or
	// returns false. more says that there may be another one when this has left; otherwise the
	// source wakes the link when there is.
	Next(now engine.Time, paused uint8, p *Packet) (ok, more bool)
}

// Sink is a link's receiving end.
type Sink interface {
	// Arrive takes a packet whose last bit has come to a port. p is only lent.
	Arrive(now engine.Time, port int32, p *Packet)
}

// Tap is shown packets as they enter a link.
type Tap interface {
	Sent(now engine.Time, l *Link, p *Packet)
}

// Judge decides whether a packet is lost on a link; it may mark it. It is asked as packets enter.
type Judge interface {
	Lost(now engine.Time, l *Link, p *Packet) bool
}

// Link is one direction of a cable.
type Link struct {
	Name    string
	Reverse *Link // the other direction
	Tap     Tap   // nil: nobody looks
	Judge   Judge // nil: nobody decides

	net     *Network
	src     Source
	dst     Sink
	dstPort int32

	rate      uint64      // bits per second
	perByte   engine.Time // if a byte takes whole picoseconds
	remainder uint64      // of the division by rate
	delay     engine.Time
	down      bool
	loss      uint64 // of 2^63: probability that a packet is lost
	rng       rand.PCG

	freeAt engine.Time // when the last bit of the last packet leaves
	send   engine.Timer
	arrive engine.Timer
	flight ring.Ring[transit]
	urgent ring.Ring[Packet] // PFC frames that wait

	paused      uint8
	pausedSince engine.Time
	pauseEnds   [Classes]engine.Time
	resume      engine.Timer

	Stats LinkStats
}

// transit is a packet on its way.
type transit struct {
	at engine.Time // of its last bit's arrival
	Packet
	lost bool // the judge has said so
}

// LinkStats are what a link has done.
type LinkStats struct {
	Packets, Bytes uint64      // that entered it, PFC frames included
	Pauses         uint64      // PFC frames that told it to stop
	Paused         engine.Time // how long some class of it was stopped
	Delivered      uint64      // packets that came out
	Lost           uint64
}

// What the timers of a link are for.
const (
	whatSend int32 = iota
	whatArrive
	whatResume
)

func (l *Link) init(n *Network, name string, rate uint64, delay engine.Time, seed uint64) {
	*l = Link{Name: name, net: n, delay: delay}
	l.rng.Seed(n.seed, seed)
	l.setRate(rate)
	l.send.Init(l, whatSend)
	l.arrive.Init(l, whatArrive)
	l.resume.Init(l, whatResume)
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

// Handle implements engine.Handler.
func (l *Link) Handle(now engine.Time, what int32) {
	switch what {
	case whatSend:
		l.transmit(now)
	case whatArrive:
		l.deliver(now)
	default:
		l.expirePauses(now)
	}
}

// Wake tells that the source may have something.
func (l *Link) Wake(now engine.Time) {
	switch {
	case l.send.Pending():
	case l.freeAt <= now:
		l.transmit(now)
	default:
		l.net.eng.Set(&l.send, l.freeAt)
	}
}

// transmit sends the next packet; the link is free.
func (l *Link) transmit(now engine.Time) {
	t := l.flight.Push()
	more := true
	if l.urgent.Len() > 0 {
		t.Packet = *l.urgent.Oldest()
		l.urgent.Head++
	} else {
		var ok bool
		if ok, more = l.src.Next(now, l.paused, &t.Packet); !ok {
			l.flight.Tail--
			return
		}
	}
	l.Stats.Packets++
	l.Stats.Bytes += uint64(t.Bytes)
	l.freeAt = now + l.takes(t.Bytes)
	if l.Tap != nil {
		l.Tap.Sent(now, l, &t.Packet)
	}
	t.at = l.freeAt + l.delay
	t.lost = l.Judge != nil && l.Judge.Lost(now, l, &t.Packet)
	if l.flight.Len() == 1 {
		l.net.eng.Set(&l.arrive, t.at)
	}
	if more {
		l.net.eng.Set(&l.send, l.freeAt)
	}
}

// deliver hands over the packet whose last bit has arrived.
func (l *Link) deliver(now engine.Time) {
	// Whoever takes it pushes nothing onto this link at once, so its place remains as it is.
	t := l.flight.Oldest()
	p := &t.Packet
	l.flight.Head++
	if l.flight.Len() > 0 {
		l.net.eng.Set(&l.arrive, l.flight.Oldest().at)
	}
	switch {
	case l.down:
		l.lose(now, p, LinkDown)
	case t.lost:
		l.lose(now, p, FaultRule)
	case l.loss != 0 && l.rng.Uint64()>>1 < l.loss:
		l.lose(now, p, LinkLoss)
	default:
		l.Stats.Delivered++
		if p.Kind == Pause {
			l.Reverse.pause(now, p.Class, engine.Time(p.Ref)*engine.Nanosecond)
			return
		}
		l.dst.Arrive(now, l.dstPort, p)
	}
}

func (l *Link) lose(now engine.Time, p *Packet, why Reason) {
	l.Stats.Lost++
	if p.Kind == Data {
		l.net.drop(now, p, why)
	}
}
