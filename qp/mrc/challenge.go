package mrc

import (
	"math/bits"
	"time"

	"roced.io/roced/plugin/mono"
)

// challenge verifies the port status of a peer, whose address anybody can forge. It sends an EV probe in each plane that the
// status removes, and then one in a plane that remains. When that one is answered, planes without an answer are removed.
//
// Choice: the sources believe a port status. Here a change acts after one round trip, and a queue pair begins a challenge once
// in challengeInterval; of the changes in between, it verifies the last.
type challenge struct {
	claimed  uint32 // the last port status
	before   uint32 // the ports that were believed then
	mask     uint32 // the port status that is verified
	removed  uint32 // planes that it removes
	unsent   uint32 // of these, the planes whose probe is to be sent
	answered uint32
	last     uint8 // plane that remains
	lastDue  bool  // its probe is to be sent
	running  bool
	waiting  bool // claimed is to be verified
	decided  bool
	seq      uint8
	sends    uint8
	next     mono.Time // for the next challenge
	sentAt   mono.Time
}

const (
	challengeInterval = 100 * time.Millisecond
	// challengeSends is the number of times that the probes are sent. The time between two of them begins with statusInterval and
	// doubles.
	challengeSends = 7
	// challengeRequest marks the number of a challenge's probe.
	challengeRequest = statusRequest | 1<<14
	planeBits        = 5
)

// Verify takes the port status of the peer, of which the ports before are believed. A status without any plane is ignored.
func (e *Endpoint) Verify(now mono.Time, before, mask uint32) {
	c := &e.challenge
	mask &= e.EVs.PlaneMask()
	if mask == 0 || c.running && mask == c.claimed {
		return
	}
	c.claimed, c.before = mask, before&e.EVs.PlaneMask()
	if c.waiting = c.running || mask != c.before; c.waiting {
		c.begin(now)
	}
}

// begin begins the challenge that waits, if it may begin now.
func (c *challenge) begin(now mono.Time) {
	if c.running || !c.waiting || now < c.next {
		return
	}
	c.running, c.waiting, c.mask, c.removed, c.answered, c.sends = true, false, c.claimed, c.before&^c.claimed, 0, 0
	c.seq++
	c.next = now.Add(challengeInterval)
	c.last = uint8(bits.TrailingZeros32(c.claimed))
	if both := c.claimed & c.before; both != 0 {
		c.last = uint8(bits.TrailingZeros32(both))
	}
	c.unsent, c.lastDue = c.removed, true
}

// nextProbe returns the number and the plane of the next probe.
func (c *challenge) nextProbe(now mono.Time) (id uint16, plane int) {
	plane = int(c.last)
	if c.unsent != 0 {
		plane = bits.TrailingZeros32(c.unsent)
		c.unsent &= c.unsent - 1
	} else {
		c.lastDue = false
		c.sentAt = now
		c.sends++
	}
	return challengeRequest | uint16(c.seq)<<planeBits | uint16(plane), plane
}

// answer takes the answer to a probe. It reports whether it is outstanding.
func (c *challenge) answer(id uint16) bool {
	if !c.running || uint8(id>>planeBits) != c.seq {
		return false
	}
	plane := id & (1<<planeBits - 1)
	c.answered |= 1 << plane
	if plane == uint16(c.last) {
		c.running, c.decided, c.unsent, c.lastDue = false, true, 0, false
	}
	return true
}

// Believed returns the ports of the peer after a challenge has ended, once. Ports of planes that the queue pair does not have are
// set.
func (e *Endpoint) Believed() (mask uint32, ok bool) {
	c := &e.challenge
	if !c.decided {
		return 0, false
	}
	c.decided = false
	return c.mask | c.removed&c.answered | ^e.EVs.PlaneMask(), true
}

// deadline returns when onDeadline is due.
func (c *challenge) deadline() mono.Time {
	switch {
	case c.running && !c.lastDue:
		return c.sentAt.Add(statusInterval << (c.sends - 1))
	case !c.running && c.waiting:
		return c.next
	}
	return mono.Never
}

// onDeadline repeats the probes, or gives up. It begins the challenge that waits.
func (c *challenge) onDeadline(now mono.Time) {
	if c.running && !c.lastDue && now >= c.deadline() {
		if c.running = c.sends < challengeSends; c.running {
			c.unsent, c.lastDue = c.removed, true
		}
	}
	c.begin(now)
}
