package model

import "math/rand/v2"

// draws are the choices of one step: random, or those of a list. Behind the end of the list, choices are zero, the simplest.
type draws struct {
	rng  *rand.Rand // nil: replay the list
	list []uint32
	at   int
}

// n returns a choice below k.
func (d *draws) n(k int) int {
	if k <= 1 {
		return 0
	}
	if d.at == len(d.list) && d.rng != nil {
		d.list = append(d.list, d.rng.Uint32N(uint32(k)))
	}
	v := uint32(0)
	if d.at < len(d.list) {
		v = d.list[d.at]
	}
	d.at++
	return int(v) % k
}

// one reports whether a choice of probability 1/k has come.
func (d *draws) one(k int) bool { return d.n(k) == 1 }

// pick returns one of several values.
func pick[T any](d *draws, list ...T) T { return list[d.n(len(list))] }
