package shard

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// mapWords is the size of the doorbell bitmap, in 64-bit words.
const mapWords = uverbs.MaxQPHandle / 64

// Bell is the shard's end of a client's doorbells. The client may write anything into the memory; the worst result
// is a needless check of its own queues.
type Bell struct {
	mem []byte
	fd  int
	qps []*rocev2.QueuePair // by handle
	cqs []*rocev2.CQ

	qpTurn, cqTurn int // handles to poll next
	commander      Commander
	commanded      bool // the shard runs a command in this turn
}

// Commander runs the commands that a client writes into its doorbell memory.
type Commander interface {
	// Command runs on the shard's thread when a command is pending, and writes the answer.
	Command(now mono.Time, n *rocev2.NIC)
}

// NewBell makes a Bell for mem, which the daemon shares with a client. fd is the eventfd that the client writes to.
func NewBell(mem []byte, fd int, c Commander) (*Bell, error) {
	if len(mem) < uverbs.DoorbellSize || uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
		return nil, fmt.Errorf("shard: doorbell memory of %d bytes: must have %d bytes or more, aligned to 8", len(mem), uverbs.DoorbellSize)
	}
	return &Bell{mem: mem, fd: fd, commander: c}, nil
}

// Set binds handle to q; nil unbinds it. Call it on the shard only.
func (b *Bell) Set(handle uint32, q *rocev2.QueuePair) { b.qps = setHandle(b.qps, handle, q) }

// SetCQ is Set for a completion queue.
func (b *Bell) SetCQ(handle uint32, q *rocev2.CQ) { b.cqs = setHandle(b.cqs, handle, q) }

func setHandle[T any](list []*T, handle uint32, v *T) []*T {
	if handle >= uverbs.MaxQPHandle {
		return list
	}
	for uint32(len(list)) <= handle {
		list = append(list, nil)
	}
	list[handle] = v
	return list
}

func (b *Bell) word(off, i int) *uint64 {
	return (*uint64)(unsafe.Pointer(&b.mem[off+8*i]))
}

// setSleeping sets the word that makes the client wake the shard.
func (b *Bell) setSleeping(v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b.mem[uverbs.DoorbellSleeping])), v)
}

// ringing reports whether a doorbell or a command may be pending.
func (b *Bell) ringing() bool {
	if b.commandPending() {
		return true
	}
	for i := range mapWords / 64 {
		if atomic.LoadUint64(b.word(uverbs.DoorbellSummary, i)) != 0 || atomic.LoadUint64(b.word(uverbs.DoorbellCQSummary, i)) != 0 {
			return true
		}
	}
	return false
}

// Budgets per turn: objects of each kind of one client, and objects of all clients. Doorbells beyond the budget
// stay pending.
const (
	bellBudget     = 16
	doorbellBudget = 512
	// commandCost is the budget that one command uses: a command may take 20 us.
	commandCost = 64
)

// commandPending reports whether a command of the client is pending.
func (b *Bell) commandPending() bool {
	s := atomic.LoadUint32((*uint32)(unsafe.Pointer(&b.mem[uverbs.DirectState])))
	return s == uverbs.DirectAsked || s == uverbs.DirectAwaited
}

// collect clears pending doorbells and passes them to the NIC. A client may run one command per turn. collect checks
// for the command first, so that the shard handles doorbells rung before the command.
func (b *Bell) collect(now mono.Time, n *rocev2.NIC) (count int) {
	if !b.commanded && b.commandPending() {
		b.commanded = true
		count += commandCost
	}
	count += collect(b, uverbs.DoorbellSummary, uverbs.DoorbellMap, &b.qpTurn, b.qps, func(q *rocev2.QueuePair) { n.Doorbell(now, q) })
	return count + collect(b, uverbs.DoorbellCQSummary, uverbs.DoorbellCQMap, &b.cqTurn, b.cqs, n.CQDoorbell)
}

// collect clears doorbells of one kind, from handle *turn on, until it has used the budget. The next turn continues
// where this one stops.
func collect[T any](b *Bell, summary, words int, turn *int, list []*T, notify func(*T)) (count int) {
	for pass := range mapWords/64 + 1 { // doorbells before *turn come last
		i, from := *turn/4096, *turn/64%64
		for sum := atomic.LoadUint64(b.word(summary, i)) >> from << from; sum != 0; sum &= sum - 1 {
			w := 64*i + bits.TrailingZeros64(sum)
			rung := b.take(summary, words, w)
			if early := rung & (1<<(*turn%64) - 1); pass == 0 && w == *turn/64 && early != 0 {
				b.ring(summary, words, w, early)
				rung &^= early
			}
			for ; rung != 0; rung &= rung - 1 {
				handle := 64*w + bits.TrailingZeros64(rung)
				if count == bellBudget {
					b.ring(summary, words, w, rung)
					*turn = handle
					return count
				}
				if handle < len(list) && list[handle] != nil {
					notify(list[handle])
				}
				count++
			}
		}
		*turn = (i + 1) % (mapWords / 64) * 4096
	}
	return count
}

// take clears the doorbells of a word and returns them. It clears the summary bit before the word, so that it
// misses no concurrent doorbell.
func (b *Bell) take(summary, words, w int) uint64 {
	atomic.AndUint64(b.word(summary, w/64), ^(uint64(1) << (w % 64)))
	return atomic.SwapUint64(b.word(words, w), 0)
}

// ring sets doorbells again.
func (b *Bell) ring(summary, words, w int, rung uint64) {
	atomic.OrUint64(b.word(words, w), rung)
	atomic.OrUint64(b.word(summary, w/64), 1<<(w%64))
}

// AddBell makes the shard poll b for the NIC.
func (n *NIC) AddBell(ctx context.Context, b *Bell) error {
	var err error
	derr := n.Do(ctx, func(mono.Time, *rocev2.NIC) {
		if err = n.shard.ep.addEvent(b.fd); err == nil {
			n.bells, n.shard.wakeup = append(n.bells, b), true // the loop must update its sleeping word
		}
	})
	return errors.Join(derr, err)
}

// RemoveBell makes the shard stop polling b. Afterwards the caller may unmap b's memory.
func (n *NIC) RemoveBell(b *Bell) error {
	var err error
	derr := n.Do(context.Background(), func(mono.Time, *rocev2.NIC) {
		if i := slices.Index(n.bells, b); i >= 0 {
			n.bells = slices.Delete(n.bells, i, i+1)
			err = n.shard.ep.remove(b.fd)
		}
	})
	return errors.Join(derr, err)
}

// Close closes the eventfd. Call it after RemoveBell.
func (b *Bell) Close() error { return unix.Close(b.fd) }
