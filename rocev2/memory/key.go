package memory

import "roced.io/roced/rocev2/object"

// Memory keys are 32 bits: a 24-bit index and an 8-bit tag. The rkey is the only protection of memory against a third
// party that can send packets to the queue pair, so keys must be unpredictable (IBTA vol.1 10.6.3). Indices come from a
// keyed generator over the whole 24-bit space, not from a counter. With m live regions a guess hits one with
// probability m/2^32; for a type 2 window, whose tag its owner chooses (10.6.7), with m/2^24. The probability that a
// dead key becomes valid again is no greater. The NIC also limits the number of guesses (rocev2/guess.go).
const (
	tagBits = 8
	tagMask = 1<<tagBits - 1
	// KeysLimit bounds the keys of a NIC: a quarter of the index space.
	KeysLimit = 1 << 22
)

// keyTable finds the region of a key.
type keyTable struct{ object.Index[Region] }

// lookup returns the region with this key, nil if there is none.
func (t *keyTable) lookup(key uint32) *Region {
	if r := t.Get(key >> tagBits); r != nil && r.key == key {
		return r
	}
	return nil
}

// add gives r a key.
func (t *keyTable) add(r *Region) error {
	if t.Used >= KeysLimit {
		return object.ErrNoMem
	}
	index, tag := t.Index.Add(r)
	r.key = index<<tagBits | uint32(tag)&tagMask
	return nil
}

// remove invalidates r's key.
func (t *keyTable) remove(r *Region) {
	t.Index.Remove(r.key >> tagBits)
	r.key = 0
}
