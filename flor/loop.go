package flor

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// failure is a work request that the NIC will not complete.
type failure struct {
	p  *pair
	id uint64
}

// enter locks the Device before a call of the engine or of its state.
func (d *Device) enter() { d.mu.Lock() }

// leave unlocks the Device. It runs the actions deferred until after the lock, and wakes the loop if its sleep is too
// long.
func (d *Device) leave() {
	calls := d.calls
	d.calls = nil
	kick := d.deadline() < d.asleep || len(d.failed) > 0 || d.asleep != 0 && d.keys.unheard()
	d.mu.Unlock()
	if kick {
		d.kick()
	}
	for _, f := range calls {
		f()
	}
}

// kick wakes the loop.
func (d *Device) kick() {
	select {
	case d.kicked <- struct{}{}:
	default:
	}
}

// deadline returns the time of the loop's next action without an event.
func (d *Device) deadline() mono.Time {
	at := d.eng.NextTimeout()
	for p := range d.joining {
		at = at.Min(p.again)
	}
	return at
}

// run is the loop: it polls while there are completions and for Spin longer, then sleeps.
func (d *Device) run() {
	events := make(chan struct{}, 1)
	stop, cancel := context.WithCancel(context.Background())
	d.group.Go(func() {
		for {
			if _, err := d.ch.Next(stop); err != nil {
				return
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	})
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	idle := time.Time{}
	for !d.ended() {
		if d.turn() > 0 {
			idle = time.Time{}
			continue
		}
		if idle.IsZero() {
			idle = time.Now()
		}
		if time.Since(idle) < d.cfg.Spin {
			// On a machine with few cores the daemon may need this core.
			runtime.Gosched()
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			continue
		}
		d.sleep(events, timer)
	}
}

// closing is the time limit for closing the device.
const closing = 2 * time.Second

// ended reports whether the loop may end: the device is lost, or it is closed with no work left or out of time.
func (d *Device) ended() bool {
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost {
		return true
	}
	select {
	case <-d.quit:
	default:
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closeBy == 0 {
		d.closeBy = d.now().Add(closing)
	}
	return len(d.conns) == 0 && len(d.pairs) == 0 || d.now() > d.closeBy
}

// sleep waits for an event, a kick or a deadline.
func (d *Device) sleep(events <-chan struct{}, timer *time.Timer) {
	d.mu.Lock()
	d.keys.armed = d.keys.awaited()
	keys := d.keys.armed
	d.mu.Unlock()
	for _, q := range [...]*verbs.CQ{d.ackCQ, d.keys.cq, d.sendCQ, d.recvCQ} {
		// The engine needs no prompt completion of a UC send: the time stamp gives the time of departure.
		failuresOnly := q == d.sendCQ && !d.cfg.Engine.Hardware || q == d.keys.cq && !keys
		if err := q.ReqNotify(failuresOnly); err != nil {
			d.fatal(err)
		}
	}
	if d.turn() > 0 { // completions since the last poll
		return
	}
	d.mu.Lock()
	d.asleep = d.deadline()
	wait := longestSleep
	if d.asleep != mono.Never {
		wait = min(max(d.asleep.Sub(d.now()), 0), wait)
	}
	stay := len(d.failed) > 0 || d.keys.unheard()
	d.mu.Unlock()
	if !stay {
		timer.Reset(wait)
		select {
		case <-events:
		case <-d.kicked:
		case <-timer.C:
		case <-d.ctx.Done():
			d.fatal(verbs.ErrDeviceFatal)
		}
	}
	d.mu.Lock()
	d.asleep = 0
	d.mu.Unlock()
}

// longestSleep bounds the delay of changes that do not wake the loop.
const longestSleep = 100 * time.Millisecond

// turn polls all queues, acknowledgements first, and returns the number of completions.
func (d *Device) turn() (n int) {
	d.enter()
	defer d.leave()
	n += d.poll(d.ackCQ, d.wcs[:], (*Device).ackCompleted)
	n += d.poll(d.sendCQ, d.wcs[:], (*Device).sendCompleted)
	n += d.poll(d.ackCQ, d.wcs[:], (*Device).ackCompleted)
	n += d.poll(d.keys.cq, d.wcs[:], (*Device).keyCompleted)
	n += d.poll(d.recvCQ, d.recvWCs[:], (*Device).received)
	n += d.flush()
	now := d.now()
	if d.eng.NextTimeout() <= now {
		d.eng.OnTimeout(now)
		n++
	}
	for p := range d.joining {
		if p.again <= now {
			p.announce(now)
			n++
		}
	}
	return n
}

// poll processes one batch of completions.
func (d *Device) poll(q *verbs.CQ, wcs []verbs.WC, f func(*Device, mono.Time, *verbs.WC)) int {
	n, err := q.Poll(wcs)
	if err != nil {
		d.fail(err)
		return 0
	}
	now := d.now()
	for i := range n {
		f(d, now, &wcs[i])
	}
	return n
}

// takeReceived processes all received messages before the engine leaves a queue pair. With RC the NIC has acknowledged
// them, so the peer does not retransmit them.
func (d *Device) takeReceived() {
	for range d.cfg.Pool/len(d.recvWCs) + 1 { // the maximum number of completions; later ones do not matter
		if d.poll(d.recvCQ, d.recvWCs[:], (*Device).received) == 0 {
			return
		}
	}
}

// flush reports to the engine the work requests that failed to post.
func (d *Device) flush() (n int) {
	for ; len(d.failed) > 0; n++ {
		f := d.failed[0]
		d.failed = append(d.failed[:0], d.failed[1:]...)
		f.p.completed(d.now(), f.id, engine.Failed, 0)
	}
	return n
}

// fatal ends all connections: the NIC is gone.
func (d *Device) fatal(err error) {
	d.enter()
	defer d.leave()
	d.fail(err)
}

func (d *Device) fail(err error) {
	if d.lost {
		return
	}
	d.lost = true
	if d.err == nil {
		d.err = err
	}
	d.keys.abandon()
	for c := range d.conns {
		c.e.Fail(d.now(), err)
	}
	for _, p := range d.pairs {
		p.abandon()
	}
	d.flush()
}
