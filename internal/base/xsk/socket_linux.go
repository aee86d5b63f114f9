// Package xsk has AF_XDP sockets, which exchange frames with a queue of a network interface through rings in shared
// memory (linux/if_xdp.h, and Documentation/networking/af_xdp.rst of the kernel). One goroutine uses a socket and its
// UMEM. No call blocks.
package xsk

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config describes a socket.
type Config struct {
	Ifindex int // of the interface, in the calling thread's network namespace
	Queue   int // of the interface
	// Flags are XDP_COPY, XDP_ZEROCOPY, XDP_USE_SG and XDP_USE_NEED_WAKEUP. The first socket of a UMEM sets the flags
	// of all.
	Flags uint16
	// Sizes of the rings in entries, powers of two; 0 means no ring. The fill and the completion ring are mandatory.
	Fill, Completion, Rx, Tx uint32
}

// Socket is an AF_XDP socket, bound to a queue.
type Socket struct {
	FD         int
	Fill       Producer[uint64] // chunks to receive into
	Completion Consumer[uint64] // chunks that have been sent
	Rx         Consumer[Desc]
	Tx         Producer[Desc]
}

// Open opens a socket and binds it. The first socket of a UMEM registers it; later sockets share it (XDP_SHARED_UMEM).
// Open needs CAP_NET_RAW, and CAP_IPC_LOCK unless RLIMIT_MEMLOCK is at least the size of the UMEM.
func Open(u *UMEM, c Config) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("AF_XDP socket: %w", err)
	}
	s := &Socket{FD: fd}
	if err := s.setUp(u, c); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Socket) setUp(u *UMEM, c Config) error {
	first := u.fd < 0
	if first {
		if err := s.register(u); err != nil {
			return err
		}
	}
	if err := s.mapRings(c); err != nil {
		return err
	}
	sa := &unix.SockaddrXDP{Flags: c.Flags, Ifindex: uint32(c.Ifindex), QueueID: uint32(c.Queue)}
	if !first {
		sa.Flags, sa.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(u.fd)
	}
	if err := unix.Bind(s.FD, sa); err != nil {
		return fmt.Errorf("bind to queue %d: %w", c.Queue, bindError(err))
	}
	if first {
		u.fd = s.FD
	}
	return nil
}

// bindError explains errors of bind.
func bindError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("another AF_XDP socket uses the queue: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the driver does not support the mode: %w", err)
	}
	return err
}

func (s *Socket) register(u *UMEM) error {
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&u.mem[0]))), Len: uint64(len(u.mem)), Size: ChunkSize}
	err := setsockopt(s.FD, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("UMEM of %d bytes: needs CAP_IPC_LOCK or a higher RLIMIT_MEMLOCK: %w", len(u.mem), err)
	case err != nil:
		return fmt.Errorf("UMEM of %d bytes: %w", len(u.mem), err)
	}
	return nil
}

// mapRings sets the sizes of the rings and maps them.
func (s *Socket) mapRings(c Config) error {
	for _, r := range []struct {
		opt  int
		size uint32
	}{
		{unix.XDP_UMEM_FILL_RING, c.Fill}, {unix.XDP_UMEM_COMPLETION_RING, c.Completion},
		{unix.XDP_RX_RING, c.Rx}, {unix.XDP_TX_RING, c.Tx},
	} {
		if r.size == 0 {
			continue
		}
		if err := unix.SetsockoptInt(s.FD, unix.SOL_XDP, r.opt, int(r.size)); err != nil {
			return fmt.Errorf("ring of %d entries: %w", r.size, err)
		}
	}
	var off unix.XDPMmapOffsets
	if err := getsockopt(s.FD, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off), unsafe.Sizeof(off)); err != nil {
		return fmt.Errorf("offsets of the rings: %w", err)
	}
	err := errors.Join(
		s.Fill.mapAt(s.FD, unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, c.Fill),
		s.Completion.mapAt(s.FD, unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, c.Completion),
		s.Rx.mapAt(s.FD, unix.XDP_PGOFF_RX_RING, off.Rx, c.Rx),
		s.Tx.mapAt(s.FD, unix.XDP_PGOFF_TX_RING, off.Tx, c.Tx))
	if err != nil {
		return fmt.Errorf("map the rings: %w", err)
	}
	return nil
}

// ZeroCopy reports whether the driver accesses the UMEM directly.
func (s *Socket) ZeroCopy() bool {
	var flags uint32
	err := getsockopt(s.FD, unix.XDP_OPTIONS, unsafe.Pointer(&flags), unsafe.Sizeof(flags))
	return err == nil && flags&unix.XDP_OPTIONS_ZEROCOPY != 0
}

// SetTxBudget sets the maximum number of frames that KickTx sends in copy mode (XDP_MAX_TX_SKB_BUDGET, Linux 6.18). Older
// kernels return an error; their maximum is 32.
func (s *Socket) SetTxBudget(n int) error {
	return unix.SetsockoptInt(s.FD, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, n)
}

// Statistics returns the kernel's counters of the socket (XDP_STATISTICS).
func (s *Socket) Statistics() (unix.XDPStatistics, error) {
	var st unix.XDPStatistics
	err := getsockopt(s.FD, unix.XDP_STATISTICS, unsafe.Pointer(&st), unsafe.Sizeof(st))
	return st, err
}

// KickTx makes the kernel send the frames in the tx ring. EAGAIN means that some of them remain.
func (s *Socket) KickTx() unix.Errno { return s.kick(unix.SYS_SENDTO) }

// KickRx makes the kernel read the fill ring.
func (s *Socket) KickRx() unix.Errno { return s.kick(unix.SYS_RECVFROM) }

// kick does not notify the Go scheduler: the call does not block, and the thread belongs to the NIC.
func (s *Socket) kick(trap uintptr) unix.Errno {
	_, _, e := unix.RawSyscall6(trap, uintptr(s.FD), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// Close closes the socket and unmaps its rings.
func (s *Socket) Close() error {
	return errors.Join(unix.Close(s.FD), s.Fill.unmap(), s.Completion.unmap(), s.Rx.unmap(), s.Tx.unmap())
}

func setsockopt(fd, opt int, p unsafe.Pointer, n uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt), uintptr(p), n, 0)
	if e != 0 {
		return e
	}
	return nil
}

func getsockopt(fd, opt int, p unsafe.Pointer, n uintptr) error {
	size := uint32(n)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt), uintptr(p),
		uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return e
	}
	return nil
}
