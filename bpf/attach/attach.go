// Package attach puts tc programs on interfaces, by a tcx link where the kernel has
// those (Linux 6.6), else as a direct-action filter of a clsact qdisc. Either way a
// program comes behind those that are there already, and TC_ACT_UNSPEC hands a frame on
// to the next one.
//
// A tcx link goes with its process. A filter stays when its process is killed, at work:
// Clean removes it then. All functions are about the calling thread's network namespace.
package attach

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Mode is a way to attach programs.
type Mode string

// The modes. Auto is TCX where the kernel has it, else Clsact.
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
	return "", fmt.Errorf("attach by %q: want auto, tcx or clsact", s)
}

// Direction says which frames of an interface a program gets.
type Direction int

// Ingress frames are what the interface receives, egress ones what it sends.
const (
	Ingress Direction = iota
	Egress
)

// Link is a program at work on an interface, until Close.
type Link struct {
	io.Closer
	Mode Mode // TCX or Clsact
}

// Attach puts a program on the interface with an index. It needs CAP_NET_ADMIN.
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

// Used tells whether an interface has a tcx program, or a filter that Attach made for a
// process that lives.
func Used(ifindex int) (bool, error) {
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		q, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
		if errors.Is(err, unix.EINVAL) {
			break // a kernel without tcx does not know what it is asked
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
