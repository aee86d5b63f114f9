// Package steer is the XDP program that steers RoCEv2 frames to AF_XDP sockets.
package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -target bpfel -cc clang -cflags "-O2 -g -Wall -Wextra -Werror -I../include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" steer steer.c

// Limits of the program's maps.
const (
	MaxQueues = 256
	MaxAddrs  = 256
)

// Verdicts are what the program has decided, in frames.
type Verdicts struct {
	Other     uint64 // not RoCEv2 for the NIC: left to the kernel
	Steered   uint64 // to a socket
	Unsteered uint64 // for the NIC, but by a queue without a socket: dropped
}

// Steer is the program, loaded. Frames are left to the kernel until it has
// addresses, and dropped until it has sockets.
type Steer struct {
	objs  steerObjects
	addrs []netip.Addr
}

// Load loads the program. It needs CAP_BPF and CAP_NET_ADMIN.
func Load() (*Steer, error) {
	s := &Steer{}
	if err := loadSteerObjects(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("steer: %w", err)
	}
	return s, nil
}

// Program is what is to be attached to an interface.
func (s *Steer) Program() *ebpf.Program { return s.objs.Steer }

// SetSocket makes the AF_XDP socket of a queue the target of its frames.
func (s *Steer) SetSocket(queue, fd int) error {
	if err := s.objs.Sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("steer: socket of queue %d: %w", queue, err)
	}
	return nil
}

// SetAddrs makes addrs the NIC's addresses. Those that stay are steered all the
// time.
func (s *Steer) SetAddrs(addrs []netip.Addr) error {
	if len(addrs) > MaxAddrs {
		return fmt.Errorf("steer: %d addresses, at most %d", len(addrs), MaxAddrs)
	}
	for _, a := range s.addrs {
		if !slices.Contains(addrs, a) {
			if err := s.objs.Addrs.Delete(a.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("steer: address %s: %w", a, err)
			}
		}
	}
	s.addrs = slices.Clone(addrs)
	for _, a := range addrs {
		if err := s.objs.Addrs.Put(a.As16(), uint8(1)); err != nil {
			return fmt.Errorf("steer: address %s: %w", a, err)
		}
	}
	return nil
}

// Verdicts adds up what the program has decided on all CPUs.
func (s *Steer) Verdicts() (v Verdicts, err error) {
	for i, sum := range []*uint64{&v.Other, &v.Steered, &v.Unsteered} {
		var perCPU []uint64
		if err := s.objs.Verdicts.Lookup(uint32(i), &perCPU); err != nil {
			return v, fmt.Errorf("steer: %w", err)
		}
		for _, n := range perCPU {
			*sum += n
		}
	}
	return v, nil
}

// Close gives program and maps up. An attached program stays until its link is
// closed.
func (s *Steer) Close() error { return s.objs.Close() }
