// Package watch observes the RoCEv2 packets of a network interface. A BPF program, which is the filter of a packet
// socket, copies their headers into a ring buffer. Like tcpdump it sees both directions. It reports each datagram of a
// super-frame separately.
//
// No promise: this package may change between releases.
package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
)

//go:generate go tool bpf2go -target bpfel -cc clang -cflags "-O2 -g -Wall -Wextra -Werror -I../include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" watch watch.c

// RingSize is the default size of the ring buffer in bytes. It has room for about 80,000 packets.
const RingSize = 16 << 20

// Socket observes one interface.
type Socket struct {
	objs   watchObjects
	fd     int
	name   string
	reader *ringbuf.Reader
	record ringbuf.Record
	ip     []byte
	epoch  int64 // nanoseconds from the Unix epoch to the origin of CLOCK_MONOTONIC
}

// Open starts to observe an interface of the calling thread's network namespace. ring is the size of the ring buffer in
// bytes, a power of two and at least the page size. Open needs CAP_NET_RAW for the socket and CAP_BPF for the program;
// the other functions need neither.
func Open(name string, ring uint32) (_ *Socket, err error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, errors.Unwrap(err))
	}
	s := &Socket{name: name, fd: -1, ip: make([]byte, 0, 512)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, needs("CAP_NET_RAW", "packet socket", err)
	}
	if err := s.load(ring); err != nil {
		return nil, needs("CAP_BPF", "BPF program", err)
	}
	return s, s.attach(link)
}

// needs adds the name of the missing capability to EPERM.
func needs(capability, what string, err error) error {
	if errors.Is(err, unix.EPERM) { // EACCES comes from the verifier
		return fmt.Errorf("%s: needs %s: %w", what, capability, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// load loads the program and its maps.
func (s *Socket) load(ring uint32) error {
	spec, err := loadWatch()
	if err != nil {
		return err
	}
	spec.Maps["events"].MaxEntries = ring
	if err := spec.Variables["wakeup"].Set(uint64(ring) / 8); err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return err
	}
	s.reader, err = ringbuf.NewReader(s.objs.Events)
	return err
}

// attach attaches the program to the packets of link.
func (s *Socket) attach(link *net.Interface) error {
	if link.Flags&net.FlagLoopback != 0 { // each packet also comes in
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("ignore outgoing packets: %w", err)
		}
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, s.objs.Watch.FD()); err != nil {
		return needs("CAP_BPF", "attach the BPF program", err)
	}
	to := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}), Ifindex: link.Index}
	if err := unix.Bind(s.fd, to); err != nil {
		return fmt.Errorf("interface %s: %w", s.name, err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	s.epoch = time.Now().UnixNano() - now.Nano()
	return nil
}

// Read passes the packets to f, starting at their IP headers and truncated, with the time in nanoseconds since the Unix
// epoch. It returns after deadline when no packet is left. A packet is valid only during the call of f.
func (s *Socket) Read(deadline time.Time, f func(now mono.Time, ip []byte)) error {
	s.reader.SetDeadline(deadline)
	for {
		err := s.reader.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ring buffer: %w", err)
		}
		if at, ip, ok := s.packet(s.record.RawSample); ok {
			f(mono.Time(s.epoch+at), ip)
		}
	}
}

// Lost returns the number of packets for which the ring buffer had no room.
func (s *Socket) Lost() (n uint64, err error) { return n, s.objs.Lost.Get(&n) }

// Others returns how many other packets have passed, by the reason for which they are not reported.
func (s *Socket) Others() (map[string]uint64, error) {
	var counts [len(reasons)]uint64
	if err := s.objs.Others.Get(&counts); err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	m := map[string]uint64{}
	for i, n := range counts {
		if n > 0 {
			m[reasons[i]] = n
		}
	}
	return m, nil
}

// ErrGone means that the interface no longer exists.
var ErrGone = errors.New("is gone")

// Check returns ErrGone if the interface no longer exists. An interface that is down still exists.
func (s *Socket) Check() error {
	r, err := unix.NewIfreq(s.name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s.fd, unix.SIOCGIFINDEX, r); errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("interface %s %w", s.name, ErrGone)
	} else if err != nil {
		return fmt.Errorf("interface %s: %w", s.name, err)
	}
	return nil
}

// Close removes the program and the socket from the kernel.
func (s *Socket) Close() error {
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.fd >= 0 {
		errs = append(errs, unix.Close(s.fd))
	}
	return errors.Join(append(errs, s.objs.Close())...)
}
