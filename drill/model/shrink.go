package model

import "slices"

// shrink returns a smaller sequence that still fails: it removes steps, then choices, then makes choices smaller. It asks at most
// budget times.
func shrink(s Sequence, fails func(Sequence) bool, budget int) Sequence {
	try := func(c Sequence) bool {
		if budget--; budget < 0 || !fails(c) {
			return false
		}
		s = c
		return true
	}
	for before := -1; before != s.size() && budget > 0; {
		before = s.size()
		for n := max(1, (len(s)-1)/2); n > 0; n /= 2 {
			for i := len(s) - n; i >= 1; i -= n {
				try(slices.Concat(s[:i], s[i+n:]))
				i = min(i, len(s))
			}
		}
		for i := range s {
			s.reduce(i, try)
		}
	}
	return s
}

// size orders sequences.
func (s Sequence) size() int {
	n := len(s)
	for _, list := range s {
		n += len(list)
		for _, v := range list {
			n += int(v)
		}
	}
	return n
}

// with returns a copy with another list.
func (s Sequence) with(i int, list []uint32) Sequence {
	c := slices.Clone(s)
	c[i] = list
	return c
}

// reduce makes the choices of a list smaller.
func (s Sequence) reduce(i int, try func(Sequence) bool) {
	list := s[i]
	take := func(c []uint32) bool {
		if !try(s.with(i, c)) {
			return false
		}
		list, s = c, s.with(i, c)
		return true
	}
	for n := 1; n < len(list) && list[0] > 0; n++ { // the simplest kind of step, with the choices of a later part
		take(slices.Concat([]uint32{0}, list[n:]))
	}
	for n := len(list); n > 0; n /= 2 {
		for j := len(list) - n; j >= 0; j -= n {
			if take(slices.Concat(list[:j], list[j+n:])) {
				j = min(j, len(list))
			}
		}
	}
	for j := 0; j < len(list); j++ {
		for _, v := range []uint32{0, list[j] / 2, list[j] - 1} {
			if v < list[j] {
				c := slices.Clone(list)
				if c[j] = v; take(c) {
					break
				}
			}
		}
	}
}
