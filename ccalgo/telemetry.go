package ccalgo

import "roced.io/roced/plugin/mono"

// MaxHops is the number of switches that a packet's telemetry has room for, as in HPCC (Li et al., SIGCOMM 2019, section
// 4.1): a fat-tree has no longer path.
const MaxHops = 5

// TelemetryBytes is what telemetry adds to a packet and to its acknowledgement: eight bytes for each hop, whether used or
// not, and two for their number and the path.
const TelemetryBytes = 8*MaxHops + 2

// Hop is the record of one switch on a packet's path: the state of the egress port when the packet left.
type Hop struct {
	At     mono.Time
	Sent   uint64 // bytes that the port sent before the packet
	Rate   uint64 // of the link, bits per second
	Queued uint32 // bytes in the port's queue behind the packet
}

// Telemetry is what the switches on a packet's path recorded (in-band network telemetry).
type Telemetry struct {
	Hops [MaxHops]Hop
	N    uint8  // valid elements of Hops
	Path uint32 // differs for different paths
}

// Add appends the record of a switch. Later ones are left out if there is no room.
func (t *Telemetry) Add(switchID uint32, h Hop) {
	t.Path = t.Path*31 + switchID + 1
	if t.N < MaxHops {
		t.Hops[t.N] = h
		t.N++
	}
}

// Telemetered is a Controller that needs the telemetry of switches. Simulated switches have it; ports of the daemon do not.
type Telemetered interface {
	// OnTelemetry precedes the OnAck of the acknowledgement that returned t. The controller must not keep t.
	OnTelemetry(now mono.Time, t *Telemetry)
}

// NeedsTelemetry reports whether the algorithm of that name is Telemetered.
func NeedsTelemetry(algorithm string) bool {
	c, err := New(algorithm, nil)
	_, needs := c.(Telemetered)
	return err == nil && needs
}
