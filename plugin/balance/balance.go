// Package balance is the interface of load balancers of simulated switches. A switch has one. entry/simulator registers
// balancers of other programs.
//
// The API of this package is stable: releases of one major version only add to it.
package balance

import "roced.io/roced/plugin/mono"

// Packet is the part of a packet that a switch can read.
type Packet struct {
	Src, Dst int    // hosts
	QP       uint32 // destination queue pair
	Hash     uint32 // of addresses and ports; the path of a transport that selects paths changes it
	Bytes    int    // on the link
	Class    uint8  // traffic class
}

// Switch is the state of a switch. It is valid during a call.
type Switch interface {
	// Queued returns the number of bytes that wait at an egress port.
	Queued(port int) int64
	// Random returns 64 random bits of the switch. Results are reproducible if no other source is used.
	Random() uint64
}

// Balancer selects the egress port of each packet for which several ports lead to its destination on equally short paths. One
// goroutine calls it. No call may allocate memory.
type Balancer interface {
	// Choose returns an index into ports, modulo their number. Neither p nor ports may be kept or changed.
	Choose(now mono.Time, p *Packet, ports []uint16, s Switch) int
	// Reset follows changes of the topology: ports may have failed or come back.
	Reset()
}
