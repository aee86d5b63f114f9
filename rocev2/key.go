package rocev2

import "math/rand/v2"

// Memory keys are 32 bits: a 24-bit index and an 8-bit tag. The rkey of a peer is
// all that protects memory against a third party who can send packets to the
// queue pair, so keys must not be guessable (IBTA vol.1 10.6.3). Indices come from
// a keyed generator out of the whole 24-bit space, not from a counter: with m
// regions alive a guess hits one with probability m/2^32; for a type 2 window,
// whose tag its owner chooses (10.6.7), with m/2^24. A key that has died comes to
// life again with no greater probability.
const (
	tagBits   = 8
	indexMask = 1<<24 - 1
	keysLimit = 1 << 22 // a quarter of the index space
)

// keyTable finds the region of a key. It is a hash table with open addressing and
// linear probing, at most half full. Indices are random already; the secret factor
// keeps a client from collecting, among the many keys that it may ask for, those
// that collide (multiply-shift hashing, Dietzfelbinger et al. 1997).
type keyTable struct {
	slots  []keySlot // a power of two
	shift  uint      // 32 less its logarithm
	factor uint32    // odd
	used   int
	rng    *rand.ChaCha8
}

type keySlot struct {
	index uint32
	r     *region // nil: free
}

func (t *keyTable) init(rng *rand.ChaCha8) {
	t.rng = rng
	t.factor = uint32(rng.Uint64()) | 1
	t.resize(6)
}

func (t *keyTable) resize(bits uint) {
	t.slots, t.shift = make([]keySlot, 1<<bits), 32-bits
}

// home returns the place where the search for index begins.
func (t *keyTable) home(index uint32) uint32 { return index * t.factor >> t.shift }

// find returns the place of index, or the free place where it would be.
func (t *keyTable) find(index uint32) *keySlot {
	mask := uint32(len(t.slots) - 1)
	for i := t.home(index); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.r == nil || s.index == index {
			return s
		}
	}
}

// lookup returns the region whose key this is, nil if there is none.
func (t *keyTable) lookup(key uint32) *region {
	if r := t.find(key >> tagBits).r; r != nil && r.key == key {
		return r
	}
	return nil
}

// add gives r a key.
func (t *keyTable) add(r *region) error {
	if t.used >= keysLimit {
		return ErrNoMem
	}
	if 2*(t.used+1) > len(t.slots) {
		t.grow()
	}
	for {
		v := t.rng.Uint64()
		index := uint32(v>>tagBits) & indexMask
		if s := t.find(index); s.r == nil && index != 0 {
			*s = keySlot{index, r}
			r.key = index<<tagBits | uint32(v&(1<<tagBits-1))
			t.used++
			return nil
		}
	}
}

// remove ends the life of r's key. Entries behind it move up, so that probing
// needs no tombstones (Knuth vol.3 6.4, algorithm R).
func (t *keyTable) remove(r *region) {
	mask := uint32(len(t.slots) - 1)
	i := t.home(r.key >> tagBits)
	for t.slots[i].r != r {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.slots[j].r != nil; j = (j + 1) & mask {
		if (j-t.home(t.slots[j].index))&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = keySlot{}
	t.used--
	r.key = 0
}

func (t *keyTable) grow() {
	old := t.slots
	t.resize(33 - t.shift)
	for _, s := range old {
		if s.r != nil {
			*t.find(s.index) = s
		}
	}
}
