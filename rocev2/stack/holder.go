package stack

// Holder identifies the user of a path, whose share of the neighbour table is limited. Paths of Unlimited have no limit.
type Holder uint64

// Unlimited is the holder of paths without limit: those of the NIC itself and of privileged users.
const Unlimited Holder = 0

const (
	holderShare   = 4 // one holder has at most a quarter of the table
	holderReserve = 8 // an eighth of the table is for paths of Unlimited
)

// mayHold reports whether h may use the station, whose entry is nb or nil.
func (t *neighTable) mayHold(nb *Neighbour, h Holder) bool {
	switch {
	case h == Unlimited, nb != nil && nb.holders[h] > 0:
		return true
	case t.holding[h] >= max(t.limit/holderShare, 1):
		return false
	}
	return nb != nil && nb.Refs > 0 || t.used < t.limit-t.limit/holderReserve
}

// hold counts a further use of the neighbour nb by the holder h.
func (t *neighTable) hold(nb *Neighbour, h Holder) {
	if nb.Refs++; nb.Refs == 1 {
		t.used++
	}
	if h == Unlimited {
		return
	}
	if nb.holders == nil {
		nb.holders = map[Holder]int{}
	}
	if nb.holders[h]++; nb.holders[h] == 1 {
		t.holding[h]++
	}
}

// drop removes one reference of h to nb. Call it once for each hold.
func (t *neighTable) drop(nb *Neighbour, h Holder) {
	if nb.Refs--; nb.Refs == 0 {
		t.used--
	}
	if h == Unlimited {
		return
	}
	if nb.holders[h]--; nb.holders[h] > 0 {
		return
	}
	delete(nb.holders, h)
	if t.holding[h]--; t.holding[h] == 0 {
		delete(t.holding, h)
	}
}
