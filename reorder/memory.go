package reorder

import (
	"fmt"
	"math/bits"
)

// blockBits is the size of a block of the memory controller, two bytes, and of a bitmap row (Eunomia 3.4).
const blockBits = 16

// stateBlocks is the size of the variables of table 1, 16 bytes, which precede the addresses of the rows (Eunomia,
// figure 7).
const stateBlocks = 8

// Memory is Eunomia's memory controller (section 4): the memory of a NIC from which all its Eunomia trackers take
// blocks of two bytes. Rows of bitmaps are allocated from the head of the master array. The metadata of a connection
// takes consecutive blocks, which are allocated from its tail.
type Memory struct {
	master []uint16 // master_array
	used   []uint64 // block_alloc_bitmap
	starts []uint16 // metadata_start_index, by connection
	rows   uint32   // cap on the size of a bitmap, in blocks
	free   int      // blocks
}

// noStart marks an unused entry of metadata_start_index.
const noStart = 1<<16 - 1

// Limits of NewMemory: addresses have two bytes, numbers of rows have one.
const (
	maxBlocks  = 1<<16 - 1
	maxCapBits = 255 * blockBits
)

// NewMemory returns a memory of that many blocks, for bitmaps of at most capBits packets, a multiple of 16. The paper
// has 1024 blocks and 256 packets.
func NewMemory(blocks, capBits int) (*Memory, error) {
	if blocks < 1 || blocks > maxBlocks || capBits < blockBits || capBits > maxCapBits || capBits%blockBits != 0 {
		return nil, fmt.Errorf("reorder: memory of %d blocks for bitmaps of %d packets: allowed are 1 to %d blocks and multiples of %d up to %d packets",
			blocks, capBits, maxBlocks, blockBits, maxCapBits)
	}
	m := &Memory{
		master: make([]uint16, blocks),
		used:   make([]uint64, (blocks+63)/64),
		rows:   uint32(capBits / blockBits),
		free:   blocks,
	}
	m.starts = make([]uint16, blocks/m.metadataBlocks())
	for i := range m.starts {
		m.starts[i] = noStart
	}
	return m, nil
}

// metadataBlocks is the size of a connection's metadata: 24 blocks for 256 bits.
func (m *Memory) metadataBlocks() int { return stateBlocks + int(m.rows) }

// Free returns the number of unused blocks.
func (m *Memory) Free() int { return m.free }

// Blocks returns the number of all blocks.
func (m *Memory) Blocks() int { return len(m.master) }

// room reports whether a connection with have rows can grow to want rows. A connection without a bitmap also needs
// metadata.
func (m *Memory) room(conn int32, have, want uint32) bool {
	free := m.free
	if conn == none {
		if _, ok := m.findRun(m.metadataBlocks()); !ok {
			return false
		}
		free -= m.metadataBlocks()
	}
	return want <= m.rows && int(want)-int(have) <= free
}

// open allocates the metadata of a connection and returns its index in metadata_start_index.
func (m *Memory) open() (conn int32, ok bool) {
	n := m.metadataBlocks()
	for i, start := range m.starts {
		if start != noStart {
			continue
		}
		at, ok := m.findRun(n)
		if !ok {
			return 0, false
		}
		for k := range n {
			m.allocate(at + k)
			m.master[at+k] = 0
		}
		m.starts[i] = uint16(at)
		return int32(i), true
	}
	return 0, false
}

// findRun searches for n consecutive free blocks, from the tail.
func (m *Memory) findRun(n int) (at int, ok bool) {
	run := 0
	for at := len(m.master) - 1; at >= 0; at-- {
		if run++; m.isAllocated(at) {
			run = 0
		}
		if run == n {
			return at, true
		}
	}
	return 0, false
}

// findBlock searches for a free block, from the head.
func (m *Memory) findBlock() (at int, ok bool) {
	for i, w := range m.used {
		if at := i*64 + bits.TrailingZeros64(^w); w != 1<<64-1 && at < len(m.master) {
			return at, true
		}
	}
	return 0, false
}

// meta returns block k of the metadata of a connection.
func (m *Memory) meta(conn int32, k uint32) *uint16 { return &m.master[uint32(m.starts[conn])+k] }

// addRow adds a row to a connection that has n rows. The metadata holds the address of row 0, and the addresses of the
// other rows relative to it (3.4).
func (m *Memory) addRow(conn int32, n uint32) bool {
	at, ok := m.findBlock()
	if !ok {
		return false
	}
	m.allocate(at)
	m.master[at] = 0
	addr := uint16(at)
	if n > 0 {
		addr -= *m.meta(conn, stateBlocks)
	}
	*m.meta(conn, stateBlocks+n) = addr
	return true
}

// rowAt returns the block number of row n.
func (m *Memory) rowAt(conn int32, n uint32) uint16 {
	addr := *m.meta(conn, stateBlocks)
	if n > 0 {
		addr += *m.meta(conn, stateBlocks+n)
	}
	return addr
}

// row returns the content of row n.
func (m *Memory) row(conn int32, n uint32) *uint16 { return &m.master[m.rowAt(conn, n)] }

// close frees the blocks of a connection with n rows ("Reset", section 4). Their content stays until they are
// allocated again.
func (m *Memory) close(conn int32, n uint32) {
	for i := n; i > 0; i-- {
		m.release(int(m.rowAt(conn, i-1)))
	}
	for k := range m.metadataBlocks() {
		m.release(int(m.starts[conn]) + k)
	}
	m.starts[conn] = noStart
}

func (m *Memory) isAllocated(at int) bool { return m.used[at/64]>>(at%64)&1 != 0 }

func (m *Memory) allocate(at int) {
	m.used[at/64] |= 1 << (at % 64)
	m.free--
}

func (m *Memory) release(at int) {
	m.used[at/64] &^= 1 << (at % 64)
	m.free++
}
