package rocev2

import (
	"encoding/binary"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2/stack"
)

// Limits on bad packets: those that no queue pair takes, because of length, ICRC, destination or peer.
const (
	badFirst   = 8                      // of a super-frame, before its rest is dropped
	maxBad     = 256                    // of a source, whose super-frames then end at the first bad packet
	chargedFor = 100 * time.Millisecond // since the first bad packet of the source
	chargeBits = 8
)

// charges counts the bad packets in super-frames by their source. A super-frame costs its sender one system call, but the
// receiver up to 128 packets. Sources share a place by their hash: an innocent one loses at most the rest of a super-frame after
// a bad packet.
type charges struct {
	list [1 << chargeBits]charge
	bad  int // packets of the super-frame
}

type charge struct {
	bad   uint32
	since mono.Time
}

// begin begins a super-frame.
func (c *charges) begin() { c.bad = 0 }

// add counts a bad packet of the super-frame d, of which so many packets have been examined. It reports whether to drop the
// rest.
func (c *charges) add(now mono.Time, d *stack.Datagram, examined int) bool {
	s := &c.list[sourceHash(d)]
	if now.Sub(s.since) > chargedFor {
		*s = charge{since: now}
	}
	s.bad++
	c.bad++
	return c.bad == examined && c.bad == badFirst || s.bad > maxBad
}

// sourceHash hashes address and UDP port of a sender (Fibonacci hashing).
func sourceHash(d *stack.Datagram) uint64 {
	key := binary.BigEndian.Uint64(d.Src[8:])<<16 ^ uint64(binary.BigEndian.Uint16(d.UDP))
	return key * 0x9e3779b97f4a7c15 >> (64 - chargeBits)
}
