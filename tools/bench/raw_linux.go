package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
	"roced.io/roced/tap"
)

// Shape of the raw test. It equals a 64 KiB WRITE at path MTU 4096: 15 segments of BTH, 4096 bytes and ICRC in a
// super-frame.
const (
	rawPayload  = 4096
	rawSegments = 15
)

// raw moves super-frames without a protocol from a TAP in one namespace to a TAP in the other: the capacity of the
// link. It returns payload bits per second.
func raw(bed *netlab.Bed, d time.Duration) (gbps float64, err error) {
	var ports [2]*tap.Port
	for i := range ports {
		ports[i], err = tap.Open(tap.Config{
			Name: "raw", Netns: bed.NS[i].Path(), Bridge: netlab.Bridge, MTU: netlab.MTU, Offload: true,
		})
		if err != nil {
			return 0, err
		}
		defer ports[i].Close()
	}
	// One frame teaches the bridges the receiver's address. They forward as soon as they have seen it, or after a
	// second.
	hello := rawFrame([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, rawMAC, 1, rawPayload, 1)
	for range 15 {
		if err := ports[1].Send(0, &rocev2.Frame{Bufs: [][]byte{hello}, Len: len(hello)}); err != nil {
			return 0, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	bytes, seconds, err := counted(
		func(got *atomic.Uint64, stop *atomic.Bool) { drain(ports[1], got, stop) },
		func() error { return flood(ports[0], time.Now().Add(d)) })
	return float64(bytes) * 8 / seconds / 1e9, err
}

// counted runs send while another thread counts arriving packets until stop is set. It returns the count when send
// ended, and the duration in seconds.
func counted(count func(got *atomic.Uint64, stop *atomic.Bool), send func() error) (n uint64, seconds float64, err error) {
	var got atomic.Uint64
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		count(&got, &stop)
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := time.Now()
	err = send()
	seconds, n = time.Since(start).Seconds(), got.Load()
	stop.Store(true)
	<-done
	return n, seconds, err
}

// drain counts the payload of arriving frames.
func drain(p *tap.Port, got *atomic.Uint64, stop *atomic.Bool) {
	buf := make([]byte, 1<<17)
	wait := [1]unix.PollFd{{Events: unix.POLLIN}}
	for !stop.Load() {
		n, _, err := p.Recv(0, buf)
		if err != nil {
			wait[0].Fd = int32(p.FD())
			// The loop checks stop and the port after any result of Poll.
			_, _ = unix.Poll(wait[:], 10)
			continue
		}
		if n > 42 && binary.BigEndian.Uint16(buf[36:]) == 4791 {
			got.Add(uint64(n-42) / (rawPayload + rawOverhead) * rawPayload)
		}
	}
}

// flood sends the same super-frame until the end time.
func flood(p *tap.Port, end time.Time) error {
	frame := rawFrame(rawMAC, [6]byte{2, 0, 0, 0, 0, 1}, 0, rawPayload, rawSegments)
	f := &rocev2.Frame{Bufs: [][]byte{frame}, Len: len(frame), HdrLen: 42, SegSize: rawPayload + rawOverhead}
	for time.Now().Before(end) {
		for range 16 {
			if err := p.Send(0, f); err != nil && !errors.Is(err, port.ErrAgain) {
				return fmt.Errorf("raw TAP: %w", err)
			}
		}
	}
	return nil
}

// rawMAC is the address of the receiver.
var rawMAC = [6]byte{2, 0, 0, 0, 0, 2}

// rawAddr returns the address of host i in these frames.
func rawAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}) }

// rawOverhead is the size of BTH and ICRC, in bytes per segment.
const rawOverhead = 12 + 4

// rawFrame builds a frame or super-frame from host i to the other host.
func rawFrame(dst, src [6]byte, i, payload, segments int) []byte {
	b := make([]byte, 42+segments*(payload+rawOverhead))
	copy(b, dst[:])
	copy(b[6:], src[:])
	b[12] = 8
	ip, udp := b[14:34], b[34:42]
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-14))
	copy(ip[12:], rawAddr(i).AsSlice())
	copy(ip[16:], rawAddr(1-i).AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip, 0))
	binary.BigEndian.PutUint16(udp, 50000)
	binary.BigEndian.PutUint16(udp[2:], 4791)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-34))
	if segments > 1 {
		binary.BigEndian.PutUint16(udp[6:], sum(ip[12:20], uint32(17+len(b)-34)))
	}
	return b
}

// sum is the Internet checksum before complementing (RFC 1071).
func sum(b []byte, s uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
