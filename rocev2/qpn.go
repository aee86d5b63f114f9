package rocev2

import (
	"math/rand/v2"

	"roced.io/roced/bth"
	"roced.io/roced/rocev2/object"
)

// maxQPs is a sixteenth of the queue pair numbers.
const maxQPs = 1 << 20

// restingQPNs is the number of QPNs of destroyed queue pairs that the NIC does not reuse, so that packets in flight reach
// no other queue pair: those of 8 s at 2000 connections a second. Later, a number is reused with probability 2^-24.
const restingQPNs = 1 << 14

// qpnTable finds queue pairs by their numbers. All 24 bits are random: an off-path attacker must not be able to address
// a queue pair.
type qpnTable struct {
	object.Index[QueuePair]
	resting []bth.QPN // of destroyed queue pairs; when full, a ring
	oldest  int       // in that ring
	gone    QueuePair // represents them
}

// init reserves the numbers of management and multicast (IBTA vol.1 3.5.3), and that of MRC's endpoint operations. Index
// reserves 0.
func (t *qpnTable) init(rng *rand.ChaCha8) {
	t.Init(rng)
	t.gone.dead = true
	for _, num := range []bth.QPN{1, bth.MRCEndpointQPN, bth.MaxQPN} {
		t.Put(uint32(num), &t.gone)
	}
}

// add gives q a number.
func (t *qpnTable) add(q *QueuePair) {
	num, _ := t.Add(q)
	q.num = bth.QPN(num)
}

// free reports whether a queue pair can have that number. Number 2 is also that of MRC's endpoint operations, whose packets
// have opcodes of their own.
func (t *qpnTable) free(num bth.QPN) bool {
	q := t.Get(uint32(num))
	return num > 1 && num < bth.MaxQPN && (q == nil || num == bth.MRCEndpointQPN && q == &t.gone)
}

// choose gives q a number that is free.
func (t *qpnTable) choose(q *QueuePair, num bth.QPN) {
	if q.num = num; num == bth.MRCEndpointQPN {
		t.Replace(uint32(num), q)
		return
	}
	t.Put(uint32(num), q)
}

// rest frees the number of q and reserves it for a while.
func (t *qpnTable) rest(q *QueuePair) {
	t.Replace(uint32(q.num), &t.gone)
	if q.num == bth.MRCEndpointQPN {
		return
	}
	if len(t.resting) < restingQPNs {
		t.resting = append(t.resting, q.num)
		return
	}
	t.Remove(uint32(t.resting[t.oldest]))
	t.resting[t.oldest] = q.num
	t.oldest = (t.oldest + 1) % restingQPNs
}

// lookupQP returns the queue pair of this number, nil if there is none.
func (n *NIC) lookupQP(num bth.QPN) *QueuePair {
	if q := n.obj.numbers.Get(uint32(num)); q != nil && !q.dead {
		return q
	}
	return nil
}
