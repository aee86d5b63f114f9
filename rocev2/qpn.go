package rocev2

import (
	"math/rand/v2"

	"roced.io/roced/bth"
)

// maxQPs is a sixteenth of the queue pair numbers.
const maxQPs = 1 << 20

// restingQPNs is how many numbers of queue pairs that have gone are not given to others,
// so that packets which are still on their way reach nobody: those of 8 s at 2000
// connections a second. Later the same number comes again with probability 2^-24.
const restingQPNs = 1 << 14

// qpnTable finds queue pairs by their numbers. All 24 bits are random: whoever cannot
// see a queue pair's packets must not be able to address it.
type qpnTable struct {
	indexTable[QueuePair]
	resting []bth.QPN // of queue pairs that have gone; when full, a ring
	oldest  int       // in that ring
	gone    QueuePair // stands for them
}

// init reserves the numbers of management and multicast (IBTA vol.1 3.5.3).
func (t *qpnTable) init(rng *rand.ChaCha8) {
	t.indexTable.init(rng)
	t.gone.dead = true
	for _, num := range []bth.QPN{1, bth.MaxQPN} { // nobody gets 0
		t.put(uint32(num), &t.gone)
	}
}

// lookup returns the queue pair of this number, nil if there is none.
func (t *qpnTable) lookup(num bth.QPN) *QueuePair {
	if q := t.get(uint32(num)); q != nil && !q.dead {
		return q
	}
	return nil
}

// add gives q a number.
func (t *qpnTable) add(q *QueuePair) {
	num, _ := t.indexTable.add(q)
	q.num = bth.QPN(num)
}

// rest takes the number of q away from it, and keeps it from others for a while.
func (t *qpnTable) rest(q *QueuePair) {
	t.find(uint32(q.num)).v = &t.gone
	if len(t.resting) < restingQPNs {
		t.resting = append(t.resting, q.num)
		return
	}
	t.remove(uint32(t.resting[t.oldest]))
	t.resting[t.oldest] = q.num
	t.oldest = (t.oldest + 1) % restingQPNs
}

// lookupQP returns the queue pair of this number, nil if there is none.
func (n *NIC) lookupQP(num bth.QPN) *QueuePair { return n.obj.numbers.lookup(num) }
