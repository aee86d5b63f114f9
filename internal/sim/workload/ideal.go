package workload

import (
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
)

// Bytes are sizes on a link.
type Bytes struct {
	Payload uint32 // of a full packet
	Header  uint32 // additional bytes of a packet with payload
	Ack     uint32
}

// Ideal returns the time of a message of size bytes in an empty network, from its post to its last acknowledgement.
// path lists its links in order; the acknowledgement takes them in reverse.
func (b Bytes) Ideal(size uint32, path []*fabric.Link) engine.Time {
	t := b.OneWay(size, path)
	for _, l := range path {
		t += takes(b.Ack, l.Reverse.Rate()) + l.Delay()
	}
	return t
}

// OneWay returns the time until the message arrives. Switches store and forward packets.
func (b Bytes) OneWay(size uint32, path []*fabric.Link) engine.Time {
	n := max((size+b.Payload-1)/b.Payload, 1)
	full, last := b.Payload+b.Header, size-(n-1)*b.Payload+b.Header
	var sum, slowest, at, delay engine.Time // at: when the last packet reaches the end of a link, without delays
	for _, l := range path {
		took := takes(full, l.Rate())
		sum += took
		slowest = max(slowest, took)
		free := engine.Time(0) // when the last full packet has left this link
		if n > 1 {
			free = sum + engine.Time(n-2)*slowest
		}
		at = max(at, free) + takes(last, l.Rate())
		delay += l.Delay()
	}
	return at + delay
}

func takes(bytes uint32, rate uint64) engine.Time {
	return engine.Time(float64(bytes) * 8 * float64(engine.Second) / float64(rate))
}
