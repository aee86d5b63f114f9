package fault

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"roced.io/roced/bpf/attach"
)

// Attachment is a program that is attached to an interface until Close. After the process has been killed,
//
//   - the kernel detaches a program in mode tcx; only the unused detour interfaces remain;
//   - a program in mode clsact stays attached, and its rules stay in force.
//
// Clean removes both.
type Attachment struct {
	*Program
	links  []*attach.Link
	detour string // one end of it
}

// Attach attaches a program without rules to an interface of the calling thread's network namespace, after all other tc
// programs. It first cleans the interface.
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

// Mode returns how the program is attached.
func (a *Attachment) Mode() attach.Mode { return a.links[0].Mode }

// makeDetour makes a veth that segments super-frames. Sent super-frames enter one end, received ones the other end. They
// leave the opposite end as single frames.
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
		_ = netlink.LinkSetIP6AddrGenMode(l, none) // fails on a kernel without IPv6, where it is not needed
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

// Clean removes the filters (of fault rules and of bottlenecks) and the detour that killed processes have left on an
// interface of the calling thread's network namespace. It fails if another process has rules on the interface.
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

// clean removes the filters before the detour, because they redirect to it. The detour of a live process has a program.
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
		return fmt.Errorf("leftover device %s: %w", name, err)
	}
	used, err := attach.Used(old.Attrs().Index)
	if err != nil {
		return fmt.Errorf("leftover device %s: %w", name, err)
	}
	if used {
		return errors.New("another process has fault rules on the interface; end it first")
	}
	if err := netlink.LinkDel(old); err != nil {
		return fmt.Errorf("leftover device %s: %w", name, err)
	}
	return nil
}

// Close detaches the program. Frames pass unchanged afterwards.
func (a *Attachment) Close() error {
	var errs []error
	for i := len(a.links) - 1; i >= 0; i-- { // the interface's first, so that frames leave the detour
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
