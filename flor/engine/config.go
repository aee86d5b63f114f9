package engine

import (
	"errors"
	"fmt"
	"time"

	"roced.io/roced/ccalgo"
)

// Reasons why messages and connections end.
var (
	// ErrClosed says that the connection was closed by its user.
	ErrClosed = errors.New("flor: connection closed")
	// ErrSilent: the peer has acknowledged nothing for Config.GiveUp.
	ErrSilent = errors.New("flor: the peer does not answer")
	// ErrStalled: the peer holds memory for messages and has sent less than 64 KB of them in Config.GiveUp.
	ErrStalled = errors.New("flor: the peer holds memory and sends nothing")
	// ErrFull says that as many messages as Config.Queue are under way: back-pressure.
	ErrFull = errors.New("flor: too many messages under way")
	// ErrTooLong says that a message has more bytes than Config.MaxMessage.
	ErrTooLong = errors.New("flor: message too long")
	// ErrConfig says that a configuration makes no sense.
	ErrConfig = errors.New("flor: configuration")
)

// Config describes an engine. A zero field has its default. Both ends of a connection have the same
// Unit, MaxSend, Writes, Partials and Hardware.
type Config struct {
	// Unit is UNIT_SIZE, the least chunk, in bytes (Flor 4.2; 1 KB in 7.1); a power of two, at least 256.
	Unit uint32
	// MaxSend is the longest message that goes by SEND (3.2: 32 KB). Pool buffers have HeaderLen
	// more. A multiple of Unit.
	MaxSend uint32
	// Pool is the buffers for SENDs: all that peers can make this engine hold. They are of
	// HeaderLen+MaxSend bytes, and at least four.
	Pool []Buffer

	// Hardware leaves reliability to the NIC: RC queue pairs, to be connected with retry_cnt 2 (6).
	// Otherwise they are UC (5).
	Hardware bool
	// Chunking is one of Chunkers, by default rtt-uc or rtt-rc.
	Chunking     string
	ChunkingWith map[string]float64
	// Congestion is one of package ccalgo, by default swift, whose base target is 50 us (7.1);
	// "static" with window_bytes is a fixed window (7.5), "none" leaves it to the NIC. Its packets are units.
	Congestion     string
	CongestionWith ccalgo.Params

	// A receiver acknowledges at once so many WQEs or bytes, and otherwise after AckDelay (5: 32, 32 KB,
	// 120 us).
	AckWQEs  int
	AckBytes uint32
	AckDelay time.Duration

	// Reorder is how many WQEs later one must be that has been acknowledged for an earlier one to count as lost
	// (default 1: networks keep the order of a queue pair).
	Reorder int
	// The retransmission timeout is the smoothed round-trip time and four deviations more (RFC 6298),
	// beside AckDelay; FirstRTO before any is known. It doubles each time.
	MinRTO, FirstRTO, MaxRTO time.Duration // 500 us, 5 ms, 1 s
	// Stuck is after how many timeouts in a row a UC queue pair is left, and connected anew: its NIC may take nothing
	// any more, as Linux's rdma_rxe after the loss of a packet in the middle of a message. Zero is never.
	Stuck int
	// GiveUp is after how long without any acknowledgement a connection ends, or with a peer that holds memory
	// for messages and hardly sends any of them (10 s).
	GiveUp time.Duration

	Writes   int // messages of a connection under way by WRITE (16); a power of two
	Partials int // messages of a connection of which some SENDs have come (8)
	Window   int // SENDs of a connection from the first that is not acknowledged on (1024); a power of two, at least 64
	Queue    int // messages of a connection that its user is to be told of (4096)

	// Measured, if not nil, is shown each round trip that congestion control learns of. It must not call the engine.
	Measured func(c *Conn, rtt time.Duration)

	// The NIC is asked for its time each ClockEvery, and believed if it differs by more than
	// ClockThreshold (A.2.1: 100 us, 10 us).
	ClockEvery, ClockThreshold time.Duration
}

// MaxMessage is the length of the longest message: what the immediate's offset can name.
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
			return bad(false, "buffer %d of the pool has %d bytes, it must have %d", i, len(c.Pool[i].Data), HeaderLen+c.MaxSend)
		}
	}
	_, cc := ccalgo.New(c.Congestion, c.CongestionWith)
	_, chunking := newChunker(c.Chunking, c.ChunkingWith, c.Unit)
	return errors.Join(
		bad(power(int(c.Unit)) && c.Unit >= 256 && c.Unit <= 1<<20, "a unit of %d bytes is no power of two from 256 to 2^20", c.Unit),
		bad(c.Unit > 0 && c.MaxSend%c.Unit == 0 && int(c.MaxSend) <= c.MaxMessage(), "SENDs of up to %d bytes are no multiple of %d up to %d", c.MaxSend, c.Unit, c.MaxMessage()),
		bad(len(c.Pool) >= 4, "the pool has %d buffers, it must have four", len(c.Pool)),
		bad(c.AckWQEs > 0 && c.AckWQEs <= MaxAcked, "an acknowledgement of %d WQEs: it has room for %d", c.AckWQEs, MaxAcked),
		bad(c.Reorder > 0, "reorder is %d", c.Reorder),
		bad(c.Stuck >= 0, "stuck is %d", c.Stuck),
		bad(c.AckDelay > 0 && c.MinRTO > 0 && c.FirstRTO > 0 && c.MaxRTO >= c.MinRTO && c.GiveUp > 0, "times must be positive, and MaxRTO not less than MinRTO"),
		bad(power(c.Writes) && c.Writes <= 1<<16, "%d WRITEs under way are no power of two up to 2^16", c.Writes),
		bad(c.Partials > 0, "partials is %d", c.Partials),
		bad(power(c.Window) && c.Window >= 64 && c.Window <= 1<<20, "a window of %d SENDs is no power of two from 64 to 2^20", c.Window),
		bad(c.Queue > 0, "queue is %d", c.Queue),
		cc, chunking)
}
