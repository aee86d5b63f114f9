package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/netlab"
)

// rawUDP moves datagrams of 4096 bytes of payload from one namespace to the other on two plain sockets. A super-frame
// has the given numbers of datagrams in turn (UDP_SEGMENT, UDP_GRO). The result is the kernel's capacity for a port on
// UDP sockets, in payload bits per second.
func rawUDP(d time.Duration, segments ...int) (gbps float64, err error) {
	bed, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		return 0, err
	}
	defer bed.Close()
	var fd [2]int
	for i, n := range bed.NS {
		err := n.Do(func() error {
			fd[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return err
		})
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd[i])
	}
	const buffer = 32 << 20
	to := &unix.SockaddrInet4{Port: bth.UDPPort, Addr: rawAddr(1).As4()}
	err = errors.Join(unix.SetsockoptInt(fd[0], unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO),
		unix.SetsockoptInt(fd[1], unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer),
		unix.SetsockoptInt(fd[1], unix.IPPROTO_UDP, unix.UDP_GRO, 1),
		unix.SetsockoptTimeval(fd[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}),
		unix.Bind(fd[1], to))
	if err != nil {
		return 0, err
	}
	bytes, seconds, err := counted(
		func(got *atomic.Uint64, stop *atomic.Bool) { drainUDP(fd[1], got, stop) },
		func() error { return floodUDP(fd[0], to, time.Now().Add(d), segments) })
	return float64(bytes) * 8 / seconds / 1e9, err
}

// drainUDP counts the payload of arriving datagrams.
func drainUDP(fd int, got *atomic.Uint64, stop *atomic.Bool) {
	buf := make([]byte, 1<<17)
	for !stop.Load() {
		n, err := unix.Read(fd, buf)
		if err == nil { // an error means that the time is over
			got.Add(uint64(n / (rawPayload + rawOverhead) * rawPayload))
		}
	}
}

// floodUDP sends until the end time.
func floodUDP(fd int, to unix.Sockaddr, end time.Time, segments []int) error {
	const size = rawPayload + rawOverhead
	frame := make([]byte, rawSegments*size)
	segment := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&segment[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(segment[unix.CmsgLen(0):], size)
	passing := []error{unix.EAGAIN, unix.ENOBUFS, unix.ENETUNREACH, unix.ECONNREFUSED, unix.EINTR} // transient until the carrier is up
	for time.Now().Before(end) {
		for i := range 16 * len(segments) {
			err := unix.Sendmsg(fd, frame[:segments[i%len(segments)]*size], segment, to, 0)
			if err != nil && !slices.Contains(passing, err) {
				return fmt.Errorf("UDP_SEGMENT: %w", err)
			}
		}
	}
	return nil
}
