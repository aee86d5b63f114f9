// Package xdp is a link on an Ethernet interface that the kernel also uses, through AF_XDP sockets. An XDP program steers
// RoCEv2 frames for the NIC to the sockets and passes all other frames to the kernel.
//
// No promise: this package may change between releases.
package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/internal/base/xsk"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

const (
	ethLen   = port.EthLen
	maxFrame = ethLen + link.MaxMTU
	// txBatch is the number of frames after which the port notifies the kernel.
	txBatch = 64
	// rxBatch is the number of chunks after which the port returns received chunks to the kernel.
	rxBatch = 64
	// txRetry is the interval at which a full port retries, because no event reports that there is room again.
	txRetry = 50 * time.Microsecond
)

// Port is a port on an interface that the kernel also uses. While the interface is down, does not exist, or does not run
// the port's program, Send and Recv return port.ErrDown and FD is -1. The port finds a new interface by its name.
//
// The port batches frames to send. It notifies the kernel when the batch is full, in a Recv that finds no frame, and in
// the first Recv with a later time than the last Send, that is, in the next iteration of the NIC's loop. NextTimeout
// returns 0 while frames wait.
type Port struct {
	port.Base
	cfg    Config
	addrs  []netip.Addr // those of cfg without groups
	thread *netns.Thread
	groups *port.Groups

	dev       *device // nil while the interface does not exist
	reopening port.Reopening[*device]

	free    []uint64  // chunks to send from
	unsent  int       // frames that the kernel has not been notified of
	sentAt  mono.Time // time of the last of them
	blocked mono.Time // time of the next attempt to send, 0 if no frame waits for one
	turn    int       // queue to receive from first
	note    string    // warning for Mode
}

// Open attaches to an existing interface. It needs CAP_NET_RAW for the sockets, CAP_BPF and CAP_NET_ADMIN for the
// program, CAP_IPC_LOCK unless RLIMIT_MEMLOCK is high enough, and CAP_SYS_ADMIN to enter another namespace. The program
// and the sockets do not outlive the process.
func Open(c Config) (*Port, error) {
	p := &Port{cfg: c, addrs: c.Addrs, free: make([]uint64, 0, txChunks)}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	return p, nil
}

func (p *Port) open() error {
	if err := p.cfg.validate(); err != nil {
		return err
	}
	d, err := openDevice(&p.cfg)
	if err != nil {
		return err
	}
	if p.thread, err = netns.Enter(p.cfg.Netns); err != nil {
		d.close()
		return err
	}
	p.groups = port.NewGroups(p.thread)
	p.adopt(0, d)
	return nil
}

// adopt takes a device that has just been opened or attached to.
func (p *Port) adopt(now mono.Time, d *device) {
	if p.dev != d {
		p.dev = d
		p.free, p.unsent, p.blocked, p.turn = p.free[:0], 0, 0, 0
		for i := range uint64(txChunks) {
			p.free = append(p.free, i*xsk.ChunkSize)
		}
		p.note = ""
		if err := errors.Join(p.groups.Move(d.index), p.steer()); err != nil {
			p.note = ", " + err.Error()
		}
	}
	p.check(now)
}

// Poll implements port.Monitored.
func (p *Port) Poll(now mono.Time) {
	switch {
	case p.reopening.Active():
		if d, ok := p.reopening.Finish(now, &p.Base); ok {
			p.adopt(now, d)
		}
	case p.dev != nil && p.dev.link != nil:
		p.check(now)
	case now >= p.Next && p.Next != mono.Never:
		c, d := p.cfg, p.dev
		p.reopening.Start(now, &p.Base, func() (*device, error) { return reopen(&c, d) })
	}
}

// reopen opens the device again. If the interface still exists, it keeps the sockets and only attaches the program,
// which needs no privilege.
func reopen(c *Config, d *device) (*device, error) {
	if d == nil {
		return openDevice(c)
	}
	return d, netns.Do(c.Netns, func() error { return d.attach(c) })
}

// check reads the state of an existing interface.
func (p *Port) check(now mono.Time) {
	index, s := port.QueryInterface(p.dev.ctl, p.cfg.Interface)
	switch {
	case index != p.dev.index:
		p.dev.count(&p.Counters)
		p.dev.close()
		p.dev = nil
		_ = p.groups.Move(0)
		if s.Err == nil {
			s.Err = fmt.Errorf("interface %s has been replaced", p.cfg.Interface)
		}
		p.Lose(now, s.Err)
		return
	case !p.dev.attached():
		p.dev.detach()
		p.Lose(now, fmt.Errorf("interface %s: another process has detached the XDP program", p.cfg.Interface))
		return
	}
	s.MTU = min(s.MTU, p.dev.maxMTU())
	p.Checked(now, s, p.dev.fd())
}

// SetAddrs replaces the addresses whose frames the port receives. Addresses and groups together may be at most 256.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	p.addrs = addrs
	return p.steer()
}

// Group joins or leaves a multicast group. The port receives the frames to its groups.
func (p *Port) Group(gid inet.GID, in bool) error { return p.groups.Update(gid.Addr(), in, p.steer) }

// steer makes the program steer the frames to the addresses and the groups. Without a device, adopt does it later.
func (p *Port) steer() error {
	p.cfg.Addrs = p.groups.Behind(p.addrs)
	if p.dev == nil {
		return nil
	}
	return p.dev.steer.SetAddrs(p.cfg.Addrs)
}

// NextTimeout implements port.Port. In contrast to FD, it reliably reports that there is room to send.
func (p *Port) NextTimeout() mono.Time {
	if p.unsent > 0 {
		return 0
	}
	if p.blocked != 0 {
		return p.Next.Min(p.blocked)
	}
	return p.Next
}

// Offload implements port.Port. The port accepts no super-frames.
func (p *Port) Offload() link.Offload { return link.Offload{} }

// Stats implements port.Monitored.
func (p *Port) Stats() port.Stats {
	s := p.Counters
	if p.dev != nil {
		p.dev.count(&s)
	}
	return s
}

// Mode describes how the port works ("native" or "generic", copy or zero-copy, number of queues), and its limitations.
func (p *Port) Mode() string {
	if p.dev == nil {
		return "gone"
	}
	way, limit := "copy", ""
	if p.dev.zc {
		way = "zero-copy"
	}
	if !p.dev.sg {
		limit = fmt.Sprintf(", no multi-buffer: MTU at most %d", p.dev.maxMTU())
	}
	return fmt.Sprintf("%s, %s, queues: %d%s%s", modeName(p.dev.native), way, len(p.dev.queues), limit, p.note)
}

// Close implements port.Port.
func (p *Port) Close() error {
	if d, ok := p.reopening.Wait(); ok {
		p.dev = d
	}
	if p.dev != nil {
		p.flush(0)
		p.dev.close()
		p.dev = nil
	}
	if p.thread != nil {
		p.groups.Close()
		p.thread.Close()
		p.thread = nil
	}
	p.unsent, p.blocked = 0, 0
	p.SetClosed()
	return nil
}

var _ port.Monitored = (*Port)(nil)
