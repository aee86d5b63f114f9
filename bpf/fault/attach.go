package fault

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"roced.io/roced/bpf/attach"
)

// Attachment is a program at work on an interface, until Close. By tcx, it ends with the
// process, too, and what a killed process leaves is the two unused ends of the detour. By
// clsact, the rules of a killed process stay in force. Clean removes either.
type Attachment struct {
	*Program
	links  []*attach.Link
	detour string // one end of it
}

// Attach puts a program without rules on an interface of the calling thread's network
// namespace, behind other tc programs, and cleans the interface before.
func Attach(name string, mode attach.Mode) (_ *Attachment, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	index := l.Attrs().Index
	if err := clean(index); err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	p, err := Load()
	if err != nil {
		return nil, err
	}
	a := &Attachment{Program: p}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	p.settings.Ifindex = uint32(index)
	if err := a.makeDetour(index); err != nil {
		return nil, fmt.Errorf("detour for super-frames: %w", err)
	}
	if err := p.store(); err != nil {
		return nil, err
	}
	for _, at := range []struct {
		ifindex int
		program *ebpf.Program
		where   attach.Direction
	}{
		{int(p.settings.Detour[1]), p.objs.DetourRx, attach.Ingress},
		{int(p.settings.Detour[0]), p.objs.DetourTx, attach.Ingress},
		{index, p.objs.FaultRx, attach.Ingress},
		{index, p.objs.FaultTx, attach.Egress},
	} {
		l, err := attach.Attach(at.ifindex, at.program, at.where, mode)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		a.links = append(a.links, l)
	}
	return a, nil
}

// Mode is the way in which the program is attached.
func (a *Attachment) Mode() attach.Mode { return a.links[0].Mode }

// makeDetour makes the veth whose ends super-frames enter: those that are sent by one,
// those received by the other, and come out at the opposite one as single frames.
func (a *Attachment) makeDetour(index int) error {
	names := detourNames(index)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: names[0], MTU: 65535}, PeerName: names[1], PeerMTU: 65535}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	a.detour = names[0]
	for i, name := range names {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := noUDPSegmentation(name); err != nil {
			return err
		}
		const none = 1                             // IN6_ADDR_GEN_MODE_NONE, linux/if_link.h
		_ = netlink.LinkSetIP6AddrGenMode(l, none) // a kernel without IPv6 refuses, and need not know
		if err := errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		a.settings.Detour[1-i] = uint32(l.Attrs().Index)
	}
	return nil
}

func detourNames(index int) [2]string {
	return [2]string{fmt.Sprintf("rf%da", index), fmt.Sprintf("rf%db", index)}
}

// Clean removes from an interface of the calling thread's network namespace what killed
// processes have left: filters, also those of bottlenecks, and the detour. It is an
// error if another process has rules there.
func Clean(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = clean(l.Attrs().Index)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// clean is Clean: first the filters, which lead to the detour. The detour of a process
// that lives has a program.
func clean(index int) error {
	if err := attach.Clean(index); err != nil {
		return err
	}
	name := detourNames(index)[0]
	old, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("left over %s: %w", name, err)
	}
	used, err := attach.Used(old.Attrs().Index)
	if err != nil {
		return fmt.Errorf("left over %s: %w", name, err)
	}
	if used {
		return errors.New("another process has fault rules on the interface")
	}
	if err := netlink.LinkDel(old); err != nil {
		return fmt.Errorf("left over %s: %w", name, err)
	}
	return nil
}

// Close takes the program off the interface. Afterwards frames pass as before.
func (a *Attachment) Close() error {
	var errs []error
	for i := len(a.links) - 1; i >= 0; i-- { // the interface's first: frames in the detour get back
		errs = append(errs, a.links[i].Close())
	}
	if a.detour != "" {
		l, err := netlink.LinkByName(a.detour)
		if err == nil {
			err = netlink.LinkDel(l)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, a.Program.Close())...)
}
