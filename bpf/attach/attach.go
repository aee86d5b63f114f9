// Package attach attaches tc programs to interfaces: by a tcx link (Linux 6.6), or else as a direct-action filter of a
// clsact qdisc. Either way the program runs after those that are attached already, and TC_ACT_UNSPEC passes a frame on
// to the next program.
//
// The kernel removes a tcx link with its process. A filter stays attached when its process is killed, until Clean
// removes it. All functions work in the calling thread's network namespace.
//
// No promise: this package may change between releases.
package attach

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Mode is the way to attach programs.
type Mode string

// Modes. Auto means TCX if the kernel supports it, else Clsact.
const (
	Auto   Mode = "auto"
	TCX    Mode = "tcx"
	Clsact Mode = "clsact"
)

// ParseMode reads the name of a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, TCX, Clsact:
		return m, nil
	}
	return "", fmt.Errorf("attach mode %q: must be auto, tcx or clsact", s)
}

// Direction selects the frames of an interface that a program processes.
type Direction int

// Directions: frames that the interface receives, and frames that it sends.
const (
	Ingress Direction = iota
	Egress
)

// Link is a program that is attached to an interface until Close.
type Link struct {
	io.Closer
	Mode Mode // TCX or Clsact
}

// Attach attaches a program to an interface. It needs CAP_NET_ADMIN.
func Attach(ifindex int, p *ebpf.Program, d Direction, m Mode) (*Link, error) {
	if m != Clsact {
		at := [...]ebpf.AttachType{Ingress: ebpf.AttachTCXIngress, Egress: ebpf.AttachTCXEgress}[d]
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: at})
		if err == nil {
			return &Link{l, TCX}, nil
		}
		if m == TCX || !errors.Is(err, ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("tcx: %w", err)
		}
	}
	f, err := addFilter(ifindex, p, d)
	if err != nil {
		return nil, fmt.Errorf("clsact: %w", err)
	}
	return &Link{f, Clsact}, nil
}

// Used reports whether an interface has a tcx program, or a filter of a live process.
func Used(ifindex int) (bool, error) {
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		q, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
		if errors.Is(err, unix.EINVAL) {
			break // a kernel without tcx does not know the attach type
		}
		if err != nil {
			return false, fmt.Errorf("tcx: %w", err)
		}
		if len(q.Programs) > 0 {
			return true, nil
		}
	}
	ours, err := ourFilters(ifindex)
	if err != nil {
		return false, fmt.Errorf("clsact: %w", err)
	}
	for _, f := range ours {
		free, err := isFree(f.Name)
		if err != nil || !free {
			return !free, err
		}
	}
	return false, nil
}
