package flor

import (
	"fmt"
	"time"

	"roced.io/roced/flor/engine"
)

// Config describes a Device. A zero field has its default.
type Config struct {
	RunDir string // of the daemon
	Device string // name of the NIC; the first one

	// Engine has the modules of the control plane and their parameters; docs/design/flor.md has the list. Its Hardware chooses
	// RC queue pairs instead of UC. Pool and Queue are set by Open.
	Engine engine.Config
	// Backups is how many backup queue pairs a connection has (2, the most); -1: none.
	Backups int
	// Timeout is the ACK timeout of RC queue pairs, 4.096 us * 2^Timeout (12), with retry_cnt 2 (Flor 6).
	Timeout uint8
	// AckClass is the traffic class, DSCP and ECN bits, of acknowledgements (192: CS6); data has class 0 (Flor 4.1).
	AckClass uint8

	// SharedAcks has acknowledgements go by the queue pairs of data, behind these, and be polled with them: what Flor 4.1
	// compares with. It must be the same at both ends.
	SharedAcks bool

	Depth   int // WQEs of a queue pair in the NIC (64)
	Pool    int // buffers for SENDs of all peers (512)
	Landing int // bytes for messages of all peers that come by WRITE (64 MB)
	Memory  int // bytes of messages to be sent (64 MB)
	Queue   int // messages of a connection that are not acknowledged (1024)
	Inbox   int // messages of a connection that nobody has taken by Recv (64)

	// Spin is how long the Device's loop polls before it sleeps (20 us).
	Spin time.Duration
}

// setDefaults sets what is not set. Where the NICs are software and share processors with programs, round trips vary from a tenth
// of a millisecond to some: times are longer than those of the engine, which are the paper's, windows begin larger, and
// it takes more delay to make them, and chunks, smaller; chunks are larger, since each wakes two programs.
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
	// Beside the user's messages there are credits, one at a time, and what was not answered.
	e.Queue = c.Queue + c.Inbox + 1
}

// chunk is the longest chunk, in bytes. On an MTU of 4096 it leaves a roced NIC in five frames: the first packet, whose header is longer
// than others', and four super-frames of fifteen. The last packet is short, so that the immediate makes it no longer than
// those before it, which would keep it out of their super-frame. 256 KB are seven frames.
const chunk = 61*4096 - 1<<10

// check reports what the engine does not check itself.
func (c *Config) check() error {
	for _, f := range []struct {
		name         string
		v, low, high int
	}{{"Backups", c.Backups, 0, maxPairs - 1}, {"Depth", c.Depth, 1, 1 << 12}, {"Pool", c.Pool, 4, 1 << 20}, {"Queue", c.Queue, 1, 1 << 20},
		{"Inbox", c.Inbox, 2, 1<<16 - 1}, {"Timeout", int(c.Timeout), 1, 31}, {"Engine.Partials", c.Engine.Partials, 1, 255},
		{"Landing", c.Landing, 2 * c.Engine.MaxMessage(), 1 << 40}, {"Memory", c.Memory, 2 * c.Engine.MaxMessage(), 1 << 40}} {
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
