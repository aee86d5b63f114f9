// Package tap is a link on a TAP device, with UDP segmentation offload where the kernel has it.
//
// No promise: this package may change between releases.
package tap

import (
	"errors"
	"fmt"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
)

// Config describes a port on a TAP device.
type Config struct {
	// Name is the name of the device, which is created if it does not exist. The kernel replaces %d, as in
	// "roce%d", by a number.
	Name string
	// Netns is the network namespace of the device: a path, a name as in ip-netns(8), or empty for that of the
	// caller.
	Netns string
	// Bridge, if not empty, is a bridge of the namespace to attach the device to.
	Bridge string
	// MTU is the largest IP packet; 0 leaves the MTU of the device unchanged.
	MTU int
	// Offload asks for super-frames. Fault tests turn it off because tc netem drops and delays whole super-frames.
	Offload bool
	// TxQueueLen is the number of frames and super-frames that the device queues for the port; 0 means 4096.
	TxQueueLen int
}

const defaultTxQueueLen = 4096

// Port is a port on a TAP device. While the device is down, deleted, or in a deleted namespace, Send and Recv return
// port.ErrDown and FD is -1. The port waits for a device that is down. It creates a deleted device again.
type Port struct {
	port.Base
	cfg       Config
	dev       *device // nil while the device does not exist
	offload   link.Offload
	reopening port.Reopening[*device]
	queue     vnet.Queue
}

// Open attaches to a TAP device, which it creates if necessary, and configures it. It needs CAP_NET_ADMIN in the
// namespace, and CAP_SYS_ADMIN to enter another one; a user namespace grants both. Closing the port deletes the
// device unless the device is persistent.
func Open(c Config) (*Port, error) {
	if c.Name == "" {
		return nil, errors.New("tap: no device name")
	}
	if c.TxQueueLen <= 0 {
		c.TxQueueLen = defaultTxQueueLen
	}
	d, err := openDevice(c)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	p := &Port{cfg: c}
	p.adopt(0, d)
	return p, nil
}

// adopt takes a device that has just been opened.
func (p *Port) adopt(now mono.Time, d *device) {
	p.dev, p.offload = d, d.offload
	p.check(now)
}

// Send implements port.Port.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	if p.FD() < 0 {
		return port.ErrDown
	}
	e := p.queue.Send(p.FD(), f)
	if e == 0 {
		return nil
	}
	return p.SendFailed("tap", e, func() { p.Poll(now) })
}

// Recv implements port.Port.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if now >= p.Next {
		p.Poll(now)
	}
	return p.queue.Recv(&p.Base, "tap", buf, func() { p.Poll(now) })
}

// Poll implements port.Monitored.
func (p *Port) Poll(now mono.Time) {
	switch {
	case p.reopening.Active():
		if d, ok := p.reopening.Finish(now, &p.Base); ok {
			p.adopt(now, d)
		}
	case p.dev != nil:
		p.check(now)
	case now >= p.Next:
		c := p.cfg
		p.reopening.Start(now, &p.Base, func() (*device, error) { return openDevice(c) })
	}
}

// check reads the state of an existing device.
func (p *Port) check(now mono.Time) {
	s, gone := p.dev.query()
	if !gone && !p.dev.sameNetns(p.cfg.Netns) {
		s, gone = link.State{Err: fmt.Errorf("network namespace %s is gone", p.cfg.Netns)}, true
	}
	if gone {
		p.dev.close()
		p.dev, p.offload = nil, link.Offload{}
		p.Lose(now, s.Err)
		return
	}
	p.Checked(now, s, p.dev.fd)
}

// Offload implements port.Port. It may change when the device comes back.
func (p *Port) Offload() link.Offload { return p.offload }

// Name returns the current name of the device.
func (p *Port) Name() string {
	if p.dev == nil {
		return p.cfg.Name
	}
	return p.dev.name
}

// OffloadNote returns why the kernel refused an offload that Config asked for, empty if it refused none.
func (p *Port) OffloadNote() string {
	if p.dev == nil {
		return ""
	}
	return p.dev.note
}

// Close implements port.Port.
func (p *Port) Close() error {
	if d, ok := p.reopening.Wait(); ok {
		d.close()
	}
	if p.dev != nil {
		p.dev.close()
		p.dev = nil
	}
	p.SetClosed()
	return nil
}

var _ port.Monitored = (*Port)(nil)
