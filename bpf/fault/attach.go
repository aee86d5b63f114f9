package fault

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Attachment is a program at work on an interface. It ends with Close, or with the
// process; what a killed process leaves is the two unused ends of the detour, which
// the next Attach to the interface removes.
type Attachment struct {
	*Program
	links  []link.Link
	detour string // one end of it
}

// Attach puts a program without rules on an interface of the calling thread's network
// namespace, behind other tcx programs. Kernels before 6.6 have no tcx.
func Attach(name string) (_ *Attachment, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	index := l.Attrs().Index
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
		ifindex uint32
		program *ebpf.Program
		where   ebpf.AttachType
	}{
		{p.settings.Detour[1], p.objs.DetourRx, ebpf.AttachTCXIngress},
		{p.settings.Detour[0], p.objs.DetourTx, ebpf.AttachTCXIngress},
		{uint32(index), p.objs.FaultRx, ebpf.AttachTCXIngress},
		{uint32(index), p.objs.FaultTx, ebpf.AttachTCXEgress},
	} {
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(at.ifindex), Program: at.program, Attach: at.where})
		if err != nil {
			return nil, fmt.Errorf("interface %s: tcx (Linux 6.6 or newer): %w", name, err)
		}
		a.links = append(a.links, l)
	}
	return a, nil
}

// makeDetour makes the veth whose ends super-frames enter: those that are sent by one,
// those received by the other, and come out at the opposite one as single frames.
func (a *Attachment) makeDetour(index int) error {
	names := [2]string{fmt.Sprintf("rf%da", index), fmt.Sprintf("rf%db", index)}
	if err := removeLeftOver(names[0]); err != nil {
		return err
	}
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

// removeLeftOver removes the detour of a process that was killed. That of one that
// lives has a program.
func removeLeftOver(name string) error {
	old, err := netlink.LinkByName(name)
	if err != nil {
		return nil // there is none
	}
	used, err := link.QueryPrograms(link.QueryOptions{Target: old.Attrs().Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("left over %s: %w", name, err)
	}
	if len(used.Programs) > 0 {
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
