package xsk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ChunkSize is the size in bytes of a buffer of a UMEM. The kernel takes a page
// at most; longer frames span several (multi-buffer).
const ChunkSize = 4096

// RxHeadroom is what the kernel leaves free at the front of a chunk that it
// receives into (XDP_PACKET_HEADROOM): the program may grow the frame into it.
const RxHeadroom = unix.XDP_PACKET_HEADROOM

// UMEM is the memory that frames are in, in chunks of ChunkSize. Sockets share it.
type UMEM struct {
	mem []byte
	fd  int // of the socket that it is registered with, -1 before
}

// NewUMEM allocates memory of so many chunks.
func NewUMEM(chunks int) (*UMEM, error) {
	mem, err := unix.Mmap(-1, 0, chunks*ChunkSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("UMEM of %d bytes: %w", chunks*ChunkSize, err)
	}
	return &UMEM{mem: mem, fd: -1}, nil
}

// Chunks is how many there are.
func (u *UMEM) Chunks() int { return len(u.mem) / ChunkSize }

// Chunk is the memory of the chunk that addr, any address inside it, belongs to;
// nil if there is none.
func (u *UMEM) Chunk(addr uint64) []byte {
	from := addr &^ (ChunkSize - 1)
	if from >= uint64(len(u.mem)) {
		return nil
	}
	return u.mem[from : from+ChunkSize : from+ChunkSize]
}

// Bytes is what a descriptor tells of; ok is false if that is not inside one
// chunk.
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
