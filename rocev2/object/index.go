package object

import "math/rand/v2"

// Index finds objects by unpredictable numbers of 24 bits. It is a hash table with open addressing and linear
// probing, at most half full. The numbers are random already. The secret factor prevents a client from collecting
// colliding numbers among the many that it may request (multiply-shift hashing, Dietzfelbinger et al. 1997).
type Index[T any] struct {
	Used int // number of objects

	slots  []indexSlot[T] // a power of two
	shift  uint           // 32 less its logarithm
	factor uint32         // odd
	rng    *rand.ChaCha8
}

type indexSlot[T any] struct {
	index uint32
	v     *T // nil: free
}

const indexMask = 1<<24 - 1

// Init prepares t, which draws numbers from rng.
func (t *Index[T]) Init(rng *rand.ChaCha8) {
	t.rng = rng
	t.factor = uint32(rng.Uint64()) | 1
	t.resize(6)
}

func (t *Index[T]) resize(bits uint) {
	t.slots, t.shift = make([]indexSlot[T], 1<<bits), 32-bits
}

// home returns the place where the search for index begins.
func (t *Index[T]) home(index uint32) uint32 { return index * t.factor >> t.shift }

// find returns the place of index, or the free place for it.
func (t *Index[T]) find(index uint32) *indexSlot[T] {
	mask := uint32(len(t.slots) - 1)
	for i := t.home(index); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.v == nil || s.index == index {
			return s
		}
	}
}

// Get returns the object of this number, nil if there is none.
func (t *Index[T]) Get(index uint32) *T { return t.find(index).v }

// Put gives index, which is free, to v.
func (t *Index[T]) Put(index uint32, v *T) {
	if 2*(t.Used+1) > len(t.slots) {
		t.grow()
	}
	*t.find(index) = indexSlot[T]{index, v}
	t.Used++
}

// Replace gives index, which is in use, to v.
func (t *Index[T]) Replace(index uint32, v *T) { t.find(index).v = v }

// Add gives v a random number other than zero and returns it with further random bits.
func (t *Index[T]) Add(v *T) (index uint32, rest uint64) {
	for {
		random := t.rng.Uint64()
		index = uint32(random) & indexMask
		if index != 0 && t.Get(index) == nil {
			t.Put(index, v)
			return index, random >> 24
		}
	}
}

// Remove frees index, which is in use. Later entries move up, so that probing needs no tombstones (Knuth vol.3 6.4,
// algorithm R).
func (t *Index[T]) Remove(index uint32) {
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
	t.Used--
}

func (t *Index[T]) grow() {
	old := t.slots
	t.resize(33 - t.shift)
	for _, s := range old {
		if s.v != nil {
			*t.find(s.index) = s
		}
	}
}
