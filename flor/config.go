package flor

import (
	"fmt"
	"math"
	"time"

	"roced.io/roced/flor/engine"
)

// Config describes a Device. A zero field means its default, which is in parentheses.
type Config struct {
	RunDir string // of the daemon
	Device string // name of the NIC; the first one

	// Engine names the modules of the control plane and their parameters; docs/design/flor.md lists them. Engine.Hardware
	// selects RC queue pairs instead of UC. Open sets Engine.Pool and Engine.Queue.
	Engine engine.Config
	// Backups is the number of backup queue pairs of a connection (2, the maximum); -1: none.
	Backups int
	// Timeout is the ACK timeout of RC queue pairs, 4.096 us * 2^Timeout (12), with retry_cnt 2 (Flor 6).
	Timeout uint8
	// AckClass is the traffic class, DSCP and ECN bits, of acknowledgements (192: CS6); data has class 0 (Flor 4.1).
	AckClass uint8

	// SharedAcks sends acknowledgements on the queue pairs of data, behind the data, and polls them with it. It is the
	// comparison of Flor 4.1. Both ends must have the same value.
	SharedAcks bool

	Depth   int // WQEs of a queue pair (64)
	Pool    int // buffers for SENDs of all peers (512)
	Landing int // bytes for messages that all peers send by WRITE (64 MB)
	Memory  int // bytes of registered memory for messages to send (64 MB)
	Queue   int // unacknowledged messages of a connection (1024)
	Inbox   int // messages of a connection that wait for Recv (64)

	// Spin is the polling time of the Device's loop before it sleeps (20 us).
	Spin time.Duration
}

// setDefaults sets the defaults. Software NICs share processors with programs, so round trips vary from 0.1 ms to several
// milliseconds. Therefore timeouts are longer than those of the engine, which are the paper's. Windows begin larger, and
// windows and chunks shrink at a larger delay. Chunks are larger, because each wakes two programs.
func (c *Config) setDefaults() {
	or(&c.Timeout, 12)
	or(&c.AckClass, 0xc0)
	or(&c.Depth, 64)
	or(&c.Pool, 512)
	or(&c.Landing, 64<<20)
	or(&c.Memory, 64<<20)
	or(&c.Queue, 1024)
	or(&c.Inbox, 64)
	or(&c.Spin, 20*time.Microsecond)
	or(&c.Backups, maxPairs-1)
	c.Backups = max(c.Backups, 0)
	e := &c.Engine
	or(&e.Unit, 1<<10)
	or(&e.MaxSend, 32<<10)
	or(&e.Writes, 16)
	or(&e.Partials, 8)
	or(&e.MinRTO, 20*time.Millisecond)
	or(&e.FirstRTO, 50*time.Millisecond)
	or(&e.Stuck, 2)
	if e.Congestion == "" {
		e.Congestion, e.CongestionWith = "swift", map[string]float64{"base_target_us": 5000, "initial_cwnd_packets": 256, "min_cwnd_packets": 32}
	}
	if e.Chunking == "" {
		e.ChunkingWith = map[string]float64{"beta_min": 2, "beta_max": 8, "max_bytes": chunk, "bdp_bytes": chunk}
	}
	// In addition to messages of the user: one credit, and notices of unanswered requests.
	e.Queue = c.Queue + c.Inbox + 1
}

// chunk is the longest chunk in bytes. With an MTU of 4096 a roced NIC sends it in five frames: the first packet, which has
// a longer header, and four super-frames of fifteen packets. The last packet is short: with the immediate it must not be
// longer than the others, or it would not fit into their super-frame. 256 KB are seven frames.
const chunk = 61*4096 - 1<<10

// maxMemory is the limit of Landing and Memory in bytes, also where an int has 32 bits.
const maxMemory = min(1<<40, math.MaxInt)

// check validates the fields that the engine does not check.
func (c *Config) check() error {
	for _, f := range []struct {
		name         string
		v, low, high int
	}{{"Backups", c.Backups, 0, maxPairs - 1}, {"Depth", c.Depth, 1, 1 << 12}, {"Pool", c.Pool, 4, 1 << 20}, {"Queue", c.Queue, 1, 1 << 20},
		{"Inbox", c.Inbox, 2, 1<<16 - 1}, {"Timeout", int(c.Timeout), 1, 31}, {"Engine.Partials", c.Engine.Partials, 1, 255},
		{"Landing", c.Landing, 2 * c.Engine.MaxMessage(), maxMemory}, {"Memory", c.Memory, 2 * c.Engine.MaxMessage(), maxMemory}} {
		if f.v < f.low || f.v > f.high {
			return fmt.Errorf("%w: %s is %d, not between %d and %d", engine.ErrConfig, f.name, f.v, f.low, f.high)
		}
	}
	return nil
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
