package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// recording is the capture of a port: frames in memory, sent and received. It belongs to the shard.
type recording struct {
	cfg    Capture
	on     bool
	frames []recorded
	first  int // oldest frame, in a ring that overwrites
	bytes  int
	whole  []byte // scratch: a frame to send
	one    []byte // scratch: a segment
}

// recorded is a captured frame.
type recorded struct {
	at   mono.Time
	data []byte
	size int // on the link
}

// captureBytes bounds the memory of a port's capture, frames with their descriptions.
const (
	captureBytes = 64 << 20
	recordedCost = 64
)

// frame keeps a frame, or the frames of a super-frame.
func (r *recording) frame(now mono.Time, b []byte, segSize int) {
	if !r.on {
		return
	}
	for i := range link.Segments(b, segSize) {
		r.one = link.Segment(r.one[:0], b, segSize, i)
		r.keep(now, r.one)
	}
}

// keep keeps a frame. When the memory is full, it discards the oldest frames or stops.
func (r *recording) keep(now mono.Time, b []byte) {
	size := len(b)
	if r.cfg.Snap > 0 {
		b = b[:min(len(b), r.cfg.Snap)]
	}
	need := len(b) + recordedCost
	for r.bytes+need > captureBytes {
		if !r.cfg.Overwrite || r.first == len(r.frames) {
			r.on = false
			return
		}
		r.bytes -= len(r.frames[r.first].data) + recordedCost
		r.frames[r.first] = recorded{}
		r.first++
	}
	if r.first > 1024 && r.first > len(r.frames)/2 {
		r.frames = append([]recorded(nil), r.frames[r.first:]...)
		r.first = 0
	}
	r.bytes += need
	r.frames = append(r.frames, recorded{now, bytes.Clone(b), size})
}

// packetWriter is a writer of pcap or pcapng.
type packetWriter interface {
	WritePacket(gopacket.CaptureInfo, []byte) error
}

// file returns frames as a capture file. wall converts times.
func (c *Capture) file(frames []recorded, wall func(mono.Time) time.Time) ([]byte, error) {
	var b bytes.Buffer
	var w packetWriter
	finish := func() error { return nil }
	if c.PCAPNG {
		n, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
		if err != nil {
			return nil, err
		}
		w, finish = n, n.Flush
	} else {
		p := pcapgo.NewWriterNanos(&b)
		if err := p.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
			return nil, err
		}
		w = p
	}
	for _, f := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: wall(f.at), CaptureLength: len(f.data), Length: f.size}, f.data); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), finish()
}

// captures commands the captures of ports.
func (e *engine) captures(names []string, f func(*recording)) error {
	ports, err := e.portsBy(names)
	var errs []error
	for _, p := range ports {
		if p.cap == nil {
			if len(names) > 0 {
				errs = append(errs, fmt.Errorf("port %s: no capture is configured", p.cfg.Name))
			}
			continue
		}
		errs = append(errs, e.do(func(mono.Time) error { f(p.cap); return nil }))
	}
	return errors.Join(append(errs, err)...)
}

// StartCapture implements Engine.
func (e *engine) StartCapture(names []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.captures(names, func(r *recording) { *r = recording{cfg: r.cfg, on: true} })
}

// StopCapture implements Engine.
func (e *engine) StopCapture(names []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.captures(names, func(r *recording) { r.on = false })
}

// Captured implements Engine. Frames do not change after they have been kept.
func (e *engine) Captured(name string) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ports, err := e.portsBy([]string{name})
	if err != nil {
		return nil, err
	}
	r := ports[0].cap
	if r == nil {
		return nil, fmt.Errorf("port %s: no capture is configured", name)
	}
	var frames []recorded
	if err := e.do(func(mono.Time) error { frames = append(frames, r.frames[r.first:]...); return nil }); err != nil {
		return nil, err
	}
	return r.cfg.file(frames, wall)
}
