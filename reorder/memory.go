package reorder

import (
	"fmt"
	"math/bits"

	"roced.io/roced/bth"
)

// blockBits is the size of a block of the memory controller, two bytes, and of a row
// of the bitmaps made of them (Eunomia 3.4).
const blockBits = 16

// stateBlocks is what the variables of table 1 take, 16 bytes, in front of the
// addresses of the rows (Eunomia, figure 7).
const stateBlocks = 8

// Memory is Eunomia's memory controller (section 4): the memory of a NIC from which
// all its Eunomia trackers take blocks of two bytes. Rows of bitmaps are searched
// from the head of the master array, metadata of connections, consecutive blocks,
// from its tail.
//
// A tracker whose packets complete messages must remember which; a NIC has that in
// host memory, with the completions that are not visible yet, so it is not counted.
type Memory struct {
	master []uint16   // master_array
	used   []uint64   // block_alloc_bitmap
	starts []uint16   // metadata_start_index, by connection
	ends   [][]uint64 // by connection: which of the tracked packets end messages
	rows   uint32     // cap on the size of a bitmap, blocks
	free   int        // blocks
}

// noStart marks an entry of metadata_start_index that is not in use.
const noStart = 1<<16 - 1

// Limits of NewMemory: addresses have two bytes, numbers of rows have one.
const (
	maxBlocks  = 1<<16 - 1
	maxCapBits = 255 * blockBits
)

// NewMemory returns a memory of as many blocks, for bitmaps of at most capBits
// packets, a multiple of 16. The paper has 1024 and 256.
func NewMemory(blocks, capBits int) (*Memory, error) {
	if blocks < 1 || blocks > maxBlocks || capBits < blockBits || capBits > maxCapBits || capBits%blockBits != 0 {
		return nil, fmt.Errorf("reorder: no memory of %d blocks for bitmaps of %d packets: at most %d blocks, multiples of %d up to %d packets",
			blocks, capBits, maxBlocks, blockBits, maxCapBits)
	}
	m := &Memory{
		master: make([]uint16, blocks),
		used:   make([]uint64, (blocks+63)/64),
		rows:   uint32(capBits / blockBits),
		free:   blocks,
	}
	m.starts = make([]uint16, blocks/m.metadataBlocks())
	m.ends = make([][]uint64, len(m.starts))
	ring := 1 << bits.Len(uint(max(capBits, 64)-1)) // a power of two, so that PSNs may wrap
	for i := range m.starts {
		m.starts[i] = noStart
		m.ends[i] = make([]uint64, ring/64)
	}
	return m, nil
}

// metadataBlocks is what a connection takes beside its rows: 24 blocks for 256 bits.
func (m *Memory) metadataBlocks() int { return stateBlocks + int(m.rows) }

// Free is the number of blocks that are not in use, Blocks that of all.
func (m *Memory) Free() int { return m.free }

// Blocks is the number of all blocks.
func (m *Memory) Blocks() int { return len(m.master) }

// room reports whether a connection with have rows can get up to want; one without
// a bitmap needs metadata too.
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

// open takes the metadata of a connection and returns its place in
// metadata_start_index.
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
			m.take(at + k)
			m.master[at+k] = 0
		}
		m.starts[i] = uint16(at)
		return int32(i), true
	}
	return 0, false
}

// findRun searches n free blocks in a row, from the tail on.
func (m *Memory) findRun(n int) (at int, ok bool) {
	run := 0
	for at := len(m.master) - 1; at >= 0; at-- {
		if run++; m.taken(at) {
			run = 0
		}
		if run == n {
			return at, true
		}
	}
	return 0, false
}

// findBlock searches a free block from the head on.
func (m *Memory) findBlock() (at int, ok bool) {
	for i, w := range m.used {
		if at := i*64 + bits.TrailingZeros64(^w); w != 1<<64-1 && at < len(m.master) {
			return at, true
		}
	}
	return 0, false
}

// meta is a block of the metadata of a connection.
func (m *Memory) meta(conn int32, k uint32) *uint16 { return &m.master[uint32(m.starts[conn])+k] }

// addRow gives a connection that has n rows one more. The address of row 0 is kept as
// it is, those of the others relative to it (3.4).
func (m *Memory) addRow(conn int32, n uint32) bool {
	at, ok := m.findBlock()
	if !ok {
		return false
	}
	m.take(at)
	m.master[at] = 0
	addr := uint16(at)
	if n > 0 {
		addr -= *m.meta(conn, stateBlocks)
	}
	*m.meta(conn, stateBlocks+n) = addr
	return true
}

// rowAt is the block of row n.
func (m *Memory) rowAt(conn int32, n uint32) uint16 {
	addr := *m.meta(conn, stateBlocks)
	if n > 0 {
		addr += *m.meta(conn, stateBlocks+n)
	}
	return addr
}

// row is the content of row n.
func (m *Memory) row(conn int32, n uint32) *uint16 { return &m.master[m.rowAt(conn, n)] }

// dropRow gives back row n, which is the last one.
func (m *Memory) dropRow(conn int32, n uint32) { m.give(int(m.rowAt(conn, n))) }

// close gives back what a connection with n rows has taken ("Reset", section 4). The
// data stays where it is until the blocks are used again.
func (m *Memory) close(conn int32, n uint32) {
	for i := n; i > 0; i-- {
		m.dropRow(conn, i-1)
	}
	for k := range m.metadataBlocks() {
		m.give(int(m.starts[conn]) + k)
	}
	m.starts[conn] = noStart
	clear(m.ends[conn])
}

func (m *Memory) taken(at int) bool { return m.used[at/64]>>(at%64)&1 != 0 }

func (m *Memory) take(at int) {
	m.used[at/64] |= 1 << (at % 64)
	m.free--
}

func (m *Memory) give(at int) {
	m.used[at/64] &^= 1 << (at % 64)
	m.free++
}

// setEnds remembers whether a tracked packet ends a message.
func (m *Memory) setEnds(conn int32, psn bth.PSN, ends bool) {
	if ends {
		ring := m.ends[conn]
		i := psn.Uint32() & uint32(64*len(ring)-1)
		ring[i/64] |= 1 << (i % 64)
	}
}

// takeEnds returns that and forgets it.
func (m *Memory) takeEnds(conn int32, psn bth.PSN) bool {
	ring := m.ends[conn]
	i := psn.Uint32() & uint32(64*len(ring)-1)
	ends := ring[i/64]>>(i%64)&1 != 0
	ring[i/64] &^= 1 << (i % 64)
	return ends
}
