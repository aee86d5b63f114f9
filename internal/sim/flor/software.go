package flor

import (
	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// Software is what an engine and its program take of a host's processors. A connection belongs to a thread, which does
// one thing after the other. Zero is nothing.
type Software struct {
	Threads    int         // of a host, each with a processor; default 1
	Completion engine.Time // to take a completion of data, with all that follows from it
	Ack        engine.Time // to send an acknowledgement, or to take one
}

// arrival is a completion that the NIC has written.
type arrival struct {
	at      engine.Time
	q       *nic.QP
	cqe     qp.CQE
	receive bool
	ack     bool // of the queue pair for acknowledgements
}

// thread is what waits for a processor. Acknowledgements have a queue of their own, which comes
// first (Flor 4.1).
type thread struct {
	h          *Host
	acks, data ring.Ring[arrival]
	timer      engine.Timer // pending while it is busy
	spent      engine.Time  // by what is being done
}

// thread returns that of a queue pair: those of a connection follow each other.
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

// came hands a completion to the thread of a queue pair.
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

// next does what waits, one thing, and then is busy for as long as that takes.
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
