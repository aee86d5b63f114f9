// Package bottleneck limits the rate of an interface and marks or drops frames by RED. It serves to test congestion
// control on machines whose kernel has no such queueing discipline. The tbf of the kernel is the queue. A tc program in
// front of it simulates a queue with the same rate and burst, and thus of the same length, and marks the frames.
//
// No promise: this package may change between releases.
package bottleneck

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"roced.io/roced/bpf/attach"
)

//go:generate go tool bpf2go -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" bottleneck bottleneck.c

// Program is a loaded program.
type Program struct {
	objs bottleneckObjects
}

// Stats are the counters of a bottleneck. A super-frame counts as one frame.
type Stats struct {
	Frames     uint64        `json:"frames"`     // queued
	Bytes      uint64        `json:"bytes"`      // queued
	Marked     uint64        `json:"marked"`     // of Frames, with CE
	Dropped    uint64        `json:"dropped"`    // by RED, because they are not ECN-capable
	Overflowed uint64        `json:"overflowed"` // dropped because the queue was full
	Longest    time.Duration `json:"longest"`    // drain time of the longest queue that a frame has found
}

// load loads the program with settings.
func load(o *Options, set bottleneckSettings) (*Program, error) {
	p := &Program{}
	if err := loadBottleneckObjects(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("bottleneck: %w", err)
	}
	var s bottleneckState
	s.Pcg.Hi = o.Seed
	if err := errors.Join(p.objs.States.Put(uint32(0), &s), p.objs.Settings.Put(uint32(0), &set)); err != nil {
		p.Close()
		return nil, fmt.Errorf("bottleneck: settings: %w", err)
	}
	return p, nil
}

// Stats returns the counters.
func (p *Program) Stats() (Stats, error) {
	var s bottleneckState
	if err := p.objs.States.LookupWithFlags(uint32(0), &s, ebpf.LookupLock); err != nil {
		return Stats{}, fmt.Errorf("bottleneck: counters: %w", err)
	}
	return Stats{
		Frames: s.Frames, Bytes: s.Bytes, Marked: s.Marked, Dropped: s.Dropped, Overflowed: s.Overflowed,
		Longest: time.Duration(s.Longest),
	}, nil
}

// Close releases the program and its maps.
func (p *Program) Close() error { return p.objs.Close() }

// Attachment is a bottleneck that is attached to an interface until Close. After the process has been killed, the queue
// remains until the next Attach or until the interface is deleted. In mode clsact, marking also continues.
type Attachment struct {
	*Program
	link  *attach.Link
	queue *netlink.Tbf
}

// Attach attaches a bottleneck to the transmit side of an interface of the calling thread's network namespace. It
// replaces the queueing discipline of the interface; Close restores the default one. It first removes filters that
// killed processes have left.
func Attach(name string, o Options, mode attach.Mode) (_ *Attachment, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if frame := uint64(l.Attrs().MTU + 18); o.Burst < frame {
		return nil, fmt.Errorf("interface %s: burst %d: must be at least the longest frame, %d bytes", name, o.Burst, frame)
	}
	if err := attach.Clean(l.Attrs().Index); err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	p, err := load(&o, o.compile())
	if err != nil {
		return nil, err
	}
	a := &Attachment{Program: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	queue := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       o.Rate / 8,
		Buffer:     uint32(netlink.Xmittime(o.Rate/8, uint32(o.Burst))),
		// tbf must not drop frames that the program has passed.
		Limit: uint32(min(o.Limit+o.Burst+1<<20, 1<<31)),
	}
	if err := netlink.QdiscReplace(queue); err != nil {
		return nil, fmt.Errorf("interface %s: tbf: %w", name, err)
	}
	a.queue = queue
	if a.link, err = attach.Attach(l.Attrs().Index, p.objs.Bottleneck, attach.Egress, mode); err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	return a, nil
}

// Mode returns how the program is attached.
func (a *Attachment) Mode() attach.Mode { return a.link.Mode }

// Close removes the bottleneck and drops the frames in its queue.
func (a *Attachment) Close() error {
	var errs []error
	if a.link != nil {
		errs = append(errs, a.link.Close())
	}
	if a.queue != nil {
		errs = append(errs, netlink.QdiscDel(a.queue))
	}
	return errors.Join(append(errs, a.Program.Close())...)
}
