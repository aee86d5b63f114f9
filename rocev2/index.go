package rocev2

import "math/rand/v2"

// indexTable finds objects by numbers of 24 bits that nobody can guess. It is a hash
// table with open addressing and linear probing, at most half full. The numbers are
// random already; the secret factor keeps a client from collecting, among the many that
// it may ask for, those that collide (multiply-shift hashing, Dietzfelbinger et al. 1997).
type indexTable[T any] struct {
	slots  []indexSlot[T] // a power of two
	shift  uint           // 32 less its logarithm
	factor uint32         // odd
	used   int
	rng    *rand.ChaCha8
}

type indexSlot[T any] struct {
	index uint32
	v     *T // nil: free
}

const indexMask = 1<<24 - 1

func (t *indexTable[T]) init(rng *rand.ChaCha8) {
	t.rng = rng
	t.factor = uint32(rng.Uint64()) | 1
	t.resize(6)
}

func (t *indexTable[T]) resize(bits uint) {
	t.slots, t.shift = make([]indexSlot[T], 1<<bits), 32-bits
}

// home returns the place where the search for index begins.
func (t *indexTable[T]) home(index uint32) uint32 { return index * t.factor >> t.shift }

// find returns the place of index, or the free place where it would be.
func (t *indexTable[T]) find(index uint32) *indexSlot[T] {
	mask := uint32(len(t.slots) - 1)
	for i := t.home(index); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.v == nil || s.index == index {
			return s
		}
	}
}

// get returns what has this number, nil if nothing has.
func (t *indexTable[T]) get(index uint32) *T { return t.find(index).v }

// put gives index, which is free, to v.
func (t *indexTable[T]) put(index uint32, v *T) {
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	*t.find(index) = indexSlot[T]{index, v}
	t.used++
}

// add gives v a random number and returns it, with bits that are as random. Zero is
// nobody's.
func (t *indexTable[T]) add(v *T) (index uint32, rest uint64) {
	for {
		random := t.rng.Uint64()
		index = uint32(random) & indexMask
		if index != 0 && t.get(index) == nil {
			t.put(index, v)
			return index, random >> 24
		}
	}
}

// remove frees index, which is used. Entries behind it move up, so that probing needs
// no tombstones (Knuth vol.3 6.4, algorithm R).
func (t *indexTable[T]) remove(index uint32) {
	mask := uint32(len(t.slots) - 1)
	i := t.home(index)
	for t.slots[i].index != index {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.slots[j].v != nil; j = (j + 1) & mask {
		if (j-t.home(t.slots[j].index))&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = indexSlot[T]{}
	t.used--
}

func (t *indexTable[T]) grow() {
	old := t.slots
	t.resize(33 - t.shift)
	for _, s := range old {
		if s.v != nil {
			*t.find(s.index) = s
		}
	}
}
