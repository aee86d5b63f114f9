package workload

import (
	"maps"
	"slices"

	"roced.io/roced/internal/sim/engine"
)

// Iterations is the traffic of a training job: in each round all ranks calculate and then take part in a collective
// operation.
type Iterations struct {
	Pattern string // of Patterns
	Ranks   int
	Bytes   uint32 // of a rank's vector; all-to-all: of a message
	Rounds  int
	Compute engine.Time // before each operation
	Group   int         // hierarchical: consecutive ranks that are near each other
}

// patterns make an operation: each rank begins after the operation last, and last becomes that with which it ends.
var patterns = map[string]func(b *builder, i *Iterations, last []int32){
	"ring":         func(b *builder, i *Iterations, last []int32) { b.ring(all(i.Ranks), 2*(i.Ranks-1), i.Bytes, last) },
	"tree":         (*builder).tree,
	"all-to-all":   (*builder).allToAll,
	"hierarchical": (*builder).hierarchical,
}

// Patterns returns the names of the patterns.
func Patterns() []string { return slices.Sorted(maps.Keys(patterns)) }

// Schedule returns the operations of i.
func (i *Iterations) Schedule() *Schedule {
	b := &builder{s: &Schedule{Kind: "iterations of " + i.Pattern}}
	last := make([]int32, i.Ranks)
	for round := range max(i.Rounds, 1) {
		for r := range last {
			calc := b.s.Add(Op{Rank: int32(r), Length: i.Compute})
			if round > 0 {
				b.s.Require(calc, last[r], false)
			}
			last[r] = calc
		}
		patterns[i.Pattern](b, i, last)
	}
	return b.s
}

// Messages returns the number of messages of a round.
func (i *Iterations) Messages() float64 {
	n, g := float64(i.Ranks), float64(max(i.Group, 1))
	switch i.Pattern {
	case "ring":
		return 2 * n * (n - 1)
	case "tree":
		return 2 * (n - 1)
	case "hierarchical":
		return 2 * n * (g - 1 + n/g - 1)
	}
	return n * (n - 1)
}

// builder makes a schedule. Each step has a tag of its own.
type builder struct {
	s   *Schedule
	tag uint32
}

func all(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}

// message adds a message that from sends after the operation after. It returns send and receive.
func (b *builder) message(from, to int, bytes uint32, tag uint32, after int32) (send, recv int32) {
	send = b.s.Add(Op{Kind: SendOp, Rank: int32(from), Peer: int32(to), Bytes: max(bytes, 1), Tag: tag})
	recv = b.s.Add(Op{Kind: RecvOp, Rank: int32(to), Peer: int32(from), Bytes: max(bytes, 1), Tag: tag})
	b.s.Require(send, after, false)
	return send, recv
}

// join ends the part of a rank after some operations.
func (b *builder) join(rank int, ops []int32) int32 {
	j := b.s.Add(Op{Rank: int32(rank)})
	for _, op := range ops {
		b.s.Require(j, op, false)
	}
	return j
}

// ring passes parts of a vector around members: a member sends a step after it has received the one before.
func (b *builder) ring(members []int, steps int, bytes uint32, last []int32) {
	n := len(members)
	if n < 2 {
		return
	}
	ops := make([][]int32, n)
	for range steps {
		next := make([]int32, n)
		for k, from := range members {
			send, recv := b.message(from, members[(k+1)%n], bytes/uint32(n), b.tag, last[from])
			ops[k], next[(k+1)%n] = append(ops[k], send), recv
		}
		for k, m := range members {
			last[m] = next[k]
		}
		b.tag++
	}
	for k, m := range members {
		last[m] = b.join(m, append(ops[k], last[m]))
	}
}

// hierarchical reduces a vector in each group, then each part among the groups, and gathers it in each group.
func (b *builder) hierarchical(i *Iterations, last []int32) {
	var groups [][]int
	for g := range slices.Chunk(all(i.Ranks), i.Group) {
		groups = append(groups, g)
	}
	within := func() {
		tag := b.tag
		for _, g := range groups {
			b.tag = tag
			b.ring(g, len(g)-1, i.Bytes, last)
		}
	}
	within()
	tag := b.tag
	for k := range i.Group {
		var same []int
		for _, g := range groups {
			same = append(same, g[k])
		}
		b.tag = tag
		b.ring(same, 2*(len(same)-1), i.Bytes/uint32(i.Group), last)
	}
	within()
}

// tree sums a vector up a binary tree and distributes the sum.
func (b *builder) tree(i *Iterations, last []int32) {
	ops := make([][]int32, i.Ranks)
	for r := i.Ranks - 1; r > 0; r-- { // children before parents
		if len(ops[r]) > 0 {
			last[r] = b.join(r, ops[r])
		}
		parent := (r - 1) / 2
		send, recv := b.message(r, parent, i.Bytes, b.tag, last[r])
		ops[r], ops[parent] = []int32{send}, append(ops[parent], recv)
	}
	last[0] = b.join(0, append(ops[0], last[0]))
	for r := 1; r < i.Ranks; r++ {
		parent := (r - 1) / 2
		_, recv := b.message(parent, r, i.Bytes, b.tag+1, last[parent])
		last[r] = b.join(r, append(ops[r], recv))
	}
	b.tag += 2
}

// allToAll sends a message from each rank to each other one.
func (b *builder) allToAll(i *Iterations, last []int32) {
	ops := make([][]int32, i.Ranks)
	for k := 1; k < i.Ranks; k++ {
		for from := range i.Ranks {
			to := (from + k) % i.Ranks
			send, recv := b.message(from, to, i.Bytes, b.tag, last[from])
			ops[from], ops[to] = append(ops[from], send), append(ops[to], recv)
		}
	}
	b.tag++
	for r := range last {
		last[r] = b.join(r, ops[r])
	}
}
