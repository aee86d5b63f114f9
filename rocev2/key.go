package rocev2

// Memory keys are 32 bits: a 24-bit index and an 8-bit tag. The rkey of a peer is
// all that protects memory against a third party who can send packets to the
// queue pair, so keys must not be guessable (IBTA vol.1 10.6.3). Indices come from
// a keyed generator out of the whole 24-bit space, not from a counter: with m
// regions alive a guess hits one with probability m/2^32; for a type 2 window,
// whose tag its owner chooses (10.6.7), with m/2^24. A key that has died comes to
// life again with no greater probability. How often one may guess is bounded too
// (guess.go).
const (
	tagBits   = 8
	keysLimit = 1 << 22 // a quarter of the index space
)

// keyTable finds the region of a key.
type keyTable struct{ indexTable[region] }

// lookup returns the region whose key this is, nil if there is none.
func (t *keyTable) lookup(key uint32) *region {
	if r := t.get(key >> tagBits); r != nil && r.key == key {
		return r
	}
	return nil
}

// add gives r a key.
func (t *keyTable) add(r *region) error {
	if t.used >= keysLimit {
		return ErrNoMem
	}
	index, tag := t.indexTable.add(r)
	r.key = index<<tagBits | uint32(tag)&(1<<tagBits-1)
	return nil
}

// remove ends the life of r's key.
func (t *keyTable) remove(r *region) {
	t.indexTable.remove(r.key >> tagBits)
	r.key = 0
}
