package engine

import (
	"errors"
	"fmt"
	"time"

	"roced.io/roced/ccalgo"
)

// Causes of failed messages and ended connections.
var (
	// ErrClosed: the user has closed the connection.
	ErrClosed = errors.New("flor: connection closed")
	// ErrSilent: the peer has acknowledged nothing for Config.GiveUp.
	ErrSilent = errors.New("flor: the peer does not answer")
	// ErrStalled: the peer holds memory for messages and has sent less than 64 KB of them in Config.GiveUp.
	ErrStalled = errors.New("flor: the peer occupies receive memory without sending")
	// ErrFull: Config.Queue messages are in flight (backpressure).
	ErrFull = errors.New("flor: too many messages in flight")
	// ErrTooLong: the message is longer than Config.MaxMessage.
	ErrTooLong = errors.New("flor: message too long")
	// ErrConfig: the configuration is invalid.
	ErrConfig = errors.New("flor: configuration")
)

// Config describes an engine. A zero field means its default. Unit, MaxSend, Writes, Partials and Hardware must be
// equal at both ends.
type Config struct {
	// Unit is UNIT_SIZE, the minimum chunk, in bytes (Flor 4.2; 1 KB in 7.1); a power of two, at least 256.
	Unit uint32
	// MaxSend is the length of the longest message sent by SEND (3.2: 32 KB), a multiple of Unit. Pool buffers are
	// HeaderLen longer.
	MaxSend uint32
	// Pool holds the buffers for SENDs. They bound the memory that peers can occupy. There are at least four, each of
	// HeaderLen+MaxSend bytes.
	Pool []Buffer

	// Hardware leaves reliability to the NIC: RC queue pairs, connected with retry_cnt 2 (6). Otherwise queue pairs are
	// UC (5).
	Hardware bool
	// Chunking is a name in Chunkers; the default is rtt-uc or rtt-rc.
	Chunking     string
	ChunkingWith map[string]float64
	// Congestion is an algorithm of package ccalgo; the default is swift with a base target of 50 us (7.1). "static"
	// with window_bytes is a fixed window (7.5); "none" leaves congestion control to the NIC. One packet of the
	// algorithm is one unit.
	Congestion     string
	CongestionWith ccalgo.Params

	// A receiver acknowledges after AckWQEs WQEs, after AckBytes bytes, or after AckDelay (5: 32, 32 KB, 120 us).
	AckWQEs  int
	AckBytes uint32
	AckDelay time.Duration

	// Reorder is the loss threshold: a WQE is lost if the peer acknowledged a WQE that follows it by Reorder or more.
	// The default is 1: networks keep the order of a queue pair.
	Reorder int
	// The retransmission timeout is AckDelay plus the smoothed round-trip time plus four deviations (RFC 6298). Before
	// the first round trip it is FirstRTO. It doubles after each timeout.
	MinRTO, FirstRTO, MaxRTO time.Duration // 500 us, 5 ms, 1 s
	// Stuck is the number of consecutive timeouts after which the engine abandons and reconnects a UC queue pair. The
	// peer's NIC may have stopped receiving on it, as Linux's rdma_rxe does after the loss of a packet inside a
	// message. Zero means never.
	Stuck int
	// GiveUp ends a connection after this time without any acknowledgement. It also ends a connection whose peer holds
	// memory for messages and sends almost nothing (10 s).
	GiveUp time.Duration

	Writes   int // messages of a connection in flight by WRITE (16); a power of two
	Partials int // messages of a connection of which only some SENDs have arrived (8)
	Window   int // SENDs of a connection, counted from the first unacknowledged one (1024); a power of two, at least 64
	Queue    int // messages of a connection without a result (4096)

	// Measured, if not nil, receives each round trip passed to congestion control. It must not call the engine.
	Measured func(c *Conn, rtt time.Duration)

	// The engine reads the NIC's clock every ClockEvery, and corrects its offset if the error exceeds ClockThreshold
	// (A.2.1: 100 us, 10 us).
	ClockEvery, ClockThreshold time.Duration
}

// MaxMessage returns the length of the longest message; the immediate's offset field limits it.
func (c *Config) MaxMessage() int { return int(c.Unit) * MaxChunks }

func (c *Config) setDefaults() {
	or(&c.Unit, 1<<10)
	or(&c.MaxSend, 32<<10)
	or(&c.Congestion, "swift")
	if c.Chunking == "" {
		c.Chunking = "rtt-uc"
		if c.Hardware {
			c.Chunking = "rtt-rc"
		}
	}
	or(&c.AckWQEs, MaxAcked)
	or(&c.AckBytes, 32<<10)
	or(&c.AckDelay, 120*time.Microsecond)
	or(&c.Reorder, 1)
	or(&c.MinRTO, 500*time.Microsecond)
	or(&c.FirstRTO, 5*time.Millisecond)
	or(&c.MaxRTO, time.Second)
	or(&c.GiveUp, 10*time.Second)
	or(&c.Writes, 16)
	or(&c.Partials, 8)
	or(&c.Window, 1024)
	or(&c.Queue, 4096)
	or(&c.ClockEvery, 100*time.Microsecond)
	or(&c.ClockThreshold, 10*time.Microsecond)
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func power(n int) bool { return n > 0 && n&(n-1) == 0 }

// check validates a Config with its defaults set.
func (c *Config) check() error {
	bad := func(ok bool, format string, args ...any) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	for i := range c.Pool {
		if len(c.Pool[i].Data) != HeaderLen+int(c.MaxSend) {
			return bad(false, "Pool: buffer %d has %d bytes instead of %d", i, len(c.Pool[i].Data), HeaderLen+c.MaxSend)
		}
	}
	_, cc := ccalgo.New(c.Congestion, c.CongestionWith)
	_, chunking := newChunker(c.Chunking, c.ChunkingWith, c.Unit)
	return errors.Join(
		bad(power(int(c.Unit)) && c.Unit >= 256 && c.Unit <= 1<<20, "Unit is %d bytes: must be a power of two from 256 to 2^20", c.Unit),
		bad(c.Unit > 0 && c.MaxSend%c.Unit == 0 && int(c.MaxSend) <= c.MaxMessage(), "MaxSend is %d bytes: must be a multiple of %d up to %d", c.MaxSend, c.Unit, c.MaxMessage()),
		bad(len(c.Pool) >= 4, "Pool has %d buffers: must have at least 4", len(c.Pool)),
		bad(c.AckWQEs > 0 && c.AckWQEs <= MaxAcked, "AckWQEs is %d: must be from 1 to %d", c.AckWQEs, MaxAcked),
		bad(c.Reorder > 0, "Reorder is %d: must be positive", c.Reorder),
		bad(c.Stuck >= 0, "Stuck is %d: must not be negative", c.Stuck),
		bad(c.AckDelay > 0 && c.MinRTO > 0 && c.FirstRTO > 0 && c.MaxRTO >= c.MinRTO && c.GiveUp > 0, "times must be positive, and MaxRTO not less than MinRTO"),
		bad(power(c.Writes) && c.Writes <= 1<<16, "Writes is %d: must be a power of two up to 2^16", c.Writes),
		bad(c.Partials > 0, "Partials is %d: must be positive", c.Partials),
		bad(power(c.Window) && c.Window >= 64 && c.Window <= 1<<20, "Window is %d: must be a power of two from 64 to 2^20", c.Window),
		bad(c.Queue > 0, "Queue is %d: must be positive", c.Queue),
		bad(!ccalgo.NeedsTelemetry(c.Congestion), "Congestion %s needs the telemetry of switches, which acknowledgements of Flor do not return: use another one, such as swift", c.Congestion),
		cc, chunking)
}
