package model

import (
	"fmt"
	"slices"
	"strings"
)

// cell is the origin of a byte of the device's memory: a name of the script and an offset in its bytes. The zero value stands for
// the initial content of the same place.
type cell uint32

// Names of the bytes of scripts: the initial content of regions, and the tester's payload.
const (
	initialBytes = iota + 1
	payloadBytes
	addressBytes // IP addresses of the tester and the device
	groupBytes   // the same, with those of a group
	resultBytes  // the first result of an atomic operation, others follow
)

const offsetBits = 18

// unknownCell is a byte that the model does not know.
const unknownCell = ^cell(0)

// nameOf returns the name of the bytes in scripts.
func nameOf(from int) string {
	switch from {
	case initialBytes:
		return "C"
	case payloadBytes:
		return "B"
	case addressBytes:
		return "A"
	case groupBytes:
		return "G"
	}
	return fmt.Sprintf("V%d", from-resultBytes)
}

// origin returns n bytes of a name.
func origin(from, at, n int) []cell {
	list := make([]cell, n)
	for i := range list {
		list[i] = cell(from<<offsetBits + at + i)
	}
	return list
}

// unknown returns n bytes that the model does not know.
func unknown(n int) []cell {
	list := make([]cell, n)
	for i := range list {
		list[i] = unknownCell
	}
	return list
}

// memory is the model's copy of a region of the device.
type memory struct {
	name    string
	cells   []cell
	free    int // where the next reserved part begins
	touched [][2]int
}

func newMemory(name string, size int) *memory { return &memory{name: name, cells: make([]cell, size)} }

// read returns a copy of bytes.
func (m *memory) read(from, to int) []cell {
	list := append([]cell(nil), m.cells[from:to]...)
	for i, c := range list {
		if c == 0 {
			list[i] = cell(initialBytes<<offsetBits + from + i)
		}
	}
	return list
}

// write replaces bytes.
func (m *memory) write(at int, data []cell) {
	if len(data) > 0 {
		copy(m.cells[at:], data)
		m.touched = append(m.touched, [2]int{at, at + len(data)})
	}
}

// changed returns the ranges that have been written, with the bytes around them.
func (m *memory) changed() (list [][2]int) {
	const margin = 16
	slices.SortFunc(m.touched, func(a, b [2]int) int { return a[0] - b[0] })
	for _, t := range m.touched {
		from, to := max(t[0]-margin, 0), min(t[1]+margin, len(m.cells))
		if n := len(list); n > 0 && from <= list[n-1][1] {
			list[n-1][1] = max(list[n-1][1], to)
		} else {
			list = append(list, [2]int{from, to})
		}
	}
	return list
}

// reserve returns the offset of n bytes that no recent call has returned.
func (m *memory) reserve(n int) int {
	if m.free+n > len(m.cells) {
		m.free = 0
	}
	m.free += n
	return m.free - n
}

// expression returns bytes in the notation of scripts.
func expression(cells []cell) string {
	if len(cells) == 0 {
		return "count(0)"
	}
	var b strings.Builder
	for i := 0; i < len(cells); {
		n := 1
		for i+n < len(cells) && cells[i+n] == cells[i]+cell(n) {
			n++
		}
		if i > 0 {
			b.WriteByte('+')
		}
		at := int(cells[i] & (1<<offsetBits - 1))
		fmt.Fprintf(&b, "%s[%d:%d]", nameOf(int(cells[i]>>offsetBits)), at, at+n)
		i += n
	}
	return b.String()
}

// piece is a part of a region: an element of a scatter or gather list.
type piece struct {
	of       *memory
	from, to int
}

func (p piece) String() string { return fmt.Sprintf("%s[%d:%d]", p.of.name, p.from, p.to) }

// pieces is a scatter or gather list.
type pieces []piece

func (l pieces) String() string {
	text := ""
	for _, p := range l {
		text += " " + p.String()
	}
	return text
}

// scatter writes bytes at an offset of the list.
func (l pieces) scatter(at int, data []cell) {
	for _, p := range l {
		size := p.to - p.from
		if at < size && len(data) > 0 {
			n := min(size-at, len(data))
			p.of.write(p.from+at, data[:n])
			data, at = data[n:], at+n
		}
		at = max(at-size, 0)
	}
}

// gather returns the bytes of the list.
func (l pieces) gather() (data []cell) {
	for _, p := range l {
		data = append(data, p.of.read(p.from, p.to)...)
	}
	return data
}
