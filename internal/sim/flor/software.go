package flor

import (
	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// Software is the processor time that an engine takes. Each connection belongs to a thread, which processes one
// item after the other. Zero is no time.
type Software struct {
	Threads    int         // per host, each on its own processor; default 1
	Completion engine.Time // to process a completion of data, including all consequences
	Ack        engine.Time // to send or to process an acknowledgement
}

// arrival is a completion from the NIC.
type arrival struct {
	at      engine.Time
	q       *nic.QP
	cqe     qp.CQE
	receive bool
	ack     bool // from the queue pair for acknowledgements
}

// thread queues the work of a processor. Acknowledgements have a queue of their own and are processed first (Flor
// 4.1).
type thread struct {
	h          *Host
	acks, data ring.Ring[arrival]
	timer      engine.Timer // pending while it is busy
	spent      engine.Time  // by the current item
}

// thread returns the thread of a queue pair. The queue pairs of a connection have consecutive numbers.
func (h *Host) thread(num flor.QPN) *thread {
	return h.threads[(int(num)-1)/(1+h.f.cfg.Backups)%len(h.threads)]
}

func (h *Host) startThreads() {
	for range max(h.f.cfg.Software.Threads, 1) {
		t := &thread{h: h}
		t.timer.Init(t, 0)
		h.threads = append(h.threads, t)
	}
}

// came queues a completion for the thread of a queue pair.
func (h *Host) came(num flor.QPN, a arrival) {
	if s := &h.f.cfg.Software; s.Completion == 0 && s.Ack == 0 {
		h.do(&a)
		h.rearm()
		return
	}
	t := h.thread(num)
	if a.ack {
		*t.acks.Push() = a
	} else {
		*t.data.Push() = a
	}
	if !t.timer.Pending() {
		t.next()
	}
}

// Handle implements engine.Handler.
func (t *thread) Handle(engine.Time, int32) { t.next() }

// next processes one item, and is then busy for its processing time.
func (t *thread) next() {
	queue := &t.acks
	if queue.Len() == 0 {
		queue = &t.data
	}
	if queue.Len() == 0 {
		return
	}
	a := *queue.Oldest()
	queue.Head++
	t.spent += pick(a.ack, t.h.f.cfg.Software.Ack, t.h.f.cfg.Software.Completion)
	t.h.do(&a)
	e := t.h.f.k.Engine()
	e.Set(&t.timer, e.Now()+t.spent)
	t.spent = 0
	t.h.rearm()
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

func (h *Host) do(a *arrival) {
	if a.ack {
		h.ack(a)
	} else {
		h.data(a)
	}
}
