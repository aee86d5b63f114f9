// Package steer is the XDP program that steers RoCEv2 frames to AF_XDP sockets.
//
// No promise: this package may change between releases.
package steer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -target bpfel -cc clang -cflags "-O2 -g -Wall -Wextra -Werror -I../include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" steer steer.c

// Capacities of the maps of the program.
const (
	MaxQueues = 256
	MaxAddrs  = 256
)

// Verdicts counts frames by the decision of the program.
type Verdicts struct {
	Other     uint64 // not RoCEv2 for the NIC: passed to the kernel
	Steered   uint64 // to a socket
	Unsteered uint64 // for the NIC, but received on a queue without a socket: dropped
}

// Steer is a loaded program. It passes all frames to the kernel until it has addresses, and drops frames for the NIC
// until it has sockets.
type Steer struct {
	objs  steerObjects
	addrs []netip.Addr
	port  uint16
}

// Load loads the program for frames to a UDP port. It needs CAP_BPF and CAP_NET_ADMIN.
func Load(port uint16) (*Steer, error) {
	s := &Steer{port: port}
	if err := loadSteerObjects(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("steer: %w", err)
	}
	return s, nil
}

// Program returns the program to attach to an interface.
func (s *Steer) Program() *ebpf.Program { return s.objs.Steer }

// SetSocket sets the AF_XDP socket that receives the frames of a queue.
func (s *Steer) SetSocket(queue, fd int) error {
	if err := s.objs.Sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("steer: socket of queue %d: %w", queue, err)
	}
	return nil
}

// SetAddrs replaces the addresses of the NIC. Steering to an address that stays is not interrupted.
func (s *Steer) SetAddrs(addrs []netip.Addr) error {
	if len(addrs) > MaxAddrs {
		return fmt.Errorf("steer: %d addresses: the limit is %d", len(addrs), MaxAddrs)
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
		if err := s.objs.Addrs.Put(a.As16(), s.port); err != nil {
			return fmt.Errorf("steer: address %s: %w", a, err)
		}
	}
	return nil
}

// Verdicts returns the sums of the counters of all CPUs.
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

// Close releases the program and its maps. An attached program stays until its link is closed.
func (s *Steer) Close() error { return s.objs.Close() }
