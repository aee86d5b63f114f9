// Package xdp is the AF_XDP port: a link that shares an Ethernet interface with the
// kernel. An XDP program steers RoCEv2 frames for the NIC to AF_XDP sockets and leaves
// everything else to the kernel.
package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/xdp/xsk"
	"roced.io/roced/rocev2"
	"roced.io/roced/tap"
)

const (
	ethLen   = 14
	maxFrame = ethLen + rocev2.MaxLinkMTU
	// txBatch is how many frames wait at most for the kernel to be told of them.
	txBatch = 64
	// rxBatch is how many chunks wait at most to be given back.
	rxBatch = 64
)

// Times.
const (
	pollInterval = time.Second            // look at an interface that is up
	openInterval = 5 * time.Millisecond   // look whether an attempt has ended
	minBackoff   = 100 * time.Millisecond // between attempts to bring it back
	maxBackoff   = 2 * time.Second
	txRetry      = 50 * time.Microsecond // until there is room again, which nothing tells of
)

var errClosed = errors.New("link: closed")

// Port is a port on an interface that a kernel uses too, by AF_XDP sockets. Send and
// Recv return tap.ErrDown and FD is -1 while the interface is down or does not
// exist, or runs no program of ours; it is found again by its name.
//
// Frames to send are collected: the kernel is told of them when there are many, by a
// Recv that finds nothing, and by the first Recv at another time than theirs, which is in
// the next turn of the NIC's loop. NextTimeout does not let anybody wait meanwhile.
type Port struct {
	cfg   Config
	addrs []netip.Addr // those of cfg without groups

	inside *tap.Inside
	groups *tap.Groups

	dev   *device // nil while gone
	fd    int     // to poll while the link is up, else -1
	state tap.LinkState
	stats tap.Stats

	free    []uint64  // chunks to send from
	unsent  int       // frames that the kernel has not been told of
	sentAt  mono.Time // time of the last of them
	blocked mono.Time // when to try again to send; 0 if nothing waits for it
	turn    int       // queue to receive from first
	note    string    // what does not work as it should though the port does

	next    mono.Time // when to look after the interface
	wait    time.Duration
	opening chan opened // of an attempt that is on its way
}

// opened is the result of an attempt: a device, or the old one with its program attached.
type opened struct {
	dev *device
	err error
}

// Open attaches to an interface, which must exist. It needs CAP_NET_RAW for the sockets,
// CAP_BPF and CAP_NET_ADMIN for the program, CAP_IPC_LOCK unless RLIMIT_MEMLOCK is high
// enough, and CAP_SYS_ADMIN to enter a namespace. Program and sockets live as long as
// the process at most.
func Open(c Config) (*Port, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	d, err := openDevice(&c)
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	inside, err := tap.Enter(c.Netns)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("xdp: %w", err)
	}
	p := &Port{cfg: c, addrs: c.Addrs, inside: inside, groups: tap.NewGroups(inside), free: make([]uint64, 0, txChunks)}
	p.adopt(0, d)
	return p, nil
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

// Poll implements tap.Monitored.
func (p *Port) Poll(now mono.Time) {
	switch {
	case p.opening != nil:
		p.finishOpening(now)
	case p.dev != nil && p.dev.link != nil:
		p.check(now)
	case now >= p.next && p.next != mono.Never:
		p.startOpening(now)
	}
}

// check looks at an interface that is there.
func (p *Port) check(now mono.Time) {
	index, s := tap.QueryInterface(p.dev.ctl, p.cfg.Interface)
	switch {
	case index != p.dev.index:
		p.dev.count(&p.stats)
		p.dev.close()
		p.dev = nil
		_ = p.groups.Move(0) // joins nothing
		p.lose(now, s.Err)
		return
	case !p.dev.attached():
		p.dev.detach()
		p.lose(now, fmt.Errorf("interface %s: somebody has detached the XDP program", p.cfg.Interface))
		return
	}
	s.MTU = min(s.MTU, p.dev.maxMTU())
	p.state, p.fd = s, -1
	if !s.Up {
		p.next = p.backoff(now)
		return
	}
	p.fd, p.wait, p.next = p.dev.fd(), 0, now.Add(pollInterval)
}

// lose gives the link up for the reason err.
func (p *Port) lose(now mono.Time, err error) {
	if err == nil {
		err = fmt.Errorf("interface %s has been replaced", p.cfg.Interface)
	}
	p.fd, p.state = -1, tap.LinkState{Err: err}
	p.stats.Lost++
	p.next = p.backoff(now)
}

// backoff returns when to look again at a link that is not up; each time is twice as
// far as the one before, up to a limit.
func (p *Port) backoff(now mono.Time) mono.Time {
	p.wait = min(max(2*p.wait, minBackoff), maxBackoff)
	return now.Add(p.wait)
}

// startOpening begins an attempt to bring the link back. It may take a while, so a
// goroutine makes it. An interface that is still there keeps its sockets: attaching
// to it needs no privilege.
func (p *Port) startOpening(now mono.Time) {
	done := make(chan opened, 1)
	go func(c Config, d *device) {
		if d == nil {
			d, err := openDevice(&c)
			done <- opened{d, err}
			return
		}
		done <- opened{d, tap.InNetns(c.Netns, func() error { return d.attach(&c) })}
	}(p.cfg, p.dev)
	p.opening, p.next = done, now.Add(openInterval)
}

// finishOpening takes the result of an attempt if there is one.
func (p *Port) finishOpening(now mono.Time) {
	select {
	case r := <-p.opening:
		p.opening = nil
		if r.err != nil {
			p.state.Err = r.err
			p.next = p.backoff(now)
			return
		}
		p.stats.Reopened++
		p.adopt(now, r.dev)
	default:
		p.next = now.Add(openInterval)
	}
}

// SetAddrs replaces the addresses for which frames are received, at most 256 with the groups.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	p.addrs = addrs
	return p.steer()
}

// Group joins a multicast group, whose frames are received from then on, or leaves it.
func (p *Port) Group(gid rocev2.GID, in bool) error {
	err := p.groups.Set(gid.Addr(), in)
	if err == nil {
		err = p.steer()
	}
	if err != nil && in {
		_ = p.groups.Set(gid.Addr(), false) // to leave cannot fail
	}
	return err
}

// steer has the program steer what is for the addresses and the groups.
func (p *Port) steer() error {
	p.cfg.Addrs = p.groups.Behind(p.addrs)
	if p.dev == nil {
		return nil // once it is back
	}
	return p.dev.steer.SetAddrs(p.cfg.Addrs)
}

// NextTimeout implements tap.Port.
func (p *Port) NextTimeout() mono.Time {
	if p.unsent > 0 {
		return 0
	}
	if p.blocked != 0 {
		return p.next.Min(p.blocked)
	}
	return p.next
}

// FD implements tap.Port. It does not tell reliably when there is room to send:
// NextTimeout does.
func (p *Port) FD() int { return p.fd }

// Offload implements tap.Port: frames go out as they are.
func (p *Port) Offload() rocev2.Offload { return rocev2.Offload{} }

// State implements tap.Monitored.
func (p *Port) State() tap.LinkState { return p.state }

// Stats implements tap.Monitored.
func (p *Port) Stats() tap.Stats {
	s := p.stats
	if p.dev != nil {
		p.dev.count(&s)
	}
	return s
}

// Mode tells how the port works: "native", "generic", copy or zero-copy, the number of
// queues, and what it cannot do.
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

// Close implements tap.Port.
func (p *Port) Close() error {
	if p.opening != nil {
		if r := <-p.opening; r.err == nil {
			p.dev = r.dev
		}
		p.opening = nil
	}
	if p.dev != nil {
		p.flush(0)
		p.dev.close()
		p.dev = nil
	}
	if p.inside != nil {
		p.groups.Close()
		p.inside.Close()
		p.inside = nil
	}
	p.fd, p.unsent, p.blocked, p.next, p.state = -1, 0, 0, mono.Never, tap.LinkState{Err: errClosed}
	return nil
}

var _ tap.Monitored = (*Port)(nil)
