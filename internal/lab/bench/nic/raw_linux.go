package nic

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/netlab"
)

// Shape of the raw test: segments of BTH, 4096 bytes and ICRC, as many as a super-frame has room for.
const (
	rawPayload  = 4096
	rawSegments = 15
)

// writeSegments are the super-frames of a 64 KiB WRITE at path MTU 4096. Its first packet has a RETH. All segments of a
// super-frame but the last have equal lengths, so only one packet can follow the first.
var writeSegments = []int{2, 14}

// raw moves super-frames without a protocol from a TAP in one namespace to a TAP in the other: the capacity of the
// link. The super-frames have the given numbers of segments in turn. It returns payload bits per second.
func raw(bed *netlab.Bed, d time.Duration, segments ...int) (gbps float64, err error) {
	p, err := openPair(bed, &kinds[0])
	if err != nil {
		return 0, err
	}
	defer p.close()
	f, err := p.flow(rawPayload, d, segments...)
	return f.gbps(rawPayload), err
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
	inet.PutChecksum(ip[10:], 0, ip)
	binary.BigEndian.PutUint16(udp, 50000)
	binary.BigEndian.PutUint16(udp[2:], 4791)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-34))
	if segments > 1 {
		binary.BigEndian.PutUint16(udp[6:], ^inet.Checksum(uint64(17+len(b)-34), ip[12:20])) // of the pseudo-header
	}
	return b
}
