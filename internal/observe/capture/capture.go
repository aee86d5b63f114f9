// Package capture writes the frames of a NIC to a pcapng file and never blocks the NIC. A ring of fixed size carries
// the frames to the goroutine that writes them. Frames that do not fit are lost and counted. The drop count and the
// comment of the next frame hold the number of frames lost before it. The statistics at the end of the file hold the sum.
package capture

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Defaults and limits.
const (
	defaultRing = 16 << 20
	minRing     = 1 << 17 // holds the longest frame
	maxSnap     = 1 << 16
	// gather is the delay between a wakeup and the writer's first read. It batches frames: a busy NIC does not wake
	// the writer for every frame.
	gather = time.Millisecond
	// wakeAt is the fill level of the ring, in 1/16, that wakes the writer before the delay ends.
	wakeAt = 4
)

// ErrFull means that the file has reached its maximum size.
var ErrFull = errors.New("capture: the file has reached its limit")

// Config describes a capture.
type Config struct {
	File string
	// Interface is the name of the NIC in the file.
	Interface string
	// Description is the NIC's description in the file; may be empty.
	Description string
	// SnapLen is the number of bytes to keep of each frame; 0 means all.
	SnapLen int
	// RingBytes is the size of the ring in bytes, rounded up to a power of two; 0 means 16 MiB.
	RingBytes int
	// MaxBytes is the maximum file size; 0 means no limit.
	MaxBytes int64
	// Keep bounds the file like a ring: the newest frames are in File, older ones in Older(File). Both have about Keep bytes
	// together. 0 means no bound.
	Keep int64
	// WallOffset is the time since the Unix epoch at mono.Time 0.
	WallOffset time.Duration
	// Failed, if not nil, is called with the error at the first failure to write. It is called at most once and must
	// not call the capture.
	Failed func(error)
}

// Stats counts the frames of a capture.
type Stats struct {
	Written uint64
	Bytes   int64  // size of the file
	Lost    uint64 // frames that did not fit in the ring or could not be written
	Err     error  // the error that stopped the writer
}

// Capture is a running capture. It is a link.Observer.
type Capture struct {
	cfg     Config
	ring    ring
	snap    int
	stopped atomic.Bool
	asleep  atomic.Bool // the writer waits for wake
	wake    chan struct{}
	done    chan struct{}
	stopErr error

	// Fields of the writer.
	file     io.WriteCloser
	buf      *output.Records
	out      *pcapng.Writer
	comments map[string]string

	mu      sync.Mutex // guards the fields that Stats reads; only the writer changes them
	written uint64
	bytes   int64
	unsaved uint64 // frames that the writer lost
	err     error
	// unflushed is the number of frames that count as written, less those in the file. During a write it may lack one.
	unflushed uint64
}

var _ link.Observer = (*Capture)(nil)

// Older returns the name of the file that has the older frames of a capture with a bound.
func Older(file string) string {
	ext := filepath.Ext(file)
	return strings.TrimSuffix(file, ext) + ".1" + ext
}

func open(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
}

// Start creates the file and starts the writer.
func Start(c Config) (*Capture, error) {
	f, err := open(c.File)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	cp, err := start(c, f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("capture: %s: %w", c.File, err)
	}
	return cp, nil
}

func start(cfg Config, f io.WriteCloser) (*Capture, error) {
	size := max(cfg.RingBytes, minRing)
	if cfg.RingBytes == 0 {
		size = defaultRing
	}
	c := &Capture{
		cfg: cfg, snap: maxSnap, file: f, comments: map[string]string{},
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if cfg.SnapLen > 0 {
		c.snap = min(cfg.SnapLen, maxSnap)
	}
	c.ring.buf = make([]byte, 1<<bits.Len(uint(size-1)))
	if err := c.begin(); err != nil {
		return nil, err
	}
	go c.run()
	return c, nil
}

// begin writes the beginning of a file.
func (c *Capture) begin() (err error) {
	c.buf = output.NewRecords(countWriter{c}, func(block []byte) {
		if pcapng.IsPacket(block) {
			c.unflushed--
		}
	})
	if c.out, err = pcapng.NewWriter(c.buf, "roced"); err != nil {
		return err
	}
	_, err = c.out.AddInterface(pcapng.Interface{Name: c.cfg.Interface, Description: c.cfg.Description, Link: pcapng.LinkEthernet, SnapLen: c.snap})
	if err != nil {
		return err
	}
	return c.buf.Flush()
}

// rotate ends the file, keeps it as the older one, and begins a new one.
func (c *Capture) rotate() error {
	if _, err := c.buf.Write(appendStatistics(nil, time.Now().UnixNano(), c.Stats())); err != nil {
		return err
	}
	if err := errors.Join(c.buf.Flush(), c.file.Close(), os.Rename(c.cfg.File, Older(c.cfg.File))); err != nil {
		return err
	}
	f, err := open(c.cfg.File)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.file, c.bytes = f, 0
	c.mu.Unlock()
	return c.begin()
}

// countWriter counts the bytes written to the file.
type countWriter struct{ c *Capture }

func (w countWriter) Write(b []byte) (int, error) {
	n, err := w.c.file.Write(b)
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.bytes += int64(n)
	return n, err
}

// Truncate cuts the file, if it can be cut.
func (w countWriter) Truncate(size int64) error {
	f, ok := w.c.file.(interface{ Truncate(size int64) error })
	if !ok {
		return nil
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.bytes = size
	return f.Truncate(size)
}

// Frame implements link.Observer. It must be called from a single goroutine. It never blocks.
func (c *Capture) Frame(now mono.Time, d link.Direction, frame []byte, comment string) {
	if c.stopped.Load() {
		return
	}
	c.ring.put(now, d, frame, c.snap, comment)
	if c.asleep.Load() || c.ring.used() >= wakeAt {
		c.poke()
	}
}

func (c *Capture) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Stop writes the frames in the ring and the statistics, and closes the file. Remove the NIC's observer first: the
// capture ignores later frames.
func (c *Capture) Stop() (Stats, error) {
	if !c.stopped.Swap(true) {
		c.poke()
	}
	<-c.done
	return c.Stats(), c.stopErr
}

// Stats returns the counters.
func (c *Capture) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Written: c.written, Bytes: c.bytes, Lost: c.ring.lost.Load() + c.unsaved, Err: c.err}
}

// run is the writer's loop.
func (c *Capture) run() {
	defer close(c.done)
	timer := time.NewTimer(gather)
	defer timer.Stop()
	for !c.stopped.Load() {
		if c.drain() == 0 {
			c.fail(c.buf.Flush())
			c.sleep()
		}
		timer.Reset(gather)
		select {
		case <-timer.C:
		case <-c.wake:
		}
	}
	c.drain()
	c.finish()
}

// sleep blocks until the first frame after a pause.
func (c *Capture) sleep() {
	c.asleep.Store(true)
	defer c.asleep.Store(false)
	if c.ring.head.Load() != c.ring.tail.Load() || c.stopped.Load() {
		return // the frame came before asleep was set
	}
	<-c.wake
}

// drain writes the frames in the ring and returns their number.
func (c *Capture) drain() (n int) {
	var rec record
	for ; c.ring.get(&rec); n++ {
		err := c.write(&rec)
		c.ring.release(&rec)
		c.mu.Lock()
		if err == nil {
			c.written++
			c.unflushed++
		} else {
			c.unsaved++
		}
		c.mu.Unlock()
	}
	return n
}

// beyond stands in for the bytes of a frame that the snap length cut.
var beyond [maxSnap]byte

// write writes one frame, unless an earlier write failed.
func (c *Capture) write(rec *record) error {
	if c.err != nil {
		return c.err
	}
	if c.cfg.MaxBytes > 0 && c.bytes+int64(c.buf.Buffered()+len(rec.frame)) > c.cfg.MaxBytes {
		c.fail(ErrFull)
		return ErrFull
	}
	if c.cfg.Keep > 0 && c.bytes+int64(c.buf.Buffered()+len(rec.frame)) > c.cfg.Keep/2 {
		if err := c.rotate(); err != nil {
			c.fail(err)
			return err
		}
	}
	p := pcapng.PacketInfo{Time: int64(rec.time) + int64(c.cfg.WallOffset), Direction: pcapng.Inbound, Comment: c.comment(rec), Lost: uint64(rec.lost)}
	if rec.kind == kindTx {
		p.Direction = pcapng.Outbound
	}
	cut := min(rec.length-len(rec.frame), len(beyond))
	err := c.out.WritePacket(p, rec.frame, beyond[:cut])
	c.fail(err)
	return err
}

// comment returns the comment of a frame, including the number of frames lost before it.
func (c *Capture) comment(rec *record) string {
	s, ok := c.comments[string(rec.comment)]
	if !ok {
		s = string(rec.comment)
		if len(c.comments) < 1024 {
			c.comments[s] = s
		}
	}
	if rec.lost == 0 {
		return s
	}
	lost := fmt.Sprintf("capture: %d frames lost before this one", rec.lost)
	if s == "" {
		return lost
	}
	return lost + "; " + s
}

// fail records the error that stops the writer. After a file error, frames that are still in the buffer are lost.
func (c *Capture) fail(err error) {
	if err == nil || c.err != nil && !errors.Is(c.err, ErrFull) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.cfg.Failed != nil {
		c.cfg.Failed(err)
	}
	c.err = err
	if !errors.Is(err, ErrFull) {
		c.written -= c.unflushed
		c.unsaved += c.unflushed
	}
}

// finish writes the statistics and closes the file.
func (c *Capture) finish() {
	s := c.Stats()
	if s.Err == nil || errors.Is(s.Err, ErrFull) {
		now := time.Now().UnixNano()
		if _, err := c.buf.Write(appendStatistics(nil, now, s)); err != nil {
			c.fail(err)
		}
		c.fail(c.buf.Flush())
	}
	c.fail(c.file.Close())
	if !errors.Is(c.err, ErrFull) {
		c.stopErr = c.err
	}
}
