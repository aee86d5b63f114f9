package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ChunkSize is the size of a buffer of a UMEM in bytes. The kernel accepts at most a page; a longer frame spans several
// chunks (multi-buffer).
const ChunkSize = 4096

// RxHeadroom is the free space that the kernel leaves before a received frame in its first chunk (XDP_PACKET_HEADROOM). The
// program may grow the frame into it.
const RxHeadroom = unix.XDP_PACKET_HEADROOM

// UMEM is the memory of frames, in chunks of ChunkSize. Several sockets may share it.
type UMEM struct {
	mem []byte
	fd  int // of the socket that it is registered with, -1 before
}

// NewUMEM allocates a UMEM.
func NewUMEM(chunks int) (*UMEM, error) {
	mem, err := unix.Mmap(-1, 0, chunks*ChunkSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("UMEM of %d bytes: %w", chunks*ChunkSize, err)
	}
	return &UMEM{mem: mem, fd: -1}, nil
}

// Chunk returns the chunk that contains addr, nil if addr is outside the UMEM.
func (u *UMEM) Chunk(addr uint64) []byte {
	from := addr &^ (ChunkSize - 1)
	if from >= uint64(len(u.mem)) {
		return nil
	}
	return u.mem[from : from+ChunkSize : from+ChunkSize]
}

// Bytes returns the bytes that a descriptor refers to. ok is false if they are not inside one chunk.
func (u *UMEM) Bytes(d Desc) (b []byte, ok bool) {
	c := u.Chunk(d.Addr)
	off := d.Addr & (ChunkSize - 1)
	if c == nil || off+uint64(d.Len) > ChunkSize {
		return nil, false
	}
	return c[off : off+uint64(d.Len)], true
}

// Close frees the memory. All sockets must be closed.
func (u *UMEM) Close() error {
	if u.mem == nil {
		return nil
	}
	mem := u.mem
	u.mem = nil
	return unix.Munmap(mem)
}
